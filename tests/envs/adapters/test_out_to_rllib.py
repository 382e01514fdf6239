"""What RLlib records through the adapter, against the environment stepped plainly."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("ray")

import ray
from gymnasium.spaces import Box, Dict, Discrete
from hosting_oracle import Decision, decisions, play, returns
from probe_envs import Duel, LivesParams, RandomLives
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.utils.pre_checks.env import check_multiagent_environments
from ray.tune import register_env

import jaxmarl_envs
from jaxmarl_envs.adapters.outgoing.rllib import RLlibEnv, rllib_env
from jaxmarl_envs.adapters.outgoing.stepper import slot_name

pytestmark = [
    # Every runner registers its environment with gymnasium anew, under one name.
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-multi-agent-env"),
    # Ray starts its own programs by fork and exec, which JAX cannot tell from a fork that goes on.
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
]

SEED = 3


class Recorded(RLlibEnv):
    """Remembers what was sent to it, by episode and agent."""

    def reset(self, **kwargs):
        if not hasattr(self, "sent"):
            self.sent, self.numbers, kwargs = [], [], {"seed": SEED}
        self.sent.append(defaultdict(list))
        told = super().reset(**kwargs)
        self.numbers.append(self._hosted.episode)
        return told

    def step(self, action_dict):
        for agent, action in action_dict.items():
            self.sent[-1][agent].append(action)
        return super().step(action_dict)


def config_for(env, creator=None, **training):
    """The smallest PPO, one policy for each slot."""
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    ids_unknown = {"normalize_actions": False, "clip_actions": False}
    register_env("adapted", creator or (lambda _: env))
    specs = {
        agent: RLModuleSpec(
            module_class=ActionMaskingTorchRLModule if env.masked else None,
            observation_space=env.get_observation_space(agent),
            action_space=env.get_action_space(agent),
            model_config=DefaultModelConfig(fcnet_hiddens=[16], vf_share_layers=True),
        )
        for agent in env._hosted.env.agents
    }
    return (
        PPOConfig()
        .environment("adapted", disable_env_checking=True, **ids_unknown)
        .env_runners(num_env_runners=0, create_local_env_runner=True)
        .training(**training)
        .multi_agent(
            policies=set(specs), policy_mapping_fn=lambda agent, *_, **__: slot_name(agent)
        )
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .debugging(log_level="ERROR", seed=SEED)
    )


class Recording:
    """What RLlib samples with random actions, and what was sent to the environment."""

    def __init__(self, env, num_steps):
        runner = MultiAgentEnvRunner(config=config_for(env))
        fragments = itertools.cycle([1, 1, 2, 7])
        self.chunks, sampled = [], 0
        while sampled < num_steps:
            fragment = next(fragments)
            self.chunks += runner.sample(num_timesteps=fragment, random_actions=True)
            sampled += fragment
        played = runner.env.envs[0].unwrapped
        self.sent, self.numbers = played.sent, played.numbers
        self.transitions = []  # of each episode, by agent
        self.over = []
        ids = []
        for chunk in self.chunks:
            if chunk.id_ not in ids:
                ids.append(chunk.id_)
                self.transitions.append(defaultdict(list))
                self.over.append(False)
            assert chunk.id_ == ids[-1]
            self.over[-1] |= chunk.is_done
            for agent, single in chunk.agent_episodes.items():
                self.transitions[-1][agent] += list(_transitions(single))


def _transitions(single):
    seen, rewards = single.get_observations(), single.get_rewards()
    if isinstance(seen, dict):
        seen = seen["observations"]
    for t, action in enumerate(single.get_actions()):
        ends = (single.is_terminated, single.is_truncated) if t == len(single) - 1 else (False,) * 2
        yield Decision(seen[t], action, rewards[t], seen[t + 1], *ends)


def expect_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_allclose(one.reward, other.reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(one.next_features, other.next_features)
        # RLlib flags a life that is told to have ended at the step that truncates the rest twice.
        assert one.terminated == other.terminated
        assert other.terminated or one.truncated == other.truncated


CASES = {
    "random_lives": (RandomLives(), LivesParams(), 200),
    "nobody_comes_back": (RandomLives(), LivesParams(p_reborn=0.0, p_join=0.4), 150),
    "duel": (Duel(), None, 12),
    "crypto": (*jaxmarl_envs.make("crypto"), 60),
    "relay": (*jaxmarl_envs.make("relay"), 60),
    "press_your_luck": (*jaxmarl_envs.make("press_your_luck"), 60),
    "tic_tac_toe": (*jaxmarl_envs.make("tic_tac_toe"), 40),
}


@pytest.mark.rare_cases("random_lives")
@pytest.mark.parametrize("case", CASES)
def test_rllib_records_every_decision_once_with_all_that_it_earned(case):
    """In fragments of 1, 1, 2 and 7 steps."""
    env, params, num_steps = CASES[case]
    recording = Recording(Recorded(env, params, max_lives=None), num_steps)
    assert sum(recording.over) > 1
    for episode, over in enumerate(recording.over):
        if not over:
            continue
        sent = recording.sent[episode]
        choose = lambda name, count, mask: sent[name][count]  # noqa: B023, E731
        steps = play(env, params, SEED, recording.numbers[episode], choose)
        expected, before = decisions(env, params, steps)
        found = recording.transitions[episode]
        assert found.keys() == expected.keys()
        for agent in expected:
            expect_same(found[agent], expected[agent])
        for agent, earned in returns(steps).items():
            told = sum(one.reward for one in found[agent])
            np.testing.assert_allclose(told + before[agent], earned, rtol=1e-4, atol=1e-5)


# ---- By hand -------------------------------------------------------------------------------------


def test_what_a_waiting_agent_earns_comes_with_its_next_observation_or_at_its_end():
    env = RLlibEnv(Duel())
    observations, infos = env.reset(seed=0)
    assert list(observations) == ["first"]
    assert infos == {"first": {}}
    # Second earns 5 before it has decided anything: beside its first observation.
    observations, rewards, terminateds, truncateds, _ = env.step({"first": 1})
    np.testing.assert_array_equal(observations["second"], [0.0, 1.0])
    assert rewards == {"second": 5.0}
    assert terminateds == truncateds == {"__all__": False}
    # First is paid 1 for its action at second's step, with its own final observation.
    observations, rewards, terminateds, truncateds, _ = env.step({"second": 1})
    assert rewards == {"first": 1.0, "second": 0.0}
    np.testing.assert_array_equal(observations["first"], [1.0, 0.0])
    assert terminateds == {"first": True, "second": True, "__all__": True}
    assert truncateds == {"first": False, "second": False, "__all__": False}


class Paid(Duel):
    """Nobody acts at the first step, at which first earns 3 and second 5."""

    def reset_env(self, key, params):
        obs, (_, zero) = super().reset_env(key, params)
        return obs.replace(agent_mask=obs.agent_mask & False), (zero - 1, zero)

    def step_env(self, key, state, action, params):
        obs, after, reward, *rest = super().step_env(key, state, action, params)
        return obs, after, reward.at[0].add(3.0 * (state[0] == -1)), *rest


def test_what_was_earned_before_anybody_acts_is_in_the_infos_of_the_reset():
    # Steps -1 (nobody's), 0 (first's) and 1 (second's): second earns 5 at two of them.
    env = RLlibEnv(Paid())
    observations, infos = env.reset(seed=0)
    assert list(observations) == ["first"]
    assert infos == {"first": {"reward_before": 3.0}}
    assert env.step({"first": 1})[1] == {"second": 10.0}


def test_an_end_is_told_a_step_later_where_nobody_else_is_known_to_rllib():
    env = RLlibEnv(*jaxmarl_envs.make("relay"))
    (first,), _ = env.reset(seed=0)
    told = None
    while told is None or list(told[0]) == [first]:
        told = env.step({first: 0})
        assert not any(told[2].values())
    second = "b" if first == "a" else "a"
    assert list(told[0]) == [second]
    observations, rewards, terminateds, truncateds, _ = env.step({second: 0})
    assert set(observations) == {first, second}
    assert terminateds == {first: True, "__all__": False}
    assert truncateds == {first: False, "__all__": False}
    assert set(rewards) == {first, second}


def test_the_last_to_be_truncated_are_told_so_by_the_flag_for_all():
    env = rllib_env({"env": "crypto", "params": {"max_steps": 2}})
    env.reset(seed=0)
    actions = dict.fromkeys(env.agents, 0)
    assert env.step(actions)[3] == {"__all__": False}
    _, _, terminateds, truncateds, _ = env.step(actions)
    assert truncateds == {"__all__": True}
    assert not any(terminateds.values())


# ---- Spaces, masks, names ------------------------------------------------------------------------


@pytest.mark.parametrize("name", jaxmarl_envs.names())
def test_rllib_finds_nothing_wrong_with_any_of_our_environments(name):
    env = rllib_env({"env": name})
    check_multiagent_environments(env)
    observations, _ = env.reset(seed=1)
    for agent, observation in observations.items():
        assert env.get_observation_space(agent).contains(observation)


def test_spaces_are_each_agent_s_own_and_masks_are_there_where_actions_can_be_illegal():
    env = rllib_env({"env": "crypto"})
    assert not env.masked
    shapes = {agent: space.shape for agent, space in env.observation_spaces.items()}
    assert shapes == {"eve_0": (4,), "bob_0": (8,), "alice_0": (8,)}
    assert list(env.action_spaces.values()) == [Discrete(4)] * 3
    assert env.possible_agents == ["eve_0", "bob_0", "alice_0"]

    env = rllib_env({"env": "tic_tac_toe", "size": 2, "k": 2})
    box = Box(0, 1, (12,), np.float32)
    mask = Box(0, 1, (4,), np.float32)
    assert env.observation_spaces["o"] == Dict({"observations": box, "action_mask": mask})
    env.reset(seed=0)
    observations, *_ = env.step({"x": 2})
    np.testing.assert_array_equal(observations["o"]["action_mask"], [1, 1, 0, 1])


def test_environments_of_one_configuration_share_what_is_compiled():
    one, two = (rllib_env({"env": "tic_tac_toe", "size": 2, "k": 2}) for _ in range(2))
    other = rllib_env({"env": "tic_tac_toe", "size": 3, "k": 2})
    assert one._hosted.env is two._hosted.env
    assert one._hosted.env is not other._hosted.env


def test_the_next_life_in_a_slot_has_an_id_of_its_own_and_the_slot_s_spaces():
    env = rllib_env({"env": "flex_agents", "max_lives": 2})
    assert env.possible_agents[0] == "agent_0"
    assert env.possible_agents[8] == "agent_0#2"
    assert env.observation_spaces["agent_0#2"] is env.observation_spaces["agent_0"]
    env.reset(seed=0)

    def play_on():
        while True:
            env.step(dict.fromkeys(env._hosted.slots, 0))

    with pytest.raises(ValueError, match=r"#3' was born, one more .* max_lives=2"):
        play_on()
    unbounded = rllib_env({"env": "flex_agents", "max_lives": None})
    assert unbounded.get_action_space("agent_3#17") is unbounded.action_spaces["agent_3"]


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({}, "name the environment"),
        ({"env": "cripto"}, "did you mean 'crypto'"),
        ({"env": "crypto", "size": 3}, "takes no option 'size'"),
        (
            {"env": "crypto", "params": {"steps": 3}},
            "no parameter 'steps'; its parameters: max_steps",
        ),
        ({"env": "crypto", "action_masks": "info"}, "valid choices: auto, observation, none"),
        (
            {"env": "crypto", "continuous_actions": True, "action_masks": "observation"},
            "continuous actions, which have no masks",
        ),
        ({"env": "crypto", "max_lives": 0}, "must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(env_config, message):
    with pytest.raises(ValueError, match=message):
        rllib_env(env_config)


def test_actions_are_those_of_the_agents_that_were_asked():
    env = RLlibEnv(*CASES["tic_tac_toe"][:2])
    with pytest.raises(ValueError, match="call reset first"):
        env.step({"x": 0})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="'x' must act, and o did"):
        env.step({"o": 0})
    with pytest.raises(ValueError, match="unknown agent 'z': alive are x, o"):
        env.step({"z": 0})
    with pytest.raises(ValueError, match="action 9 of 'x' is not in its space"):
        env.step({"x": 9})


# ---- Training ------------------------------------------------------------------------------------


class Legal(RLlibEnv):
    """Fails at an illegal action."""

    def step(self, action_dict):
        for agent, action in action_dict.items():
            slot = self._hosted.slots[agent]
            assert self._hosted.legal_options(slot)[0][action], (agent, action)
        return super().step(action_dict)


TRAINED = {
    "asymmetric_play": {"params": {"max_alice_steps": 4, "max_steps": 10}},
    "flex_agents": {"max_lives": None, "num_slots": 3},
    "shuttle_grid": {"num_shuttles": 2},
}


@pytest.fixture(scope="module")
def cluster():
    ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    yield
    ray.shutdown()


# RLlib's own module for masks needs a Discrete action, and every observation with its mask.
OF_SEVERAL_FACTORS = {"combination_lock", "convoy"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [x for x in jaxmarl_envs.names() if x not in OF_SEVERAL_FACTORS])
def test_rllib_trains_on_every_one_of_our_environments_of_one_choice(cluster, name):
    asked = rllib_env({"env": name, **TRAINED.get(name, {})})
    hosted = asked._hosted
    env = Legal(hosted.env, hosted.params, max_lives=hosted.max_lives)
    config = config_for(
        env, train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, use_kl_loss=False
    ).env_runners(rollout_fragment_length=32)
    algo = config.build_algo()
    before = algo.get_weights()
    results = [algo.train() for _ in range(3)]
    after = algo.get_weights()
    algo.stop()
    assert results[-1]["env_runners"]["num_env_steps_sampled_lifetime"] >= 96
    for policy in before:
        weights = [(before[policy][key], after[policy][key]) for key in before[policy]]
        assert all(np.isfinite(new).all() for _, new in weights)
        # Slots that are seldom taken may have made no decision.
        assert name == "flex_agents" or any((old != new).any() for old, new in weights), policy
