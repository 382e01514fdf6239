"""Agents with actions of every kind through every door out, against stepping them plainly."""

import functools
import warnings
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hosting_oracle import decisions, own_mask, play
from hybrid_envs import CHOICES_ONLY, SPACES, Hybrid, chooser

from jaxmarl_envs import spaces
from jaxmarl_envs.actions import take_apart
from jaxmarl_envs.adapters.outgoing.gymnasium import to_gymnasium, to_gymnasium_vector
from jaxmarl_envs.adapters.outgoing.one_agent import random_script

SEED = 4
NUM_EPISODES = 6


@functools.cache
def made(*agents):
    """One object of each environment, so that it is compiled once."""
    return Hybrid({agent: SPACES[agent] for agent in agents or SPACES})


def played(env, num_episodes=NUM_EPISODES):
    """The steps of the first episodes, of random legal actions."""
    choose = chooser(env.spaces)
    return [play(env, (), SEED, episode, choose) for episode in range(num_episodes)]


def expect_mask(mask, space, legal):
    """The mask is what the space samples by, and allows what is legal and nothing else."""
    if isinstance(space, Tuple):
        assert isinstance(mask, tuple)
        for part, part_mask in zip(space.spaces, mask, strict=True):
            expect_mask(part_mask, part, legal)
    elif isinstance(space, MultiDiscrete):
        assert isinstance(mask, tuple)
        assert [len(options) for options in mask] == space.nvec.tolist()
        for options in mask:
            expect_mask(options, Discrete(len(options)), legal)
    elif isinstance(space, Discrete):
        assert mask.dtype == np.int8
        np.testing.assert_array_equal(mask, next(legal))
    else:
        assert mask is None


def options(env, agent, obs):
    """An iterator over the legal options of each of the agent's choices."""
    slot = env.agent_index(agent)
    legal = own_mask(env.action_layout(()), slot, obs.action_mask[slot])
    return iter([legal] if agent == "picks" else legal)


# ---- PettingZoo ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pettingzoo():
    pytest.importorskip("pettingzoo")
    from jaxmarl_envs.adapters.outgoing import pettingzoo

    return pettingzoo


def test_spaces_have_gymnasium_s_own_forms(pettingzoo):
    door = pettingzoo.to_parallel(made())
    assert door.action_space("picks") == Discrete(4)
    assert door.action_space("moves") == Box(np.array([-1, 0], np.float32), 2, (2,))
    assert door.action_space("both") == Tuple([Discrete(3), Box(-2, 1, (2,))])
    assert door.action_space("pair") == MultiDiscrete([2, 3])
    inner = Tuple([Box(0, 4, (2, 1)), Discrete(5)])
    assert door.action_space("nest") == Tuple([MultiDiscrete([3, 2]), inner])
    seen = Box(-1000, 1000, (3,))
    mask = Tuple([Box(0, 1, (n,), np.int8) for n in (2, 3)])
    assert door.observation_space("moves") == Dict({"observation": seen})
    assert door.observation_space("pair") == Dict({"observation": seen, "action_mask": mask})


@pytest.mark.parametrize("action_masks", ["observation", "info"])
def test_a_parallel_step_is_a_step(pettingzoo, action_masks):
    env = made()
    door = pettingzoo.to_parallel(env, action_masks=action_masks)
    choose = chooser(env.spaces)
    observations, infos = door.reset(seed=SEED)
    for steps in played(env):
        decided = defaultdict(int)
        for time_step in steps:
            actions = {}
            assert door.agents == [name for name in time_step.names if name is not None]
            for agent in door.agents:
                slot = env.agent_index(agent)
                expect_seen(env, door, agent, (observations[agent], infos[agent]), time_step)
                if not time_step.acted[slot]:
                    actions[agent] = door.action_space(agent).sample()  # which is ignored
                    continue
                legal = own_mask(env.action_layout(()), slot, time_step.obs.action_mask[slot])
                actions[agent] = choose(agent, decided[agent], legal)
                decided[agent] += 1
            observations, rewards, terminated, truncated, infos = door.step(actions)
            for agent in rewards:
                slot = env.agent_index(agent)
                assert rewards[agent] == pytest.approx(time_step.reward[slot], rel=1e-6)
                assert terminated[agent] == time_step.terminated[slot]
                assert truncated[agent] == time_step.truncated[slot]
        assert not door.agents
        observations, infos = door.reset()


