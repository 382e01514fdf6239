"""Crypto against MPE2's own `simple_crypto_v3`, and against policies whose value is known."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_envs import Box, Discrete, make
from jaxmarl_envs.crypto import ALICE, BOB, EVE, Crypto, CryptoState

NUM_EPISODES = 128
NUM_STEPS = 25
WIDTHS = {"eve_0": 4, "bob_0": 8, "alice_0": 8}


@pytest.fixture(scope="module")
def mpe2_env():
    """MPE2's environments, `[discrete, continuous]`."""
    module = pytest.importorskip("mpe2.simple_crypto_v3")
    return [module.parallel_env(continuous_actions=continuous) for continuous in (False, True)]


@pytest.fixture(scope="module")
def play():
    """`play[continuous](state, actions [B, T, A, ...])` steps `B` given episodes through."""

    def build(continuous):
        env = Crypto(continuous_actions=continuous)

        def episode(state, actions, params):
            def time_step(state, action):
                obs, state, reward, terminated, truncated, info = env.step_env(
                    jax.random.key(0), state, action, params
                )
                return state, (obs, reward, terminated, truncated, info["metrics"]["accuracy"])

            return jax.lax.scan(time_step, state, actions)[1]

        fn = jax.jit(jax.vmap(episode, in_axes=(0, 0, None)))
        return lambda state, actions: fn(state, jnp.asarray(actions), env.default_params)

    return [build(continuous) for continuous in (False, True)]


@pytest.fixture(scope="module")
def step():
    """One step of the discrete game for `B` episodes."""
    env = Crypto()
    fn = jax.jit(jax.vmap(env.step_env, in_axes=(None, 0, 0, None)))
    return lambda state, action: fn(jax.random.key(0), state, action, env.default_params)


def start(goal, secret):
    """States at the start of episodes with these bits, `[B]` each."""
    one_hot = np.eye(4, dtype=np.float32)
    goal, secret = np.asarray(goal), np.asarray(secret)
    return CryptoState(
        goal=jnp.asarray(one_hot[goal]),
        secret=jnp.asarray(one_hot[secret]),
        message=jnp.zeros((len(goal), 4)),
        time=jnp.zeros(len(goal), jnp.int32),
    )


def by_agent(values):
    """A dict of MPE2 in the order of our slots."""
    return np.array([values[agent] for agent in Crypto.agents])


def padded(observations):
    """A dict of MPE2's observations as `[A, 8]`."""
    rows = [observations[agent] for agent in Crypto.agents]
    return np.array([np.pad(row, (0, 8 - len(row))) for row in rows])


@dataclass
class Reference:
    goal: int
    secret: int
    first: np.ndarray  # [A, 8]
    features: np.ndarray  # [T, A, 8]
    reward: np.ndarray  # [T, A]
    terminated: np.ndarray  # [T, A]
    truncated: np.ndarray  # [T, A]


def play_mpe2(env, seed, actions):
    """One episode of MPE2 with the given actions `[T, A, ...]`."""
    first, _ = env.reset(seed=seed)
    speaker = env.unwrapped.world.agents[2]
    goal, secret = int(speaker.goal_a.color.argmax()), int(speaker.key.argmax())
    steps = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(
            dict(zip(Crypto.agents, action, strict=True))
        )
        steps.append((padded(obs), *map(by_agent, (reward, terminated, truncated))))
    assert env.agents == []
    return Reference(goal, secret, padded(first), *map(np.array, zip(*steps, strict=True)))


def random_actions(continuous, rng):
    """Uniform actions; of the continuous ones a fifth silent and a fifth at the corners."""
    shape = (NUM_EPISODES, NUM_STEPS, 3)
    if not continuous:
        return rng.integers(0, 4, shape)
    values = rng.random((*shape, 4), dtype=np.float32)
    kind = rng.integers(0, 5, (*shape, 1))
    return np.where(kind == 0, 0, np.where(kind == 1, np.round(values), values))


def compare(ours, references):
    obs, reward, terminated, truncated, _ = jax.tree.map(np.asarray, ours)
    for name, value in (
        ("features", obs.features),
        ("terminated", terminated),
        ("truncated", truncated),
    ):
        np.testing.assert_array_equal(value, np.array([getattr(r, name) for r in references]))
    np.testing.assert_allclose(reward, [r.reward for r in references], rtol=1e-5, atol=1e-6)
    assert reward.shape == (len(references), NUM_STEPS, 3)
    np.testing.assert_array_equal(obs.alive, ~truncated)
    np.testing.assert_array_equal(obs.agent_mask, ~truncated)
    assert obs.action_mask.all()


