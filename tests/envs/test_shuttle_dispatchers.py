"""The scripted dispatchers of `shuttle_grid` and the figures that they are known by."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shuttle_oracle import mixed, put, trace

from jaxmarl_envs.shuttle_grid import (
    LEAVE_BY_COLUMN,
    LEAVE_BY_ROW,
    ShuttleGrid,
    evaluate_dispatcher,
    make_planner,
)
from jaxmarl_envs.shuttle_grid.dispatchers import (
    BLOCKED_PENALTY,
    blocked_penalty,
    greedy,
    other_exit,
)
from jaxmarl_envs.shuttle_grid.routes import NO_EXIT
from jaxmarl_envs.shuttle_grid.tuned import ENTERS, HANDLES, LEAVES, WAITS, Costs, choose, ways


@pytest.fixture(scope="module")
def env():
    return ShuttleGrid()


def test_dispatchers_by_hand(env):
    _, start = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    observe = jax.jit(env._observe)
    # Shuttle 0 at (2, 2), axis row, wants (2, 4): by row 2 + 2 + 4 = 8, by column a long way round.
    # Shuttle 1 stands on (2, 3), in its way, and wants (4, 0).
    cells = [(2, 2), (2, 3), (4, 0), (4, 2), (4, 4), (4, 6)]
    storage = [20, 32, 46, 46, 46, 46]
    state = put(env, start, cells, storage=storage)
    assert int(state.exit_times[0, 0]) == 8
    assert int(state.exit_times[0, 1]) > 8 + 12
    key, params = jax.random.key(0), env.default_params
    obs = observe(state, params)
    assert int(greedy(state, obs, params, key)[0]) == LEAVE_BY_ROW
    assert int(blocked_penalty(state, obs, params, key)[0]) == LEAVE_BY_ROW
    for wait, expected in ((7, LEAVE_BY_ROW), (8, LEAVE_BY_COLUMN)):
        waiting = replace(state, wait=state.wait + wait)
        assert int(other_exit(waiting, obs, params, key)[0]) == expected
    free = put(env, start, [(2, 2), (5, 3), *cells[2:]], storage=storage, wait=[8] * 6)
    assert int(other_exit(free, observe(free, params), params, key)[0]) == LEAVE_BY_ROW
    # With 12 steps less between the exits the penalty decides.
    close = replace(state, exit_times=state.exit_times.at[0, 1].set(19))
    assert int(blocked_penalty(close, obs, params, key)[0]) == LEAVE_BY_COLUMN
    tied = replace(state, exit_times=state.exit_times.at[0, 1].set(20))
    assert int(blocked_penalty(tied, obs, params, key)[0]) == LEAVE_BY_ROW


def test_ways_of_plain_costs_are_the_shortest(env):
    path = env.guidepath
    table = np.asarray(ways(Costs.plain(path, 0.0), path))
    for loaded, move in enumerate((path.timings.move_empty, path.timings.move_loaded)):
        for axis in (0, 1):
            exits = path.exits[:, axis]
            expected = move + path.travel_times[loaded][exits, axis]
            there = exits != NO_EXIT
            np.testing.assert_array_equal(table[loaded, there, axis], expected[there])
            assert (table[loaded, ~there, axis] > 1e6).all()


def test_plain_costs_choose_as_a_plain_penalty_does(env):
    params, path = env.default_params, env.guidepath
    costs = Costs.plain(path, BLOCKED_PENALTY)
    table = ways(costs, path)
    first, happened = trace(env, mixed, jax.random.key(6), 256)
    states = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first[1], happened[2])
    observations = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first[0], happened[1])
    mine = jax.vmap(lambda state: choose(costs, table, state, path))(states)
    key = jax.random.key(0)
    others = jax.vmap(lambda s, o: blocked_penalty(s, o, params, key))(states, observations)
    idle = np.asarray(states.busy == 0)
    assert idle.sum() > 300
    np.testing.assert_array_equal(np.asarray(mine)[idle], np.asarray(others)[idle])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (WAITS, {}),
        (HANDLES, {"busy": 3}),
        (LEAVES, {"reserved": 2 * 8 + 4, "busy": 2}),
        (ENTERS, {"cell": 1 * 8 + 3, "reserved": 2 * 8 + 3, "axis": 1, "busy": 2}),
    ],
)
def test_penalties_go_by_what_the_holder_does(env, kind, fields):
    path = env.guidepath
    _, start = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    # Shuttle 0 at (2, 2) has moved along the row and wants (2, 4): 6 steps by the row.
    cells = [(2, 2), (2, 3), (4, 0), (4, 2), (4, 4), (4, 6)]
    state = put(env, start, cells, storage=[20, 32, 46, 46, 46, 46])
    state = replace(state, **{k: getattr(state, k).at[1].set(v) for k, v in fields.items()})
    across, busy = fields.get("axis", 0), fields.get("busy", 0)
    plain = Costs.plain(path, 0.0)
    table = ways(plain, path)
    gap = float(table[0, 18, 1, 20]) + path.timings.turn - float(table[0, 18, 0, 20])
    for penalty, expected in ((gap - 0.5, LEAVE_BY_ROW), (gap + 0.5, LEAVE_BY_COLUMN)):
        held = plain.replace(held=plain.held.at[0, kind, across, 0].set(penalty))
        assert int(choose(held, table, state, path)[0]) == expected
        if busy:
            slope = plain.per_step.at[0, kind, across].set(penalty / busy)
            assert int(choose(plain.replace(per_step=slope), table, state, path)[0]) == expected
    # Of everybody else nothing counts.
    others = plain.replace(held=(plain.held + 99.0).at[0, kind, across, 0].set(0.0))
    assert int(choose(others, table, state, path)[0]) == LEAVE_BY_ROW


def test_dear_cells_are_gone_round(env):
    path = env.guidepath
    _, start = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    cells = [(2, 0), (5, 7), (4, 0), (4, 2), (4, 4), (4, 6)]
    state = put(env, start, cells, storage=[20, 27, 46, 46, 46, 46], axis=[0, 1, 0, 0, 0, 0])
    plain = Costs.plain(path, 0.0)
    # Leaving (2, 3) by the row costs 50, and so, turned round, leaving (3, 4) by its row.
    dear = plain.replace(edge=plain.edge.at[0, 2 * 8 + 3, 0].set(50.0))
    near, far = ways(plain, path), ways(dear, path)
    assert float(far[0, 2 * 8 + 3, 0, 20] - near[0, 2 * 8 + 3, 0, 20]) == 50.0
    assert float(far[0, 3 * 8 + 4, 0, 27] - near[0, 3 * 8 + 4, 0, 27]) == 50.0
    np.testing.assert_array_equal(far[1], near[1])
    assert int(choose(plain, near, state, path)[0]) == LEAVE_BY_ROW
    assert float(far[0, 16, 0, 20]) < float(near[0, 16, 0, 20]) + 50.0  # round, not through


def test_tuned_costs_are_of_six_shuttles_in_the_default_hall(env):
    assert "tuned" in env.baselines
    assert env.reference == "tuned"
    changes = ({"num_cols": 10}, {"num_shuttles": 5}, {"turn": 3}, {"ports": ((0, 3), (5, 3))})
    for kwargs in changes:
        other = ShuttleGrid(**kwargs)
        assert "tuned" not in other.baselines
        assert other.reference == "blocked_penalty"


def test_a_planner_breaks_the_deadlock_of_its_dispatcher():
    env = ShuttleGrid(num_shuttles=4, num_rows=4, num_cols=4, ports=((0, 3), (3, 0)))
    params = env.default_params
    _, start = jax.jit(env.reset_env)(jax.random.key(0), params)
    # Round the block (1, 1), (1, 0) ... each wants the cell that the next one stands on.
    ring = put(env, start, [(0, 0), (0, 1), (1, 1), (1, 0)], storage=[1, 5, 4, 0])
    planner = make_planner(env, greedy, horizon=24)

    def moved_by(dispatcher):
        @jax.jit
        def run(state):
            def step(carry, key):
                obs, state = carry
                action = dispatcher(state, obs, params, key)
                obs, state, *_ = env.step_env(key, state, action, params)
                return (obs, state), None

            keys = jax.random.split(jax.random.key(1), 12)
            return jax.lax.scan(step, (env._observe(state, params), state), keys)[0][1]

        return int((run(ring).cell != ring.cell).sum())

    assert moved_by(greedy) == 0
    assert moved_by(planner) > 0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"horizon": 0}, "horizon=0: must be an integer of at least 1"),
        ({"horizon": 2.5}, "horizon=2.5: must be an integer of at least 1"),
        ({"num_departures": 0}, "num_departures=0: must be an integer of at least 1"),
        ({"num_futures": 1}, "num_futures=1: must be an integer of at least 2"),
        ({"bound": -1.0}, "bound=-1.0: must be a number of at least 0"),
    ],
)
def test_planners_that_cannot_plan(env, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_planner(env, greedy, **kwargs)


def test_evaluation_on_another_size():
    env = ShuttleGrid(num_shuttles=2, num_rows=4, num_cols=4, ports=((0, 0),), max_steps=100)
    deliveries = evaluate_dispatcher(env, env.default_params, blocked_penalty, jax.random.key(0), 8)
    assert deliveries.shape == (8,)
    assert (deliveries > 0).all()
    with pytest.raises(ValueError, match="num_episodes=0"):
        evaluate_dispatcher(env, env.default_params, blocked_penalty, jax.random.key(0), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dispatcher", "expected", "tolerance"),
    # Four standard errors of 2,048 shifts, and of the figure where it is a measured one.
    [
        ("hold", 0.0, 0.0),
        ("uniform", 1.8, 0.05 + 4 * 0.027),
        ("greedy", 19.5, 4 * (0.2**2 + 0.17**2) ** 0.5),
        ("other_exit", 23.8, 4 * (0.05**2 + 0.04**2) ** 0.5),
        ("blocked_penalty", 24.2, 4 * (0.08**2 + 0.04**2) ** 0.5),
        ("tuned", 24.7, 4 * (0.02**2 + 0.04**2) ** 0.5),
    ],
)
def test_deliveries_of_each_dispatcher(env, dispatcher, expected, tolerance):
    deliveries = evaluate_dispatcher(
        env, env.default_params, env.baselines[dispatcher], jax.random.key(21), 2048
    )
    assert abs(float(deliveries.mean()) - expected) <= tolerance


def test_deliveries_without_contention():
    env = ShuttleGrid(num_shuttles=1)
    deliveries = 6 * evaluate_dispatcher(env, env.default_params, greedy, jax.random.key(22), 2048)
    assert abs(float(deliveries.mean()) - 30.3) < 0.05 + 4 * 0.08


@pytest.mark.slow
def test_how_often_they_act_and_end_deadlocked(env):
    @jax.jit
    @jax.vmap
    def shift(key):
        _, (_, obs, state, *_) = trace(env, greedy, key, 256)
        return state.wait[-1], obs.agent_mask.mean()

    wait, acting = jax.device_get(shift(jax.random.split(jax.random.key(23), 1024)))
    deadlocked = (wait >= 50).all(axis=1).mean()  # nobody has moved for 50 steps
    assert abs(deadlocked - 0.235) < 4 * (0.235 * 0.765 / 1024 + 0.235 * 0.765 / 1500) ** 0.5
    assert 0.3 < acting.mean() < 0.52