def expect_seen(env, door, agent, told, time_step):
    """The agent's features and mask; one that waits has one legal option of each choice."""
    observation, info = told
    slot = env.agent_index(agent)
    assert observation in door.observation_space(agent)
    features = observation["observation"] if isinstance(observation, dict) else observation
    np.testing.assert_array_equal(features, time_step.obs.features[slot])
    shown = {**info, **observation} if isinstance(observation, dict) else info
    assert shown["acts"] == time_step.acted[slot]
    assert ("action_mask" in shown) == (agent != "moves")
    if agent == "moves":
        return
    legal = options(env, agent, time_step.obs)
    if not time_step.acted[slot]:
        legal = (np.arange(len(x)) == np.argmax(x) for x in legal)
    expect_mask(shown["action_mask"], door.action_space(agent), legal)
    door.action_space(agent).sample(mask=shown["action_mask"])


@pytest.mark.parametrize("action_masks", ["observation", "info"])
def test_in_turn_every_decision_earns_what_it_does(pettingzoo, action_masks):
    env = made()
    door = pettingzoo.to_aec(env, action_masks=action_masks)
    choose = chooser(env.spaces)
    door.reset(seed=SEED)
    for steps in played(env):
        expected, before = decisions(env, (), steps)
        told = defaultdict(list)
        for agent in door.agent_iter():
            observation, reward, terminated, truncated, info = door.last()
            shown = observation if isinstance(observation, dict) else {**info}
            features = observation["observation"] if "observation" in shown else observation
            told[agent].append((reward, terminated, truncated, features))
            if terminated or truncated:
                door.step(None)
                continue
            if agent == "moves":
                assert "action_mask" not in shown
                legal = []
            else:
                legal = leaves(shown["action_mask"])
                legal = legal[0] if agent == "picks" else legal
            door.step(choose(agent, len(told[agent]) - 1, legal))
        for agent, turns in told.items():
            earned = [before[agent], *(one.reward for one in expected[agent])]
            np.testing.assert_allclose([turn[0] for turn in turns], earned, rtol=1e-4, atol=1e-4)
            for turn, one in zip(turns[1:], expected[agent], strict=True):
                assert turn[1:3] == (one.terminated, one.truncated)
                np.testing.assert_array_equal(turn[3], one.next_features)
        door.reset()


def leaves(mask):
    """The arrays of a mask, in order and without None."""
    return jax.tree.leaves(mask)


@pytest.mark.parametrize("agents", [(), tuple(CHOICES_ONLY), ("moves", "both")])
@pytest.mark.parametrize("action_masks", ["observation", "info", "none"])
def test_pettingzoo_s_own_checks_pass(pettingzoo, agents, action_masks):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The old environment creation API", DeprecationWarning)
        from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
    env = made(*agents)
    # Masks of several choices and dicts are none of PettingZoo's own games'.
    expected = "render|name|NumPy array|should be gymnasium.spaces.box or|all zeros|different obs"
    parallel = functools.partial(pettingzoo.to_parallel, env, action_masks=action_masks)
    in_turn = functools.partial(pettingzoo.to_aec, env, action_masks=action_masks)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*({expected})")
        parallel_api_test(parallel(), num_cycles=60)
        api_test(in_turn(), num_cycles=60)
        parallel_seed_test(parallel, num_cycles=20)
        seed_test(in_turn, num_cycles=20)