@pytest.mark.rare_cases("True")
@pytest.mark.parametrize("continuous", [False, True])
def test_random_episodes_equal_mpe2_step_for_step(mpe2_env, play, continuous):
    actions = random_actions(continuous, np.random.default_rng(0))
    references = [play_mpe2(mpe2_env[continuous], seed, a) for seed, a in enumerate(actions)]
    bits = [(r.goal, r.secret) for r in references]
    assert len(set(bits)) == 4
    compare(play[continuous](start(*zip(*bits, strict=True)), actions), references)


def test_silence_of_any_subset_of_agents_equals_mpe2(mpe2_env, play):
    subsets = np.array(list(itertools.product([False, True], repeat=3)))
    rng = np.random.default_rng(1)
    actions = 0.1 + 0.9 * rng.random((NUM_EPISODES, NUM_STEPS, 3, 4), dtype=np.float32)
    silent = np.resize(subsets, (NUM_EPISODES, 3))[:, None, :, None]
    actions = np.where(silent, 0, actions).astype(np.float32)
    references = [play_mpe2(mpe2_env[True], seed, a) for seed, a in enumerate(actions)]
    goals = [r.goal for r in references]
    ours = play[True](start(goals, [r.secret for r in references]), actions)
    compare(ours, references)
    # By hand: a silent eve loses nothing, a silent bob costs nothing, alice's words cost nobody.
    reward = np.asarray(ours[1])
    error = ((actions - np.eye(4)[goals][:, None, None]) ** 2).sum(-1)
    error = np.where(silent[..., 0], 0, error)
    np.testing.assert_allclose(reward[..., EVE], -error[..., EVE], rtol=1e-5)
    for agent in (BOB, ALICE):
        good = error[..., EVE] - error[..., BOB]
        np.testing.assert_allclose(reward[..., agent], good, rtol=1e-4, atol=1e-5)


def test_one_element_breaks_the_silence(play):
    actions = np.zeros((1, NUM_STEPS, 3, 4), np.float32)
    actions[..., EVE, 3] = 1e-3
    reward = np.asarray(play[True](start([0], [1]), actions)[1])
    np.testing.assert_allclose(reward, np.broadcast_to([-1, 1, 1], (1, NUM_STEPS, 3)), rtol=1e-5)


def test_first_observations_equal_mpe2(mpe2_env):
    env, params = make("crypto")
    reset = jax.jit(jax.vmap(env.reset_env, in_axes=(0, None)))
    obs, state = reset(jax.random.split(jax.random.key(0), 32), params)
    goal, secret = (np.asarray(x).argmax(-1) for x in (state.goal, state.secret))
    pairs = zip(goal.tolist(), secret.tolist(), strict=True)
    ours = dict(zip(pairs, np.asarray(obs.features), strict=True))
    references = [play_mpe2(mpe2_env[0], seed, np.zeros((25, 3), int)) for seed in range(24)]
    theirs = {(r.goal, r.secret): r.first for r in references}
    assert len(ours) == len(theirs) == 4
    for pair, features in theirs.items():
        np.testing.assert_array_equal(ours[pair], features)
    assert np.asarray(obs.alive).all()
    assert np.asarray(obs.agent_mask).all()


def test_goal_and_key_are_independent_fair_coins():
    env, params = make("crypto")
    num = 4096
    reset = jax.vmap(env.reset_env, in_axes=(0, None))
    _, state = jax.jit(reset)(jax.random.split(jax.random.key(3), num), params)
    pairs = np.asarray(state.goal).argmax(-1) * 2 + np.asarray(state.secret).argmax(-1)
    counts = np.bincount(pairs, minlength=4)
    assert len(counts) == 4
    assert np.abs(counts - num / 4).max() < 5 * np.sqrt(num * 0.25 * 0.75)


# ---- Policies with known returns -----------------------------------------------------------------


def expected_returns(step, policy, blind=2):
    """Mean return and accuracy `[A]` over goal, key and `blind` guesses of eve and of bob: exact.

    `policy(features [B, A, 8], eve [B], bob [B]) -> actions [B, A]`.
    """
    grid = np.array(list(itertools.product(range(2), range(2), range(blind), range(blind))))
    grid = np.resize(grid, (64, 4))
    goal, secret, eve, bob = grid.T
    state = start(goal, secret)
    features = np.zeros((64, 3, 8))
    features[:, ALICE, :4], features[:, ALICE, 4:] = state.goal, state.secret
    features[:, BOB, :4] = state.secret
    total = accuracy = np.zeros(3)
    for _ in range(NUM_STEPS):
        action = jnp.asarray(policy(features, eve, bob), jnp.int32)
        obs, state, reward, _, truncated, info = step(state, action)
        features = np.asarray(obs.features)
        total = total + np.asarray(reward, float).mean(0)
        accuracy = accuracy + np.asarray(info["metrics"]["accuracy"], float).mean(0)
    assert np.asarray(truncated).all()
    return total, accuracy


