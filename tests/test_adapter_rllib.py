"""What RLlib records through the adapter, against the environment stepped plainly."""

import logging
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
from jaxmarl_envs.adapters.hosting import slot_name
from jaxmarl_envs.adapters.rllib import RLlibEnv, rllib_env

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
        .multi_agent(policies=set(specs), policy_mapping_fn=lambda agent, *_, **__: slot_name(agent))
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .debugging(log_level="ERROR", seed=SEED)
    )


class Recording:
    """What RLlib samples with random actions, and what was sent to the environment."""

    def __init__(self, env, num_steps, fragment):
        runner = MultiAgentEnvRunner(config=config_for(env))
        self.chunks = [
            chunk
            for _ in range(num_steps // fragment)
            for chunk in runner.sample(num_timesteps=fragment, random_actions=True)
        ]
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
        # RLlib flags a life that is told to have ended on the tick that truncates the rest twice.
        assert one.terminated == other.terminated
        assert other.terminated or one.truncated == other.truncated


CASES = {
    "random_lives": (RandomLives(), LivesParams(), 400),
    "nobody_comes_back": (RandomLives(), LivesParams(p_reborn=0.0, p_join=0.4), 400),
    "duel": (Duel(), None, 12),
    "crypto": (*jaxmarl_envs.make("crypto"), 60),
    "relay": (*jaxmarl_envs.make("relay"), 60),
    "press_your_luck": (*jaxmarl_envs.make("press_your_luck", ), 60),
    "tic_tac_toe": (*jaxmarl_envs.make("tic_tac_toe"), 40),
}


@pytest.mark.parametrize("fragment", [1, 2, 7])
@pytest.mark.parametrize("case", CASES)
def test_rllib_records_every_decision_once_with_all_that_it_earned(case, fragment):
    env, params, num_steps = CASES[case]
    recording = Recording(Recorded(env, params, max_lives=None), num_steps, fragment)
    assert sum(recording.over) > 1
    for episode, over in enumerate(recording.over):
        if not over:
            continue
        sent = recording.sent[episode]
        choose = lambda name, count, mask: sent[name][count]  # noqa: B023, E731
        ticks = play(env, params, SEED, recording.numbers[episode], choose)
        expected, before = decisions(env, params, ticks)
        found = recording.transitions[episode]
        assert found.keys() == expected.keys()
        for agent in expected:
            expect_same(found[agent], expected[agent])
        for agent, earned in returns(ticks).items():
            told = sum(one.reward for one in found[agent])
            np.testing.assert_allclose(told + before[agent], earned, rtol=1e-4, atol=1e-5)
