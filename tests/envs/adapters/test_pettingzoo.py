"""PettingZoo's own checks of our environments, and what they show against stepping them plainly."""

import functools
import re
import warnings
from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from gymnasium.spaces import Box, Dict, Discrete
from hosting_oracle import by_rule, decisions, play, returns
from pettingzoo.utils.wrappers import TerminateIllegalWrapper
from probe_envs import Duel, LivesParams, RandomLives

import jaxmarl_envs
from jaxmarl_envs.adapters.outgoing.pettingzoo import to_aec, to_parallel

with warnings.catch_warnings():
    # PettingZoo's checks import one of its games in a way that it advises against.
    warnings.filterwarnings("ignore", "The old environment creation API", DeprecationWarning)
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

SEED = 5
# Keyword arguments and parameters, where the default ones take long.
SMALL = {
    "asymmetric_play": ({}, {"max_alice_steps": 4, "max_steps": 10}),
    "flex_agents": ({"num_slots": 3}, {"max_age": 8}),
    "shuttle_grid": ({"num_shuttles": 3, "max_steps": 60}, {}),
}


@functools.cache
def made(name):
    """One object of each environment, so that it is compiled once."""
    if name == "crypto, continuous":
        return jaxmarl_envs.make("crypto", continuous_actions=True)
    if name == "random_lives":
        return RandomLives(), LivesParams()
    if name == "duel":
        return Duel(), None
    options, changes = SMALL.get(name, ({}, {}))
    env, params = jaxmarl_envs.make(name, **options)
    return env, params.replace(**changes) if changes else params


# ---- PettingZoo's own checks ---------------------------------------------------------------------

# What the checks advise against and we do all the same: agents have the names that they have
# everywhere here, spaces of their own, no pictures, actions of several factors, and dicts where
# PettingZoo's own games have them too (which it knows by name).
ADVICE = {
    "render": "not defined a render",
    "names": "agents to be named in the format",
    "dict": "Observation is not a NumPy array|Observation space for each agent probably",
    "factors": "Action space for each agent probably",
    "unequal": "different observation space sizes|Observations are different shapes",
    "unbounded": "maximum observation space value is infinity",
    "zeros": "numpy array is all zeros",
    "lives": "does not have possible_agents|No agents present",
}
GIVEN = {
    "asymmetric_play": {"names"},
    "combination_lock": {"factors", "names"},
    "convoy": {"factors", "names", "unequal"},
    "crypto": {"unequal", "zeros"},
    "crypto, continuous": {"unequal", "zeros"},
    "flex_agents": {"lives"},
    "multi_spaces": {"unequal"},
    "kuhn_poker": {"names"},
    "leduc_holdem": {"names"},
    "phantom_tic_tac_toe": {"names"},
    "press_your_luck": {"names", "unbounded"},
    "relay": {"names"},
    "tic_tac_toe": {"names"},
}


def advice(env_name, in_dicts):
    expected = {"render", *GIVEN.get(env_name, ())}
    if in_dicts:
        expected = (expected | {"dict"}) - {"unbounded"}
        if env_name == "asymmetric_play":  # Alice has an action more than Bob
            expected |= {"unequal"}
    return expected