def test_actions_of_another_form_are_refused_by_name(pettingzoo):
    door = pettingzoo.to_parallel(made())
    door.reset(seed=SEED)
    good = {agent: door.action_space(agent).sample() for agent in door.agents}
    bad = {
        "picks": (4, -1, [1], (1, 2)),
        "moves": (1, [0.0, 0.0, 0.0]),
        "both": (1, (1,), (3, [0.0, 0.0]), (0, [0.0]), ([0, 0], 1), (0, [0.0, 0.0], 1)),
        "pair": (1, [1], [2, 0], [1, 3], [-1, 0], (1, 2, 0)),
        "nest": (([0, 0], [[0.0], [0.0]], 1), ([0, 2], ([[0.0], [0.0]], 1)), ([0, 0], ([0.0], 1))),
    }
    for agent, actions in bad.items():
        for action in actions:
            with pytest.raises(ValueError, match=f"of '{agent}' is not in its space"):
                door.step({**good, agent: action})
    door.step(good)


# ---- Gymnasium -----------------------------------------------------------------------------------


def first_legal(state, obs, params, key):
    layout = made().action_layout(())
    return layout.pick(jnp.zeros(obs.action_mask.shape), obs.action_mask)


@pytest.mark.parametrize("agent", SPACES)
def test_gymnasium_s_own_checks_pass(agent):
    env = to_gymnasium(made(), agent=agent)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not having a spec|.*alternative render")
        # Bounds that differ from those of a normalised policy.
        warnings.filterwarnings("ignore", ".*symmetric and normalized")
        check_env(env)


