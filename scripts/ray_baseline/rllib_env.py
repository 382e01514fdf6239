"""A twin as RLlib's `MultiAgentEnv`."""

# pyright: reportMissingImports=false

from collections.abc import Mapping
from typing import Any

from ray.rllib.env.multi_agent_env import MultiAgentEnv

from ray_baseline.scenarios import Scenario
from ray_baseline.twin_by_agent import TwinByAgent


class TwinEnv(TwinByAgent, MultiAgentEnv):
    """`TwinByAgent` with RLlib's base class."""

    def __init__(self, config: Any) -> None:
        MultiAgentEnv.__init__(self)
        TwinByAgent.__init__(self, config)


def env_config(scenario: Scenario, all_observe: bool = False) -> dict[str, Any]:
    """Return the arguments that the twin of a scenario is made with."""
    return {
        "game": scenario.game,
        "action_mask": scenario.action_mask,
        "all_observe": all_observe,
    }


def spaces(scenario: Scenario, policies: Mapping[str, str]) -> dict[str, tuple[Any, Any]]:
    """By policy the spaces of observations and actions of the agent that it plays."""
    env = TwinEnv(env_config(scenario))
    observed: Any = env.observation_spaces
    acted: Any = env.action_spaces
    return {name: (observed[agent], acted[agent]) for name, agent in policies.items()}