@pytest.mark.rare_cases(
    "shuttle_grid-auto",
    "multi_spaces-auto",
    "round_robin-auto",
    "press_your_luck-auto",
    "crypto-auto",
    "asymmetric_play-auto",
    "relay-auto",
    "basic-auto",
    "early_done-auto",
)
@pytest.mark.parametrize("action_masks", ["auto", "info"])
@pytest.mark.parametrize("name", [*jaxmarl_envs.names(), "crypto, continuous"])
def test_pettingzoo_s_own_checks_pass(name, action_masks):
    if name == "crypto, continuous" and action_masks == "info":
        action_masks = "none"
    env, params = made(name)
    max_lives = None if name == "flex_agents" else 1
    options = {"action_masks": action_masks, "max_lives": max_lives}
    parallel = functools.partial(to_parallel, env, params, **options)
    in_turn = functools.partial(to_aec, env, params, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallel_api_test(parallel(), num_cycles=200)
        api_test(in_turn(), num_cycles=200)
        parallel_seed_test(parallel, num_cycles=50)
        seed_test(in_turn, num_cycles=50)
    found = set()
    for warning in caught:
        kinds = {kind for kind, text in ADVICE.items() if re.search(text, str(warning.message))}
        assert kinds, warning.message
        found |= kinds
    assert found == advice(name, in_turn().action_masks == "observation")


def test_with_a_bound_on_lives_the_checks_pass_too():
    env, params = made("flex_agents")
    options = {"max_lives": 400}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallel_api_test(to_parallel(env, params, **options), num_cycles=200)
        api_test(to_aec(env, params, **options), num_cycles=200)
    told = {str(warning.message) for warning in caught}
    assert told == {
        "No agents present but not all possible_agents are terminated or truncated",
        "Environment has not defined a render() method",
    }


# ---- Against the environment itself --------------------------------------------------------------

PLAYED = [
    "random_lives", "duel", "asymmetric_play", "crypto", "early_done", "flex_agents",
    "multi_spaces", "press_your_luck", "relay", "tic_tac_toe",
]  # fmt: skip


def raw(name, episode):
    env, params = made(name)
    return play(env, params, SEED, episode, by_rule)


def expect_seen(env, params, observation, agent, obs):
    """The features, unpadded, and where they are shown the mask."""
    slot = env.agent_index(agent.split("#")[0])
    own = tuple(slice(n) for n in env.observation_space(env.agents[slot], params).shape)
    mask = obs.action_mask[slot][: env.action_space(env.agents[slot], params).n]
    features = observation["observation"] if isinstance(observation, dict) else observation
    np.testing.assert_array_equal(features, obs.features[slot][own])
    return mask, observation["action_mask"] if isinstance(observation, dict) else None


@pytest.mark.parametrize("name", PLAYED)
def test_a_parallel_step_is_a_step(name):
    env, params = made(name)
    parallel = to_parallel(env, params, max_lives=None)
    observations, infos = parallel.reset(seed=SEED)
    for episode in range(2):
        decided, steps = defaultdict(int), raw(name, episode)
        for time_step in steps:
            names = [agent for agent in time_step.names if agent is not None]
            assert parallel.agents == names
            actions = {}
            for agent in names:
                slot = time_step.names.index(agent)
                assert infos[agent]["acts"] == time_step.acted[slot]
                own, shown = expect_seen(env, params, observations[agent], agent, time_step.obs)
                if time_step.acted[slot]:
                    actions[agent] = by_rule(agent, decided[agent], own)
                    decided[agent] += 1
                    if shown is not None:
                        np.testing.assert_array_equal(shown, own)
                elif shown is not None:
                    assert shown.sum() == 1
                    assert own[shown.argmax()]
                    if name not in ("random_lives", "duel"):
                        actions[agent] = 1  # which is ignored
            assert actions.items() >= time_step.actions.items()
            observations, rewards, terminated, truncated, infos = parallel.step(actions)
            expect_step(
                env, params, time_step, (observations, rewards, terminated, truncated, infos)
            )
        assert parallel.agents == []
        observations, infos = parallel.reset()


def expect_step(env, params, time_step, results):
    observations, rewards, terminated, truncated, infos = results
    before = [agent for agent in time_step.names if agent is not None]
    after = [agent for agent in time_step.names_after if agent is not None]
    for told in results:
        assert set(told) == {*before, *after}
    for agent in before:
        slot = time_step.names.index(agent)
        np.testing.assert_allclose(rewards[agent], time_step.reward[slot], rtol=1e-6, atol=1e-6)
        assert terminated[agent] == time_step.terminated[slot]
        assert truncated[agent] == time_step.truncated[slot]
        if agent not in after:
            expect_seen(env, params, observations[agent], agent, time_step.final)
            assert not infos[agent]["acts"]
    for agent in {*after} - {*before}:
        assert rewards[agent] == 0
        assert not terminated[agent]
        assert not truncated[agent]


@pytest.mark.parametrize("name", PLAYED)
def test_in_turn_every_agent_is_told_what_its_decisions_have_earned(name):
    env, params = made(name)
    in_turn = to_aec(env, params, max_lives=None)
    in_turn.reset(seed=SEED)
    for episode in range(2):
        steps = raw(name, episode)
        expected, before = decisions(env, params, steps)
        order = [agent for time_step in steps for agent in time_step.actions]
        acted, told = [], defaultdict(list)
        for agent in in_turn.agent_iter():
            observation, reward, terminated, truncated, _ = in_turn.last()
            features = observation["observation"] if isinstance(observation, dict) else observation
            told[agent].append((reward, terminated, truncated, features))
            if terminated or truncated:
                in_turn.step(None)
                continue
            slot = env.agent_index(agent.split("#")[0])
            mask = observation["action_mask"] if isinstance(observation, dict) else np.ones(
                env.action_space(env.agents[slot], params).n)  # fmt: skip
            acted.append(agent)
            in_turn.step(by_rule(agent, acted.count(agent) - 1, mask))
        assert acted == order
        assert told.keys() == returns(steps).keys()
        for agent, earned in returns(steps).items():
            rewards = [x[0] for x in told[agent]]
            np.testing.assert_allclose(sum(rewards), earned, rtol=1e-4, atol=1e-5)
            by_decision = [before[agent], *(one.reward for one in expected[agent])]
            np.testing.assert_allclose(rewards, by_decision, rtol=1e-4, atol=1e-5)
            for turn, one in zip(told[agent][1:], expected[agent], strict=True):
                assert turn[1:3] == (one.terminated, one.truncated)
                np.testing.assert_array_equal(turn[3], one.next_features)
        in_turn.reset()


def test_continuous_actions_arrive_as_they_are():
    env, params = made("crypto, continuous")

    def choose(name, count, mask):
        return np.full(4, (len(name) + count) % 7 / 8, np.float32)

    steps = play(env, params, SEED, 0, choose)
    parallel = to_parallel(env, params)
    parallel.reset(seed=SEED)
    for time, time_step in enumerate(steps):
        results = parallel.step({agent: choose(agent, time, None) for agent in parallel.agents})
        for slot, agent in enumerate(env.agents):
            assert results[1][agent] == time_step.reward[slot]
    assert len({float(time_step.reward[0]) for time_step in steps}) > 3


# ---- Spaces, masks, names ------------------------------------------------------------------------


def test_crypto_has_the_agents_and_the_spaces_of_mpe2():
    from mpe2 import simple_crypto_v3

    theirs = simple_crypto_v3.parallel_env()
    ours = to_parallel(*made("crypto"))
    assert ours.possible_agents == theirs.possible_agents
    for agent in theirs.possible_agents:
        assert ours.action_space(agent) == theirs.action_space(agent)
        space = theirs.observation_space(agent)
        assert ours.observation_space(agent).shape == space.shape
        assert ours.observation_space(agent).dtype == space.dtype


def test_masks_are_where_pettingzoo_s_board_games_have_them():
    in_turn = to_aec(*made("tic_tac_toe"))
    box, mask = Box(0, 1, (27,), np.float32), Box(0, 1, (9,), np.int8)
    for agent in ("x", "o"):
        space = in_turn.observation_space(agent)
        assert space == Dict({"observation": box, "action_mask": mask})
        assert in_turn.action_space(agent) == Discrete(9)
    in_turn.reset(seed=0)
    in_turn.step(4)
    observation, *_ = in_turn.last()
    np.testing.assert_array_equal(observation["action_mask"], [1, 1, 1, 1, 0, 1, 1, 1, 1])
    assert observation["action_mask"].dtype == np.int8
    # PettingZoo's own wrapper finds them there.
    wrapped = TerminateIllegalWrapper(to_aec(*made("tic_tac_toe")), illegal_reward=-7)
    wrapped.reset(seed=0)
    wrapped.step(4)
    wrapped.step(4)
    assert wrapped.terminations == {"x": True, "o": True}
    assert wrapped.rewards == {"x": 0, "o": -7}


def test_who_waits_has_one_action_which_is_ignored():
    parallel = to_parallel(*made("tic_tac_toe"))
    observations, infos = parallel.reset(seed=0)
    assert observations["x"]["action_mask"].sum() == 9
    np.testing.assert_array_equal(observations["o"]["action_mask"], np.eye(9)[0])
    assert infos == {"x": {"acts": True}, "o": {"acts": False}}
    observations, *_, infos = parallel.step({"x": 4, "o": 0})
    np.testing.assert_array_equal(observations["o"]["action_mask"], [1, 1, 1, 1, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(observations["x"]["action_mask"], np.eye(9)[0])
    assert infos == {"x": {"acts": False}, "o": {"acts": True}}


@pytest.mark.parametrize("make_one", [to_parallel, to_aec])
def test_masks_can_go_into_infos_or_nowhere(make_one):
    shown = make_one(*made("tic_tac_toe"), action_masks="info")
    shown.reset(seed=0)
    assert shown.observation_space("x") == Box(0, 1, (27,), np.float32)
    info = shown.infos["x"] if make_one is to_aec else shown.reset(seed=0)[1]["x"]
    np.testing.assert_array_equal(info["action_mask"], np.ones(9))
    without = make_one(*made("tic_tac_toe"), action_masks="none")
    without.reset(seed=0)
    assert without.observation_space("x") == Box(0, 1, (27,), np.float32)


def test_by_default_masks_are_shown_where_they_can_tell_something():
    # In parallel also where agents can wait.
    expected = {
        "crypto": ("none", "none"),
        "multi_spaces": ("none", "none"),
        "flex_agents": ("none", "none"),
        "early_done": ("observation", "none"),
        "tic_tac_toe": ("observation", "observation"),
        "shuttle_grid": ("observation", "observation"),
        "crypto, continuous": ("none", "none"),
    }
    found = {
        name: tuple(to(*made(name)).action_masks for to in (to_parallel, to_aec))
        for name in expected
    }
    assert found == expected


def test_a_seed_tells_the_episodes_and_without_one_they_differ():
    def goals(env, num_episodes, seed):
        # Bob sees the key, Alice goal and key.
        found = [tuple(env.reset(seed=seed)[0]["alice_0"])]
        return found + [tuple(env.reset()[0]["alice_0"]) for _ in range(num_episodes - 1)]

    one, two = (to_parallel(*made("crypto")) for _ in range(2))
    assert goals(one, 12, 1) == goals(two, 12, 1)
    assert goals(one, 12, 1) != goals(two, 12, 2)
    assert len(set(goals(one, 12, 1))) > 1
    unseeded = [tuple(to_parallel(*made("crypto")).reset()[0]["alice_0"]) for _ in range(12)]
    assert len(set(unseeded)) > 1


def test_names_of_later_lives_are_bounded_or_not():
    env, params = made("flex_agents")
    two = to_parallel(env, params, max_lives=2)
    assert two.possible_agents == [*env.agents, *(f"{agent}#2" for agent in env.agents)]
    assert two.action_space("agent_1#2") is two.action_space("agent_1")
    two.reset(seed=0)

    def play_on():
        while True:
            two.step(dict.fromkeys(two.agents, 0))

    with pytest.raises(ValueError, match=r"'agent_\d#3' was born, .* max_lives=2: give a larger"):
        play_on()
    assert not hasattr(to_aec(env, params, max_lives=None), "possible_agents")


class Watched(Duel):
    def _observe(self, turn, over):
        return super()._observe(turn, over).replace(state=np.arange(3.0))


def test_the_central_state_is_shown_where_there_is_one():
    parallel = to_parallel(Watched())
    parallel.reset(seed=0)
    np.testing.assert_array_equal(parallel.state(), [0.0, 1.0, 2.0])
    without = to_aec(*made("duel"))
    without.reset(seed=0)
    with pytest.raises(NotImplementedError, match="'duel' shows no central state"):
        without.state()


class Numbered(Duel):
    agents = ("a", "a#2")


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="'a#2': a name with '#' is that of a later life"):
        to_parallel(Numbered())
    with pytest.raises(ValueError, match="action_masks='obs': valid choices: auto, observation"):
        to_parallel(*made("crypto"), action_masks="obs")
    with pytest.raises(ValueError, match="continuous actions, which have no masks"):
        to_aec(*made("crypto, continuous"), action_masks="info")
    with pytest.raises(ValueError, match="max_lives=0: must be at least 1"):
        to_aec(*made("crypto"), max_lives=0)
    parallel = to_parallel(*made("crypto"))
    with pytest.raises(ValueError, match="call reset first"):
        parallel.step({})
    parallel.reset(seed=0)
    with pytest.raises(ValueError, match="'bob_0' must act, and eve_0 did"):
        parallel.step({"eve_0": 0})
    with pytest.raises(ValueError, match="unknown agent 'bob'"):
        parallel.step({"bob": 0})
    with pytest.raises(ValueError, match="action 4 of 'eve_0' is not in its space"):
        parallel.step({"eve_0": 4})
    with pytest.raises(ValueError, match="unknown agent 'dora'"):
        parallel.action_space("dora")
