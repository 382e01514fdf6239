"""One agent's view, against the environment stepped plainly and gymnasium's own checks."""

import functools
import itertools
import warnings

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hosting_oracle import by_rule, decisions, play
from probe_envs import Duel, LivesParams, RandomLives

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.gymnax import make_multi_agent
from jaxmarl_envs.adapters.outgoing.gymnasium import to_gymnasium, to_gymnasium_vector

SEED = 11


@functools.cache
def made(name):
    """One object of each environment, so that it is compiled once."""
    if name == "crypto, continuous":
        return jaxmarl_envs.make("crypto", continuous_actions=True)
    if name == "random_lives":
        return RandomLives(), LivesParams()
    if name == "duel":
        return Duel(), None
    if name == "CartPole-v1":
        env, params = make_multi_agent(name)
        return env, params.replace(max_steps_in_episode=20)
    return jaxmarl_envs.make(name)


def first_legal(state, obs, params, key):
    return jnp.where(obs.agent_mask, obs.action_mask.argmax(axis=-1), 0)


CASES = [
    ("CartPole-v1", None),
    ("tic_tac_toe", "x"),
    ("tic_tac_toe", "o"),
    ("press_your_luck", "second"),
    ("relay", "b"),
    ("duel", "second"),
    ("random_lives", "b"),
]


@pytest.mark.parametrize(("name", "agent"), CASES)
def test_gymnasium_s_own_checks_pass(name, agent):
    env = to_gymnasium(*made(name), agent=agent, others=first_legal)
    with warnings.catch_warnings():
        # Not made by gymnasium's registry, so it cannot be made once more; and unbounded features.
        warnings.filterwarnings("ignore", ".*not having a spec|.*maximum value is infinity")
        warnings.filterwarnings("ignore", ".*minimum value is -infinity|.*alternative render")
        check_env(env)


