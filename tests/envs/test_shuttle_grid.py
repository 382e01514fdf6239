"""`shuttle_grid`: hand-checked cases, a plain-Python simulator as oracle, invariants, arguments."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shuttle_oracle import Oracle, jobs_of, mixed, put, trace

import jaxmarl_envs
from jaxmarl_envs.shuttle_grid import HOLD, LEAVE_BY_COLUMN, LEAVE_BY_ROW, ShuttleGrid
from jaxmarl_envs.shuttle_grid.dispatchers import greedy

ODD_ONE = {
    "num_shuttles": 4,
    "num_rows": 4,
    "num_cols": 6,
    "ports": ((1, 5), (2, 0), (3, 3)),
    "reward": "own",
    "move_empty": 1,
    "move_loaded": 4,
    "turn": 3,
    "handling": 6,
    "max_steps": 150,
}


@pytest.fixture(scope="module")
def env():
    return ShuttleGrid()


@pytest.fixture(scope="module")
def start(env):
    return jax.jit(env.reset_env)(jax.random.key(0), env.default_params)[1]


@pytest.fixture(scope="module")
def many_starts(env):
    reset = jax.jit(jax.vmap(env.reset_env, in_axes=(0, None)))
    return jax.device_get(reset(jax.random.split(jax.random.key(11), 4000), env.default_params))


@pytest.fixture(scope="module")
def step(env):
    jitted = jax.jit(env.step_env)
    return lambda state, action, params=env.default_params: jitted(
        jax.random.key(1), state, jnp.asarray(action), params
    )


# --- hand-checked cases ---------------------------------------------------------------------------


def test_a_shuttle_delivers_on_step_15(env, start, step):
    cells = [(0, 0), (4, 6), (4, 0), (4, 2), (4, 4), (5, 1)]
    state = put(env, start, cells, storage=[2] + [20] * 5, port=[3] + [44] * 5)
    rewards, acting = [], []
    for _ in range(15):
        acting.append(bool(state.busy[0] == 0))
        obs, state, reward, *_ = step(state, [LEAVE_BY_ROW] + [HOLD] * 5)
        rewards.append(reward.tolist())
    assert rewards == [[0.0] * 6] * 14 + [[1.0] * 6]
    # Two moves empty (from steps 1 and 3), picking from 5 to 8, one move loaded (9 to 11).
    assert [t + 1 for t, acts in enumerate(acting) if acts] == [1, 3, 9]
    assert bool(obs.agent_mask[0])
    assert state.num_delivered.tolist() == [1, 0, 0, 0, 0, 0]
    assert not bool(state.loaded[0])


def test_four_that_follow_each_other_round_a_block_are_deadlocked(env, start, step):
    cells = [(0, 0), (0, 1), (1, 1), (1, 0), (4, 2), (4, 4)]
    state = before = put(env, start, cells, storage=[20] * 6)
    for _ in range(6):
        _, state, *_ = step(state, [1, 2, 1, 2, HOLD, HOLD])
    np.testing.assert_array_equal(state.cell, before.cell)
    np.testing.assert_array_equal(state.reserved, before.cell)
    np.testing.assert_array_equal(state.wait, [6] * 6)
    # One of them leaves the ring; the one behind it follows once it has arrived, two steps later.
    reserved = []
    for _ in range(3):
        _, state, *_ = step(state, [1, 1, 1, 2, HOLD, HOLD])
        reserved.append(state.reserved.tolist()[:4])
    assert reserved == [[0, 2, 9, 8], [0, 2, 9, 8], [1, 3, 9, 8]]


@pytest.mark.parametrize(
    ("time", "loaded", "wait", "winner"),
    [
        (0, (0, 0), (0, 0), 1),
        (1, (0, 0), (0, 0), 1),
        (5, (0, 0), (0, 0), 0),  # precedence goes round: 0 has 5, 1 has 0
        (0, (0, 1), (0, 0), 1),
        (5, (0, 1), (0, 0), 1),
        (0, (1, 0), (0, 0), 0),
        (0, (0, 0), (1, 0), 0),  # one wait outweighs a turn in the order of precedence
        (5, (0, 0), (0, 1), 1),
        (0, (1, 0), (0, 999), 0),  # no wait outweighs a load
        (5, (0, 0), (999, 1500), 0),  # waits beyond 999 count as 999
    ],
)
def test_precedence(env, start, step, time, loaded, wait, winner):
    cells = [(0, 3), (1, 4), (4, 0), (4, 2), (4, 4), (4, 6)]
    rest = (0,) * 4
    state = put(
        env, start, cells, time=time, loaded=loaded + rest, wait=wait + rest, storage=[20] * 6
    )
    _, state, *_ = step(state, [LEAVE_BY_COLUMN, LEAVE_BY_ROW, HOLD, HOLD, HOLD, HOLD])
    loser = 1 - winner
    assert int(state.reserved[winner]) == 1 * 8 + 3
    assert int(state.reserved[loser]) == int(state.cell[loser])
    assert int(state.wait[winner]) == 0
    assert int(state.wait[loser]) == wait[loser] + 1
    np.testing.assert_array_equal(state.wait[2:], [1] * 4)  # holding by choice counts too


def test_a_leaving_shuttle_holds_both_cells_until_it_arrives(env, start, step):
    cells = [(0, 1), (0, 0), (4, 0), (4, 2), (4, 4), (4, 6)]
    state = put(env, start, cells, storage=[20] * 6)
    act = [LEAVE_BY_ROW, LEAVE_BY_ROW, HOLD, HOLD, HOLD, HOLD]
    _, state, *_ = step(state, act)
    assert (int(state.cell[0]), int(state.reserved[0]), int(state.busy[0])) == (1, 2, 1)
    _, state, *_ = step(state, act)  # shuttle 0 arrives at the end of this step
    assert (int(state.cell[0]), int(state.wait[1])) == (2, 2)
    _, state, *_ = step(state, [HOLD, LEAVE_BY_ROW, HOLD, HOLD, HOLD, HOLD])
    assert int(state.reserved[1]) == 1


@pytest.mark.parametrize(("loaded", "axis", "steps"), [(0, 0, 2), (1, 0, 3), (0, 1, 4), (1, 1, 5)])
def test_moves_take_longer_loaded_and_round_a_corner(env, start, step, loaded, axis, steps):
    cells = [(0, 1), (2, 0), (4, 0), (4, 2), (4, 4), (4, 6)]
    others = [0] * 5
    state = put(env, start, cells, loaded=[loaded, *others], axis=[axis, *others], storage=[20] * 6)
    _, state, *_ = step(state, [LEAVE_BY_ROW] + [HOLD] * 5)
    assert int(state.busy[0]) == steps - 1
    assert int(state.axis[0]) == 0


def test_asking_for_an_exit_off_the_grid_is_holding(env, start, step):
    cells = [(0, 0), (5, 7), (2, 2), (4, 2), (4, 4), (4, 6)]
    state = put(env, start, cells, storage=[20] * 6)
    obs, after, *_ = step(state, [LEAVE_BY_COLUMN, LEAVE_BY_COLUMN] + [HOLD] * 4)
    np.testing.assert_array_equal(after.reserved, state.cell)
    np.testing.assert_array_equal(obs.action_mask[0], [True, True, False])
    np.testing.assert_array_equal(obs.action_mask[1], [True, True, False])
    np.testing.assert_array_equal(obs.action_mask[2], [True, True, True])


def test_a_shuttle_that_starts_on_its_target_begins_handling(many_starts):
    obs, state = many_starts
    on_target = state.cell == state.storage
    assert on_target.any()
    np.testing.assert_array_equal(state.busy, np.where(on_target, 4, 0))
    np.testing.assert_array_equal(obs.agent_mask, ~on_target)


# --- against the oracle ---------------------------------------------------------------------------


@pytest.mark.rare_cases("kwargs1-150")
@pytest.mark.parametrize(("kwargs", "num_steps"), [({}, 256), (ODD_ONE, 150)])
def test_agrees_with_the_oracle(env, kwargs, num_steps):
    env = ShuttleGrid(**kwargs) if kwargs else env
    num_cols, scale = env.guidepath.num_cols, env.guidepath.time_scale
    totals = np.zeros(3, int)
    for seed in (3, 4):
        key = jax.random.key(seed)
        first, happened = jax.device_get(trace(env, mixed, key, num_steps))
        cells = [divmod(int(c), num_cols) for c in first[1].cell]
        oracle = Oracle(env, cells, jobs_of(env, key, 40))
        check_against(oracle, *first, scale)
        for t in range(num_steps):
            action, obs, state, reward, terminated, _, info = jax.tree.map(
                lambda x, t=t: x[t], happened
            )
            own = oracle.step(action)
            team = [sum(own)] * env.num_agents
            np.testing.assert_array_equal(reward, own if env.reward == "own" else team)
            np.testing.assert_array_equal(info["metrics"]["deliveries"], team)
            np.testing.assert_array_equal(info["metrics"]["own_deliveries"], own)
            np.testing.assert_array_equal(terminated, t == num_steps - 1)
            check_against(oracle, obs, state, scale)
            totals[0] += sum(own)
        totals[1:] += oracle.picks, oracle.conflicts
    assert (totals >= (10, 10, 1)).all(), f"deliveries, picks, conflicts: {totals}"


def check_against(oracle, obs, state, scale):
    num_cols = oracle.cols
    for field, key in (("axis", "axis"), ("loaded", "loaded"), ("busy", "busy"), ("wait", "wait")):
        np.testing.assert_array_equal(getattr(state, field), [s[key] for s in oracle.shuttles])
    for field, key in (("cell", "at"), ("reserved", "to")):
        cells = [tuple(divmod(int(c), num_cols)) for c in getattr(state, field)]
        assert cells == [s[key] for s in oracle.shuttles]
    alive = oracle.t < oracle.max_steps
    np.testing.assert_array_equal(obs.alive, [alive] * len(oracle.shuttles))
    np.testing.assert_array_equal(
        obs.agent_mask, [alive and s["busy"] == 0 for s in oracle.shuttles]
    )
    for i, shuttle in enumerate(oracle.shuttles):
        expected = oracle.observe(i, scale)
        np.testing.assert_allclose(obs.features[i], expected, atol=1e-6, err_msg=f"t={oracle.t}")
        legal = [oracle.exit(shuttle["to"], b) is not None for b in (0, 1)]
        np.testing.assert_array_equal(obs.action_mask[i], [True, *legal])


@pytest.mark.parametrize("kwargs", [{}, ODD_ONE])
def test_travel_times_agree_with_dijkstra(kwargs):
    env = ShuttleGrid(**kwargs)
    num = env.num_agents
    cells = [divmod(c, env.guidepath.num_cols) for c in range(env.guidepath.num_cells)]
    oracle = Oracle(env, cells[:num], [[((0, 0), (0, 0))]] * num)
    for loaded in (False, True):
        expected = [
            [[oracle.distances[loaded][cell, axis][target] for target in cells] for axis in (0, 1)]
            for cell in cells
        ]
        np.testing.assert_array_equal(env.guidepath.travel_times[int(loaded)], expected)


@pytest.mark.parametrize(("kwargs", "num_steps"), [({}, 256), (ODD_ONE, 150)])
def test_full_view_and_progress_agree_with_the_oracle(kwargs, num_steps):
    env = ShuttleGrid(**{**kwargs, "full_view": True, "reward": "progress"})
    plain_width = ShuttleGrid(**kwargs).sight.width(env.num_agents)
    key = jax.random.key(5)
    first, happened = jax.device_get(trace(env, mixed, key, num_steps))
    cells = [divmod(int(c), env.guidepath.num_cols) for c in first[1].cell]
    oracle = Oracle(env, cells, jobs_of(env, key, 40))
    total = late = 0
    for t in range(num_steps):
        action, obs, _, reward, *_ = jax.tree.map(lambda x, t=t: x[t], happened)
        agents = range(env.num_agents)
        before = [oracle.remaining(i) for i in agents]
        own = oracle.step(action)
        # Whoever has delivered has another job now, no step of which is done yet.
        left = [0 if own[i] else oracle.remaining(i) for i in agents]
        in_time = [x <= num_steps - oracle.t for x in left]
        gained = sum(b - x for b, x, ok in zip(before, left, in_time, strict=True) if ok)
        gained /= env.guidepath.mean_job
        late += len(in_time) - sum(in_time)
        np.testing.assert_allclose(reward, [gained] * env.num_agents, atol=1e-5, err_msg=f"t={t}")
        more = [oracle.observe_more(i, env.guidepath.time_scale) for i in agents]
        np.testing.assert_allclose(obs.features[:, plain_width:], more, atol=1e-6)
        total += sum(own)
    assert total >= 5
    assert late >= 50


def test_progress_is_a_step_for_each_step_with_nobody_in_the_way():
    env = ShuttleGrid(num_shuttles=1, reward="progress", max_steps=2000)
    _, happened = jax.device_get(trace(env, greedy, jax.random.key(0), 2000))
    reward, info = happened[3], happened[6]
    path = env.guidepath
    steps = reward[:-100, 0] * path.mean_job
    # With its last move to a load it is known along which axis it comes; a turn then takes half as
    # long again, or half as long less, than it had counted.
    assert set(np.round(steps, 3)) == {0.0, 1.0, 2.0}
    assert np.isclose(steps, 1.0).mean() > 0.9
    delivered = info["metrics"]["deliveries"].sum()
    assert abs(reward.sum() - delivered) < 0.1 * delivered


# --- seen the other way up ------------------------------------------------------------------------


def turned(env, state):
    """The same shift, turned by 180 degrees."""
    last = env.guidepath.num_cells - 1
    fields = ("cell", "reserved", "storage", "port")
    return replace(state, **{name: last - getattr(state, name) for name in fields})


def test_a_turned_shift_goes_on_as_the_turned_shift(env, start, step):
    state, key = start, jax.random.key(2)
    for t in range(60):
        action = jax.random.randint(jax.random.fold_in(key, t), (6,), 1, 3)
        after, other = step(state, action)[1], step(turned(env, state), action)[1]
        new_job = after.num_delivered > state.num_delivered
        for name in ("cell", "reserved", "axis", "busy", "wait", "loaded", "exit_times"):
            here, there = getattr(turned(env, after), name), getattr(other, name)
            known = ~new_job if here.ndim == 1 else ~new_job[:, None]
            np.testing.assert_array_equal(here * known, there * known, err_msg=name)
        state = after
    assert (state.cell != start.cell).all()


def test_lower_shuttles_see_what_upper_ones_would():
    plain = ShuttleGrid(full_view=True)
    env = ShuttleGrid(full_view=True, half_turn=True)
    params = env.default_params
    _, happened = jax.device_get(trace(env, mixed, jax.random.key(4), 200))
    obs, state = happened[1], happened[2]
    observe = jax.jit(jax.vmap(lambda state: plain._observe(state, params).features))
    upright, upside_down = observe(state), observe(turned(env, state))
    lower = state.cell >= 24
    assert lower.any(0).all()
    assert (~lower).any(0).all()
    expected = np.where(lower[..., None], upside_down, upright)
    np.testing.assert_allclose(obs.features, expected, atol=1e-6)
    assert not np.allclose(upright, upside_down)


# --- invariants over many steps -------------------------------------------------------------------


@pytest.mark.rare
def test_held_cells_are_disjoint_and_features_bounded(env):
    params, num_envs = env.default_params, 256
    act = jax.vmap(mixed, in_axes=(0, 0, None, 0))

    def time_step(carry, key):
        obs, state = carry
        key_action, key_step = jax.random.split(key)
        action = act(state, obs, params, jax.random.split(key_action, num_envs))
        before = state
        keys = jax.random.split(key_step, num_envs)
        obs, state, _, terminated, truncated, info = env.step_batch(keys, state, action, params)
        held = jnp.concatenate([state.cell, state.reserved], axis=1)
        owner = jnp.tile(jnp.arange(env.num_agents), 2)
        clash = (held[:, :, None] == held[:, None, :]) & (owner[:, None] != owner)
        bounded = (jnp.abs(obs.features) <= 1).all()
        went_on = state.time == before.time + 1
        ends = jnp.where(info["episode_over"], state.time == 0, went_on).all()
        ends &= (terminated == info["episode_over"][:, None]).all() & ~truncated.any()
        final = info["final_observation"].features[..., 15]
        ends &= jnp.where(info["episode_over"][:, None], final == 0, final > 0).all()
        return (obs, state), (~clash.any(), bounded, ends, info["episode_over"].mean())

    @jax.jit
    def run(key):
        keys = jax.random.split(key, num_envs)
        start = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
        return jax.lax.scan(time_step, start, jax.random.split(key, 400))[1]

    disjoint, bounded, ends, over = jax.device_get(run(jax.random.key(8)))
    assert disjoint.all()
    assert bounded.all()
    assert ends.all()
    np.testing.assert_array_equal(np.flatnonzero(over), [255])  # all at once, after 256 steps


def test_jobs_do_not_depend_on_what_anybody_does(env):
    seen = []
    for dispatcher in (mixed, greedy):
        _, happened = jax.device_get(trace(env, dispatcher, jax.random.key(3), 256))
        state = happened[2]
        jobs = {}
        for i in range(env.num_agents):
            for k, storage, port in zip(
                state.num_delivered[:, i], state.storage[:, i], state.port[:, i], strict=True
            ):
                assert jobs.setdefault((i, int(k)), (storage, port)) == (storage, port)
        seen.append(jobs)
    common = set(seen[0]) & set(seen[1])
    assert len(common) > 2 * env.num_agents
    assert set(seen[0]) != set(seen[1])
    assert all(seen[0][job] == seen[1][job] for job in common)


def test_starts_and_jobs_are_uniform(env, many_starts):
    state = many_starts[1]
    storage_cells = sorted(set(range(48)) - {3, 44})
    assert all(len(set(cells)) == env.num_agents for cells in state.cell.tolist())
    for values, choices in (
        (state.cell, range(48)),
        (state.cell[:, -1], range(48)),
        (state.storage, storage_cells),
        (state.port, [3, 44]),
        # The two draws of a job, and a shuttle's and the next one's, are independent.
        (state.storage * 48 + state.port, [48 * c + p for c in storage_cells for p in (3, 44)]),
        (state.port[:, 0] * 48 + state.port[:, 1], [147, 188, 2115, 2156]),
    ):
        found, counts = np.unique(values, return_counts=True)
        assert found.tolist() == list(choices)
        expected = values.size / len(found)
        freedom = len(found) - 1
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert chi2 < freedom + 4.5 * np.sqrt(2 * freedom) + 4
    has_row_exit = np.ones((6, 8), bool)
    has_row_exit[0::2, 7] = has_row_exit[1::2, 0] = False
    axis = np.where(has_row_exit.reshape(-1)[state.cell], 0, 1)
    np.testing.assert_array_equal(state.axis, axis)


def test_params_set_the_length_of_the_shift(env, start, step):
    params = env.default_params.replace(max_steps=2)
    actions = [HOLD] * 6
    _, state, _, terminated, truncated, _ = step(start, actions, params)
    assert not terminated.any()
    obs, state, _, terminated, truncated, _ = step(state, actions, params)
    assert terminated.all()
    assert not truncated.any()
    assert not obs.alive.any()
    assert not obs.agent_mask.any()
    assert env.horizon(params) == 2


@pytest.mark.parametrize("raw_key", [False, True])
@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_shuttles": 2, "num_rows": 4, "num_cols": 4, "ports": ((0, 0),)},
        {"num_shuttles": 1, "num_rows": 2, "num_cols": 2, "ports": ((1, 1),)},
        {"num_shuttles": 12, "num_rows": 4, "num_cols": 10, "ports": ((2, 2), (0, 9), (3, 0))},
    ],
)
def test_other_sizes(kwargs, raw_key):
    env, params = jaxmarl_envs.make("shuttle_grid", max_steps=30, **kwargs)
    key = jax.random.PRNGKey(0) if raw_key else jax.random.key(0)
    obs, state = jax.eval_shape(env.reset, key, params)
    num = kwargs["num_shuttles"]
    assert obs.features.shape == (num, 66 + 10 * (num - 1))
    assert env.observation_space("shuttle_0", params).shape == obs.features.shape[1:]

    def aval(x):
        return x.shape, x.dtype, x.weak_type

    stepped = jax.eval_shape(env.step, key, state, jnp.zeros(num, jnp.int32), params)
    assert jax.tree.map(aval, stepped[:2]) == jax.tree.map(aval, (obs, state))


def test_precedence_is_strict_however_many_shuttles_there_are():
    env = ShuttleGrid(num_shuttles=32, num_rows=6, num_cols=8)
    _, state = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    for time in range(0, 64, 7):
        wait = jnp.arange(32) % 5
        state = replace(state, time=jnp.int32(time), wait=wait, loaded=jnp.arange(32) % 3 == 0)
        priority = np.asarray(env._priority(state))
        assert len(set(priority.tolist())) == 32
        ranks = sorted(range(32), key=lambda i: (i % 3 == 0, i % 5, (i + time) % 32))
        assert np.argsort(priority).tolist() == ranks


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_shuttles": 0}, "num_shuttles=0.*from 1 to 48"),
        ({"num_shuttles": 49}, "num_shuttles=49"),
        ({"num_shuttles": 2.0}, "num_shuttles=2.0"),
        ({"num_rows": 5}, "num_rows=5.*even"),
        ({"num_cols": 0}, "num_cols=0"),
        ({"num_rows": 64, "num_cols": 64}, "4096.*1024"),
        ({"ports": ()}, "at least one port"),
        ({"ports": ((6, 0),)}, r"\(6, 0\).*0 to 5"),
        ({"ports": ((0, 0), (0, 0))}, "twice"),
        ({"ports": ((0, 1, 2),)}, "pair"),
        ({"ports": ((0, 0), (0, 1), (1, 0), (1, 1)), "num_rows": 2, "num_cols": 2}, "other cell"),
        ({"reward": "both"}, "reward='both'.*'team', 'own', 'progress'"),
        ({"full_view": 1}, "full_view=1: valid choices are True and False"),
        ({"half_turn": "yes"}, "half_turn='yes': valid choices are True and False"),
        ({"ports": ((0, 3), (5, 3)), "half_turn": True}, r"half_turn=True.*\(5, 3\)"),
        ({"move_empty": 0}, "move_empty=0"),
        ({"move_loaded": 1.5}, "move_loaded=1.5"),
        ({"turn": -1}, "turn=-1"),
        ({"handling": 0}, "handling=0"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"max_steps": True}, "max_steps=True"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ShuttleGrid(**kwargs)