def heard(words, otherwise):
    """The symbol that was said, or `otherwise` in silence."""
    return np.where(words.any(-1), words.argmax(-1), otherwise)


def encrypted(eve_reads):
    def policy(features, eve, bob):
        cipher = features[:, ALICE, :4].argmax(-1) ^ features[:, ALICE, 4:].argmax(-1)
        answer = heard(features[:, BOB, 4:], bob)
        deciphered = answer ^ features[:, BOB, :4].argmax(-1)
        return np.stack([eve_reads(features[:, EVE, :4], eve), deciphered, cipher], axis=1)

    return policy


def plain(features, eve, bob):
    said = features[:, ALICE, :4].argmax(-1)
    return np.stack([heard(features[:, EVE, :4], eve), heard(features[:, BOB, 4:], bob), said], 1)


def test_xor_gives_minus_25_and_plus_24(step):
    returns, accuracy = expected_returns(step, encrypted(lambda words, coin: coin))
    np.testing.assert_allclose(returns, [-25, 24, 24], atol=1e-4)
    np.testing.assert_allclose(accuracy, [0.5, 1, 0.5], atol=1e-5)


@pytest.mark.parametrize("table", list(itertools.product([0, 1], repeat=2)))
def test_no_reading_of_the_cipher_helps_eve(step, table):
    def read(words, coin):
        return np.where(words.any(-1), np.array(table)[words.argmax(-1) % 2], coin)

    returns, _ = expected_returns(step, encrypted(read))
    np.testing.assert_allclose(returns, [-25, 24, 24], atol=1e-4)


def test_plain_text_gives_minus_1_and_0(step):
    returns, accuracy = expected_returns(step, plain)
    np.testing.assert_allclose(returns, [-1, 0, 0], atol=1e-4)
    np.testing.assert_allclose(accuracy, [1, 1, 1], atol=1e-5)


def test_uniform_symbols_give_minus_37_and_a_half(step):
    def uniform(features, eve, bob):
        return np.stack([eve, bob, np.zeros_like(eve)], axis=1)

    returns, accuracy = expected_returns(step, uniform, blind=4)
    np.testing.assert_allclose(returns, [-37.5, 0, 0], atol=1e-4)
    np.testing.assert_allclose(accuracy[:2], [0.25, 0.25], atol=1e-5)


# ---- The accuracy, the parameters, the spaces ----------------------------------------------------


@pytest.mark.parametrize(
    ("utterance", "right"),
    [
        ([0, 1, 0, 0], True),
        ([1, 0, 0, 0], False),
        ([0.4, 0.5, 0.9, 0.9], True),
        ([0.5, 0.4, 0, 0], False),
        ([0.5, 0.5, 0, 0], False),
        ([0, 0, 1, 0], False),
        ([0, 0, 0, 0], False),
    ],
)
def test_an_utterance_is_read_as_the_nearer_goal(play, utterance, right):
    actions = np.broadcast_to(np.float32(utterance), (1, NUM_STEPS, 3, 4))
    accuracy = np.asarray(play[True](start([1], [0]), actions)[-1])[0]
    np.testing.assert_array_equal(accuracy[0], 0)  # the blind first step
    np.testing.assert_allclose(accuracy[1:], right / (NUM_STEPS - 1), rtol=1e-6)


def test_max_steps_is_a_leaf_that_needs_no_second_compilation():
    env, params = make("crypto")
    fn = jax.jit(env.step_env)
    key = jax.random.key(0)
    _, state = jax.jit(env.reset_env)(key, params)
    action = jnp.zeros(3, jnp.int32)
    for max_steps in (2, 3):
        now = state
        changed = params.replace(max_steps=max_steps)
        assert env.horizon(changed) == max_steps
        for time_step in range(1, max_steps + 1):
            obs, now, _, terminated, truncated, _ = fn(key, now, action, changed)
            np.testing.assert_array_equal(truncated, [time_step == max_steps] * 3)
            np.testing.assert_array_equal(obs.alive, [time_step < max_steps] * 3)
            assert not terminated.any()
    assert fn._cache_size() == 1


def test_spaces_have_each_agents_own_width():
    env, params = make("crypto")
    assert env.agents == ("eve_0", "bob_0", "alice_0")
    assert env.horizon(params) == NUM_STEPS
    assert {agent: env.observation_space(agent, params).size for agent in env.agents} == WIDTHS
    assert env.action_spaces(params) == dict.fromkeys(env.agents, Discrete(4))
    continuous, params = make("crypto", continuous_actions=True)
    assert continuous.action_spaces(params) == dict.fromkeys(env.agents, Box(0.0, 1.0, (4,)))
    for space in (env.observation_space, env.action_space):
        with pytest.raises(ValueError, match=r"unknown agent 'bob'.*eve_0, bob_0, alice_0"):
            space("bob", params)