@pytest.mark.parametrize(("name", "agent"), CASES)
def test_an_episode_is_the_life_of_the_agent_by_its_own_decisions(name, agent):
    env, params = made(name)
    slot = 0 if agent is None else env.agent_index(agent)
    view = to_gymnasium(env, params, agent=agent, others=first_legal)

    def choose(name, count, mask):
        own = name.split("#")[0] == env.agents[slot]
        return by_rule(name, count, mask) if own else int(mask.argmax())

    observation, info = view.reset(seed=SEED)
    num_played = 0
    for episode in itertools.count():
        expected, before = decisions(env, params, play(env, params, SEED, episode, choose))
        lives = [life for life in expected if life.split("#")[0] == env.agents[slot]]
        if not lives:
            continue  # which the view skips too
        life = lives[0]
        np.testing.assert_allclose(info["reward_before"], before[life], rtol=1e-5, atol=1e-6)
        for count, one in enumerate(expected[life]):
            np.testing.assert_allclose(observation, one.features, rtol=1e-5, atol=1e-6)
            mask = info["action_mask"]
            np.testing.assert_array_equal(view.action_masks(), mask > 0)
            assert by_rule(life, count, mask) == one.action
            observation, reward, terminated, truncated, info = view.step(one.action)
            np.testing.assert_allclose(reward, one.reward, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(observation, one.next_features, rtol=1e-5, atol=1e-6)
            assert (terminated, truncated) == (one.terminated, one.truncated)
        assert terminated or truncated
        num_played += 1
        if num_played == 3:
            return
        observation, info = view.reset()


@pytest.mark.rare_cases("random_lives")
@pytest.mark.parametrize("name", ["random_lives", "CartPole-v1"])
def test_a_vector_is_gymnasium_s_own_vector_of_single_views(name):
    env, params = made(name)
    agent, num_envs = env.agents[-1], 3
    one = functools.partial(to_gymnasium, env, params, agent=agent)
    theirs = SyncVectorEnv([one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = to_gymnasium_vector(env, params, agent=agent, num_envs=num_envs)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    for space in ("observation_space", "action_space"):
        assert getattr(ours, space) == getattr(theirs, space)
        assert getattr(ours, f"single_{space}") == getattr(theirs, f"single_{space}")
    expected, found = theirs.reset(seed=SEED), ours.reset(seed=SEED)
    num_ended, rng = 0, np.random.default_rng(0)
    for _ in range(40):
        assert data_equivalence(found, expected)
        actions = rng.integers(theirs.single_action_space.n, size=num_envs)
        expected, found = theirs.step(actions), ours.step(actions)
        num_ended += (found[2] | found[3]).sum()
    assert num_ended > 3
    expected, found = theirs.reset(), ours.reset()
    assert data_equivalence(found, expected)


def test_continuous_views_play_too_and_random_others_keep_to_their_bounds():
    env, params = made("crypto, continuous")
    ours = to_gymnasium_vector(env, params, agent="bob_0", num_envs=2)
    observations, infos = ours.reset(seed=SEED)
    assert infos.keys() == {"reward_before", "_reward_before"}
    words = []
    for time in range(25):
        observations, _, terminated, truncated, infos = ours.step(np.full((2, 4), 0.25))
        words.append(observations[:, 4:])
        assert not terminated.any()
        assert truncated.all() == (time == 24)
    last = np.stack(infos["final_obs"])[:, 4:]
    words = np.stack([*words[:-1], last])
    assert (words >= 0).all()
    assert (words <= 1).all()
    assert words.std() > 0.2


def test_nobody_beats_minimax_and_random_others_differ_by_seed():
    ours = to_gymnasium_vector(*made("tic_tac_toe"), agent="x", num_envs=32, others="minimax")
    _, infos = ours.reset(seed=SEED)
    rng, results = np.random.default_rng(0), []
    for _ in range(12):
        legal = infos["action_mask"] * rng.random((32, 9))
        _, rewards, terminated, _, infos = ours.step(legal.argmax(axis=1))
        results += list(rewards[terminated])
    assert len(results) > 32
    assert max(results) <= 0
    assert min(results) == -1

    random = to_gymnasium(*made("tic_tac_toe"), agent="o")
    openings = {tuple(random.reset(seed=seed)[0]) for seed in range(30)}
    assert len(openings) > 5  # x begins on one of nine cells
    assert len({tuple(random.reset(seed=1)[0]) for _ in range(3)}) == 1


def test_spaces_are_the_agent_s_own():
    env = to_gymnasium(*made("multi_spaces"), agent="agent_0")
    assert env.observation_space == gymnasium.spaces.Box(-1, 1, (10,))
    assert env.action_space == gymnasium.spaces.Discrete(2)
    _, info = env.reset(seed=0)
    assert info["action_mask"].dtype == np.int8
    assert info["action_mask"].tolist() == [1, 1]


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="'tic_tac_toe': name one agent of x, o"):
        to_gymnasium(*made("tic_tac_toe"))
    with pytest.raises(ValueError, match="unknown agent 'y'"):
        to_gymnasium(*made("tic_tac_toe"), agent="y")
    with pytest.raises(ValueError, match="others='greedy': valid choices: random, minimax"):
        to_gymnasium(*made("tic_tac_toe"), agent="x", others="greedy")
    with pytest.raises(ValueError, match="num_envs=0: must be at least 1"):
        to_gymnasium_vector(*made("CartPole-v1"), num_envs=0)
    env = to_gymnasium(*made("tic_tac_toe"), agent="x", others=first_legal)
    with pytest.raises(ValueError, match="call reset first"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"not of the space Discrete\(9\)"):
        env.step(9)
    with pytest.raises(ValueError, match=r"not of the space Discrete\(9\)"):
        env.step([0, 1])
    for action in (8, 7, 6):  # a row, beside the first free cells
        terminated = env.step(action)[2]
    assert terminated
    with pytest.raises(ValueError, match="call reset first"):
        env.step(0)
