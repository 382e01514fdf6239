"""Lives of every kind: tables by hand, and joining and leaving against a separate simulation."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit
from toy_play import assert_uniform, compiled, naming, play, table

from jaxmarl_envs import Box, Discrete, check_env
from jaxmarl_envs.toy import Basic, EarlyDone, FlexAgents, RoundRobin
from jaxmarl_envs.toy.lives import FlexAgentsParams, FlexAgentsState

NUM_ENVS = 64
NUM_TARGETS = 4
right, wrong = naming(NUM_TARGETS), naming(NUM_TARGETS, offset=1)


@pytest.mark.parametrize("env", [Basic(64), RoundRobin(64)], ids=lambda env: env.name)
def test_many_agents_keep_the_contract(env):
    report = check_env(env)
    assert report.num_episodes >= 4
    assert min(report.num_lives.values()) > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Basic(0), "num_agents=0"),
        (lambda: RoundRobin(-1), "num_agents=-1"),
        (lambda: RoundRobin(2, num_decisions=0), "num_decisions=0"),
        (lambda: FlexAgents(0), "num_slots=0"),
    ],
)
def test_sizes_below_one_are_refused(make, message):
    with pytest.raises(ValueError, match=f"{message}: must be at least 1"):
        make()


# ---- Everybody at once ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def basic():
    return Basic(num_agents=3)


def test_everybody_acts_on_all_steps_and_is_paid_for_its_own_target(basic):
    played = play(basic, right, NUM_ENVS)
    assert played.reward.shape == (25, NUM_ENVS, 3)
    np.testing.assert_array_equal(played.reward, 1)
    for lives in (played.alive, played.acts):
        assert lives[:25].all()
        assert not lives[25].any()
    assert played.terminated[24].all()
    assert not played.terminated[:24].any()
    assert not played.truncated.any()
    left = np.broadcast_to((25 - np.arange(26)[:, None, None]) / 25, (26, NUM_ENVS, 3))
    np.testing.assert_allclose(played.features[..., 4], left, rtol=1e-6)
    assert not play(basic, wrong, NUM_ENVS).reward.any()
    # Agent 1 alone is right.
    one = play(
        basic,
        lambda features, time_step: right(features, time_step) + np.array([1, 0, 2]),
        NUM_ENVS,
    )
    np.testing.assert_array_equal(one.reward, np.broadcast_to([0, 1, 0], one.reward.shape))


def test_targets_are_uniform_and_independent(basic):
    features = play(basic, wrong, NUM_ENVS).features
    np.testing.assert_array_equal(features[..., :4].sum(-1), 1)
    target = features[..., :4].argmax(-1)  # [T + 1, E, A]
    assert_uniform(target, 4)
    assert_uniform(4 * target[..., 0] + target[..., 1], 16)  # slots
    assert_uniform(4 * target[:, :, 1] + target[:, :, 2], 16)
    assert_uniform(4 * target[::2][:13] + target[1::2], 16)  # steps
    assert_uniform(4 * target[:, ::2] + target[:, 1::2], 16)  # environments


def test_the_number_of_steps_is_a_leaf_that_needs_no_second_compilation(basic):
    play(basic, right, NUM_ENVS)
    compilations = compiled(basic)[1]._cache_size()
    for max_steps in (1, 4):
        params = basic.default_params.replace(max_steps=max_steps)
        played = play(basic, right, NUM_ENVS, params)
        np.testing.assert_array_equal(played.reward.sum(0), max_steps)
        assert played.terminated[-1].all()
        np.testing.assert_allclose(played.features[1, ..., 4], 1 - 1 / max_steps, rtol=1e-6)
    assert compiled(basic)[1]._cache_size() == compilations


@pytest.mark.parametrize("env", [Basic(), EarlyDone(), RoundRobin(), FlexAgents()])
def test_spaces_are_those_declared(env):
    params, extra = env.default_params, isinstance(env, FlexAgents)
    for agent in env.agents:
        assert env.observation_space(agent, params) == Box(0.0, 1.0, (5 + extra,))
    assert env.action_spaces(params) == dict.fromkeys(env.agents, Discrete(4))
    assert env.horizon(params) == {"basic": 25, "early_done": 8, "round_robin": 20}.get(env.name)
    turns = env.name in ("early_done", "round_robin")
    assert env.max_actors == (1 if turns else env.num_agents)


# ---- One at a time -------------------------------------------------------------------------------


def assert_turns(played, acts, alive, left):
    """One table for all environments: `acts` and `alive` after each step, decisions `left`."""
    num_steps = len(acts) - 1
    assert played.reward.shape == (num_steps, NUM_ENVS, acts.shape[1])
    for values, expected in (
        (played.acts, acts),
        (played.alive, alive),
        (played.reward, acts[:-1]),
        (played.terminated, alive[:-1] - alive[1:]),
        (played.truncated, np.zeros_like(acts[:-1])),
    ):
        np.testing.assert_array_equal(values, np.broadcast_to(expected[:, None], values.shape))
    shares = np.broadcast_to((left / left[0])[:, None], played.features.shape[:-1])
    np.testing.assert_allclose(played.features[..., 4], shares, rtol=1e-6)


def test_early_done_by_hand():
    played = play(EarlyDone(), right, NUM_ENVS)
    acts = table("10 01 10 01 10 01 01 01 00")
    alive = table("11 11 11 11 11 01 01 01 00")
    left = table("35 25 24 14 13 03 02 01 00")
    assert_turns(played, acts, alive, left)
    np.testing.assert_array_equal(played.reward.sum(0), np.broadcast_to([3, 5], (NUM_ENVS, 2)))


@pytest.mark.parametrize("num_agents", [2, 3, 4])
def test_round_robin_takes_five_steps_for_each_agent(num_agents):
    env = RoundRobin(num_agents)
    assert env.horizon(env.default_params) == 5 * num_agents
    time_step, slot = np.arange(5 * num_agents + 1)[:, None], np.arange(num_agents)
    acts = (time_step % num_agents == slot) & (time_step < 5 * num_agents)
    left = np.maximum(5 - (time_step + num_agents - 1 - slot) // num_agents, 0)
    alive = time_step <= 4 * num_agents + slot
    if num_agents == 2:
        by_hand = table("55 45 44 34 33 23 22 12 11 01 00")
        np.testing.assert_array_equal(left, by_hand)
    assert_turns(play(env, right, NUM_ENVS), acts.astype(int), alive.astype(int), left)
    assert not play(env, wrong, NUM_ENVS).reward.any()


def test_what_is_seen_while_waiting_is_not_what_is_asked_for():
    env, seen = RoundRobin(2), []

    def late(features, time_step):
        seen.append(right(features, time_step))
        return seen[max(time_step - 1, 0)]

    reward = play(env, late, 8 * NUM_ENVS).reward[1:].sum(-1)
    hits = reward.mean()
    assert abs(hits - 1 / 4) < 5 * np.sqrt(3 / 16 / reward.size)


def test_round_robin_can_have_other_numbers_of_decisions():
    env = RoundRobin(2, num_decisions=1)
    played = play(env, right, NUM_ENVS)
    assert_turns(played, table("10 01 00"), table("11 01 00"), table("11 01 00"))


# ---- Joining and leaving -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_flex():
    """Random play of three slots, 28 steps of 512 episodes that are not reset.

    `run_flex(**params)` gives NumPy arrays `[T, E, ...]`, with the states before and after steps.
    """
    env, num_envs = FlexAgents(num_slots=3), 512

    def time_step(state, key, params):
        key_action, key_step = jax.random.split(key)
        action = jax.random.randint(key_action, (num_envs, 3), 0, NUM_TARGETS)
        keys = jax.random.split(key_step, num_envs)
        step = jax.vmap(env.step_env, (0, 0, 0, None))
        obs, after, *rest = step(keys, state, action, params)
        return after, (state, action, obs, after, *rest)

    @quick_jit
    def run(params):
        key_reset, key_run = jax.random.split(jax.random.key(1))
        reset = jax.vmap(env.reset_env, (0, None))
        _, state = reset(jax.random.split(key_reset, num_envs), params)
        keys = jax.random.split(key_run, 28)
        return jax.lax.scan(lambda state, key: time_step(state, key, params), state, keys)[1]

    names = ("before", "action", "obs", "after", "reward", "terminated", "truncated", "info")

    def run_with(**params):
        values = jax.tree.map(np.asarray, run(env.default_params.replace(**params)))
        return SimpleNamespace(**dict(zip(names, values, strict=True)))

    return run_with


# Short lives and many who join: everything that can happen, happens.
CROWDED = {"max_age": 4, "p_join": 0.6, "p_leave": 0.3}


@pytest.fixture(scope="module")
def crowd(run_flex):
    return run_flex(**CROWDED)


def going_on(run):
    """Steps of episodes that are not over, `[T, E]`."""
    lives = run.before.alive.any(-1)
    return np.logical_and.accumulate(lives, axis=0)


def test_joining_by_hand(run_flex):
    # Everyone lives for 4 steps, nobody leaves before, and one joins wherever there is room.
    run = run_flex(max_age=4, p_join=1.0, p_leave=0.0)
    ages = table("000 100 210 321 032 103 210 321 032")  # before each step; 0 where nobody is
    alive = table("100 110 111 111 111 111 111 111 111")
    ends = table("000 000 000 100 010 001 000 100 010")  # at the step at which it is replaced
    for values, expected in (
        (run.before.age, ages),
        (run.before.alive, alive),
        (run.terminated, ends),
    ):
        first = values[: len(expected)]
        np.testing.assert_array_equal(first, np.broadcast_to(expected[:, None], first.shape))
    # The agent that has ended has no time left, its successor in the slot has all of it.
    np.testing.assert_array_equal(run.obs.features[..., 4][run.terminated], 1)
    own = run.info["final_observation"].features
    np.testing.assert_array_equal(own[..., 4][run.terminated], 0)


def test_leaving_by_hand(run_flex):
    # With certainty one joins whoever is alone, and of two one leaves and is replaced.
    run = run_flex(max_age=100, p_join=1.0, p_leave=1.0)
    assert (run.before.alive == [True, False, False])[0].all()
    assert (run.before.alive[1:] == [True, True, False]).all()
    assert not run.terminated[0].any()
    np.testing.assert_array_equal(run.terminated[1:].sum(-1), 1)
    assert_uniform(run.terminated[1:].argmax(-1), 2)
    np.testing.assert_array_equal(run.after.age[1:][run.terminated[1:]], 0)


def test_one_agent_alone_lives_for_25_steps(run_flex):
    run = run_flex(p_join=0.0)
    alone = np.zeros_like(run.before.alive)
    alone[:25, :, 0] = True
    np.testing.assert_array_equal(run.before.alive, alone)
    ends = np.zeros_like(alone)
    ends[24, :, 0] = True
    np.testing.assert_array_equal(run.terminated, ends)
    assert not run.truncated.any()


def test_each_step_of_a_crowd_follows_the_rules(crowd):
    run, playing = crowd, going_on(crowd)
    before, after, age = run.before.alive, run.after.alive, run.before.age
    np.testing.assert_array_equal(run.obs.alive, after)
    np.testing.assert_array_equal(run.obs.agent_mask, after)
    np.testing.assert_array_equal(run.reward, before & (run.action == run.before.target))
    assert not run.truncated.any()
    died = before & (age == 3)
    staying = before & ~died
    left = run.terminated & ~died
    assert not (died & ~run.terminated).any()
    assert not (left & ~staying).any()
    several = staying.sum(-1) > 1
    assert (left.sum(-1) <= several).all()
    remaining = staying & ~left
    joined = after & ~remaining
    np.testing.assert_array_equal(after, remaining | joined)
    free = ~remaining.all(-1)
    assert (joined.sum(-1) <= free).all()
    lowest = np.arange(3) == remaining.argmin(-1)[..., None]
    assert not (joined & ~lowest).any()
    np.testing.assert_array_equal(run.after.age, np.where(remaining, age + 1, 0))
    # Where it can happen, it does so with the chances of the parameters.
    assert_share(left.any(-1)[playing & several], 0.3)
    assert_share(joined.any(-1)[playing & free], 0.6)
    rank = staying.cumsum(-1) - 1
    for count in (2, 3):
        steps = playing & left.any(-1) & (staying.sum(-1) == count)
        assert_uniform(rank[steps][left[steps]], count)
    # Who leaves and whether somebody joins are independent; two of three leave room for a third.
    two = playing & (staying.sum(-1) == 2)
    for joins in (two & joined.any(-1), two & ~joined.any(-1)):
        assert_share(left.any(-1)[joins], 0.3)
        assert_uniform(rank[joins][left[joins]], 2)
    # All the rare events are there.
    assert (playing & joined.any(-1) & (before.sum(-1) == 1) & died.any(-1)).any(), "none saved"
    assert (playing & ~after.any(-1)).any(), "no episode is over"
    assert (playing[..., None] & joined & run.terminated).any(), "none is reborn at once"


def assert_share(happened, probability):
    error = np.sqrt(probability * (1 - probability) / happened.size)
    assert abs(happened.mean() - probability) < 5 * error


def test_observations_of_a_crowd_are_its_agents_own(crowd):
    run = crowd
    alive, age = run.after.alive, run.after.age
    target = np.eye(4)[run.after.target]
    taken = np.broadcast_to(alive.mean(-1, keepdims=True), alive.shape)
    own = np.concatenate([target, 1 - age[..., None] / 4, taken[..., None]], axis=-1)
    expected = np.where(alive[..., None], own, 0)
    np.testing.assert_allclose(run.obs.features, expected, rtol=1e-6)
    final = run.info["final_observation"]
    aged = (1 - (run.before.age + 1) / 4)[run.terminated]
    np.testing.assert_allclose(final.features[run.terminated][:, 4], aged, rtol=1e-6)
    np.testing.assert_array_equal(final.features[run.terminated][:, :4].sum(-1), 1)
    np.testing.assert_array_equal(
        final.features[~run.terminated], run.obs.features[~run.terminated]
    )
    assert_uniform(run.after.target, 4)


NUM_EPISODES = 2048
WATCHED = (5, 20, 60, 150)  # steps after which the living are counted
CHUNK = 100


def simulate(rng):
    """One episode by the rules, with a list of ages: length, lives, steps lived, the living."""
    ages, length, lives, lived, watched = [0], 0, 1, 0, dict.fromkeys(WATCHED, 0)
    while ages:
        length += 1
        lived += len(ages)
        ages = [age + 1 for age in ages if age + 1 < 25]
        if len(ages) > 1 and rng.random() < 0.75:
            ages.pop(int(rng.random() * len(ages)))
        if len(ages) < 8 and rng.random() < 0.25:
            ages.append(0)
            lives += 1
        if length in watched:
            watched[length] = len(ages)
    return length, lives, lived, *watched.values()


@pytest.fixture(scope="module")
def simulated():
    rng = np.random.default_rng(0)
    return np.array([simulate(rng) for _ in range(NUM_EPISODES)])


@pytest.fixture(scope="module")
def measured():
    """The same numbers of episodes of the environment, each from one reset to its end."""
    env = FlexAgents()
    params = env.default_params

    def time_step(carry, key):
        state, playing = carry
        keys = jax.random.split(key, NUM_EPISODES)
        action = jnp.zeros((NUM_EPISODES, 8), jnp.int32)
        obs, after, _, terminated, *_ = jax.vmap(env.step_env, (0, 0, 0, None))(
            keys, state, action, params
        )
        ended = (terminated & playing[:, None]).sum(-1)
        lived = (state.alive & playing[:, None]).sum(-1)
        still = playing & obs.alive.any(-1)
        return (after, still), (playing, ended, lived, (obs.alive & still[:, None]).sum(-1))

    @jax.jit
    def begin(key):
        _, state = jax.vmap(env.reset_env, (0, None))(jax.random.split(key, NUM_EPISODES), params)
        return state, jnp.ones(NUM_EPISODES, bool)

    scan = jax.jit(lambda carry, key: jax.lax.scan(time_step, carry, jax.random.split(key, CHUNK)))
    key_reset, key_run = jax.random.split(jax.random.key(0))
    carry, chunks = begin(key_reset), []
    while carry[1].any():
        carry, chunk = scan(carry, jax.random.fold_in(key_run, len(chunks)))
        chunks.append(jax.tree.map(np.asarray, chunk))
    playing, ended, lived, living = (np.concatenate(x) for x in zip(*chunks, strict=True))
    # All who have lived have ended.
    totals = [x.sum(0) for x in (playing, ended, lived)]
    return np.column_stack([*totals, *(living[time_step - 1] for time_step in WATCHED)])


@pytest.mark.rare_cases("length", "lives", "steps_lived")
@pytest.mark.parametrize("column", [0, 1, 2], ids=["length", "lives", "steps_lived"])
def test_flex_agents_agree_with_a_separate_simulation(measured, simulated, column):
    ours, theirs = measured[:, column], simulated[:, column]
    assert len(ours) == len(theirs) >= 2000
    error = np.sqrt((ours.var() + theirs.var()) / NUM_EPISODES)
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    # Kolmogorov and Smirnov, at a level of 0.001.
    grid = np.union1d(ours, theirs)
    shares = [np.searchsorted(np.sort(x), grid, "right") / NUM_EPISODES for x in (ours, theirs)]
    assert np.abs(shares[0] - shares[1]).max() < 1.95 * np.sqrt(2 / NUM_EPISODES)
    documented = (297, 75, 407)[column]
    assert abs(ours.mean() - documented) < 4 * ours.std() / np.sqrt(NUM_EPISODES)


@pytest.mark.rare
@pytest.mark.parametrize("time_step", WATCHED)
def test_the_numbers_alive_are_distributed_as_in_a_separate_simulation(
    measured, simulated, time_step
):
    column = 3 + WATCHED.index(time_step)
    counts = [np.bincount(np.minimum(x[:, column], 3), minlength=4) for x in (measured, simulated)]
    total = counts[0] + counts[1]
    used = total > 0
    chi_square = ((counts[0] - counts[1]) ** 2 / np.maximum(total, 1)).sum()
    # 0.999 quantiles of chi-square with 2 and 3 degrees of freedom.
    assert chi_square < {3: 13.82, 4: 16.27}[used.sum()]


def test_an_episode_starts_with_one_agent_in_the_first_of_eight_slots():
    env = FlexAgents()
    assert env.default_params == FlexAgentsParams(max_age=25, p_join=0.25, p_leave=0.75)
    assert env.num_agents == 8
    obs, state = quick_jit(env.reset_env)(jax.random.key(0), env.default_params)
    first = np.arange(8) == 0
    np.testing.assert_array_equal(obs.alive, first)
    np.testing.assert_array_equal(obs.agent_mask, first)
    assert isinstance(state, FlexAgentsState)
    assert not np.asarray(state.age).any()
    np.testing.assert_array_equal(obs.features[0, 4:], [1, 1 / 8])
    assert not np.asarray(obs.features[1:]).any()