@pytest.mark.parametrize("agent", SPACES)
def test_an_episode_is_the_life_of_the_agent_by_its_own_decisions(agent):
    env = made()
    view = to_gymnasium(env, agent=agent, others=first_legal)
    own, others = chooser(env.spaces), first_choice(env.spaces)

    def choose(name, count, mask):
        return (own if name == agent else others)(name, count, mask)

    observation, info = view.reset(seed=SEED)
    num_decisions = episode = 0
    while num_decisions < 20:
        steps = play(env, (), SEED, episode, choose)
        expected, before = decisions(env, (), steps)
        episode += 1
        if agent not in expected:
            continue  # which the view skips too
        np.testing.assert_allclose(info["reward_before"], before[agent], rtol=1e-5, atol=1e-5)
        decided = [step for step in steps if agent in step.actions]
        for one, at in zip(expected[agent], decided, strict=True):
            np.testing.assert_array_equal(observation, one.features)
            legal = list(options(env, agent, at.obs))
            assert ("action_mask" in info) == bool(legal)
            if legal:
                expect_mask(info["action_mask"], view.action_space, iter(legal))
            np.testing.assert_array_equal(view.action_masks(), [x for row in legal for x in row])
            observation, reward, terminated, truncated, info = view.step(at.actions[agent])
            np.testing.assert_allclose(reward, one.reward, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(observation, one.next_features)
            assert (terminated, truncated) == (one.terminated, one.truncated)
            num_decisions += 1
        assert terminated or truncated
        observation, info = view.reset()


def first_choice(spaces):
    """`choose(name, count, mask)` of what `first_legal` chooses."""

    def choose(name, count, mask):
        del count
        layout = made().action_layout(())
        low = layout.bounds[0]
        slot = list(spaces).index(name)
        rows = [mask] if name == "picks" else mask
        choices = np.zeros((len(spaces), len(layout.counts)), np.int32)
        choices[slot, : len(rows)] = [np.argmax(row) for row in rows]
        return layout.own(layout.join(choices, low), slot)

    return choose


@pytest.mark.parametrize("agent", SPACES)
def test_a_vector_is_gymnasium_s_own_vector_of_single_views(agent):
    env, num_envs = made(), 3
    one = functools.partial(to_gymnasium, env, agent=agent)
    theirs = SyncVectorEnv([one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = to_gymnasium_vector(env, agent=agent, num_envs=num_envs)
    assert ours.action_space == theirs.action_space
    assert ours.single_action_space == theirs.single_action_space
    ours.action_space.seed(SEED)
    expected, found = theirs.reset(seed=SEED), ours.reset(seed=SEED)
    num_ended = 0
    for _ in range(20):
        assert data_equivalence(found, expected)
        actions = ours.action_space.sample()
        expected, found = theirs.step(actions), ours.step(actions)
        num_ended += (found[2] | found[3]).sum()
    assert num_ended > 3


def test_actions_of_a_vector_are_checked():
    ours = to_gymnasium_vector(made(), agent="both", num_envs=2)
    ours.reset(seed=SEED)
    with pytest.raises(ValueError, match=r"not of the space .*, num_envs=2 of them"):
        ours.step(([0, 1, 2], np.zeros((3, 2))))
    with pytest.raises(ValueError, match="not of the space Tuple"):
        ours.step(([0, 1], np.zeros((3, 2))))
    with pytest.raises(ValueError, match="not of the space Tuple"):
        ours.step([0, 1, 2])
    with pytest.raises(ValueError, match="not of the space Tuple"):
        ours.step(([0, 3], np.zeros((2, 2))))
    single = to_gymnasium(made(), agent="pair")
    single.reset(seed=SEED)
    with pytest.raises(ValueError, match=r"not of the space MultiDiscrete\(\[2 3\]\)"):
        single.step([0, 3])


def test_random_others_are_uniform_over_what_is_legal_and_within_the_bounds():
    env = made()
    layout = env.action_layout(())
    obs, state = env.reset_env(jax.random.key(SEED), ())
    keys = jax.random.split(jax.random.key(0), 400)
    script = random_script(env)
    actions = jax.device_get(jax.vmap(lambda key: script(state, obs, (), key))(keys))
    for slot in range(env.num_agents):
        for choice, (start, count) in enumerate(zip(layout.starts, layout.counts, strict=False)):
            legal = np.flatnonzero(obs.action_mask[slot, start : start + count])
            found, times = np.unique(actions.choices[:, slot, choice], return_counts=True)
            np.testing.assert_array_equal(found, legal)
            assert times.min() > 0.5 * 400 / len(legal)
    low, high = layout.bounds
    assert ((actions.numbers >= low) & (actions.numbers <= high)).all()
    spread = np.ptp(actions.numbers, axis=0)
    np.testing.assert_allclose(spread, high - low, rtol=0.05)


# ---- RLlib ---------------------------------------------------------------------------------------


def test_rllib_is_told_what_decisions_earn_and_masks_of_all_choices_in_one_row():
    pytest.importorskip("ray")
    from ray.rllib.utils.pre_checks.env import check_multiagent_environments

    from jaxmarl_envs.adapters.outgoing.rllib import RLlibEnv

    check_multiagent_environments(RLlibEnv(made()))
    env = made()
    door = RLlibEnv(env)
    seen = Box(-1000, 1000, (3,))
    mask = Box(0, 1, (10,), np.float32)
    assert door.get_observation_space("moves") == seen
    assert door.get_observation_space("nest") == Dict({"observations": seen, "action_mask": mask})
    choose = chooser(env.spaces)
    observations, infos = door.reset(seed=SEED)
    for steps in played(env):
        expected, before = decisions(env, (), steps)
        told, over = defaultdict(list), False
        for agent, info in infos.items():
            told[agent].append(info.get("reward_before", 0.0))
        while not over:
            actions = {}
            for agent, shown in observations.items():
                if agent not in door.agents or agent not in door._hosted.slots:
                    continue
                assert shown in door.get_observation_space(agent)
                counts = env.action_layout(()).factors[env.agent_index(agent)].counts
                row = shown["action_mask"] if counts else np.zeros(0)
                legal = np.split(row, np.cumsum(counts)[:-1]) if counts else []
                legal = legal[0] if agent == "picks" else legal
                actions[agent] = choose(agent, len(told[agent]) - 1, legal)
            observations, rewards, terminateds, truncateds, _ = door.step(actions)
            for agent, reward in rewards.items():
                told[agent].append(reward)
            over = terminateds["__all__"] or truncateds["__all__"]
        for agent in expected:
            earned = [before[agent], *(one.reward for one in expected[agent])]
            np.testing.assert_allclose(told[agent], earned, rtol=1e-4, atol=1e-4)
        observations, infos = door.reset()


@pytest.mark.parametrize("action", [np.nan, 1.5, -1, 3, "1"])
def test_what_is_no_option_is_refused(action):
    with pytest.raises(ValueError, match="is not of"):
        take_apart(spaces.Discrete(3), np.array([action]), (1,))
