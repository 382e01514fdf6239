"""RLlib's former API stack: policy specifications, and reading of its results."""

# pyright: reportMissingImports=false

from collections.abc import Mapping
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.examples._old_api_stack.models.action_mask_model import TorchActionMaskModel
from ray.rllib.policy.policy import PolicySpec

from ray_baseline.rllib_env import spaces
from ray_baseline.scenarios import Scenario


def policy_specs(scenario: Scenario, policies: Mapping[str, str]) -> dict[str, PolicySpec]:
    """The network of every policy; each is as wide as its agent's observation."""
    model = {
        "fcnet_hiddens": list(scenario.hidden_sizes),
        "fcnet_activation": "tanh",
        "vf_share_layers": True,
        "use_lstm": scenario.lstm_size is not None,
        "lstm_cell_size": scenario.lstm_size or 1,
        "max_seq_len": scenario.sequence_length,
    }
    if scenario.action_mask:
        model["custom_model"] = TorchActionMaskModel
    return {
        name: PolicySpec(None, observation_space, action_space, {"model": model})
        for name, (observation_space, action_space) in spaces(scenario, policies).items()
    }


class NoteReturns(RLlibCallback):
    """Notes what every agent earned; by itself this stack tells of policies only."""

    def on_episode_end(self, *, episode: Any, **_: Any) -> None:
        """Note it in the episode's own metrics."""
        for (agent, _policy), earned in episode.agent_rewards.items():
            episode.custom_metrics[agent] = earned


class FormerResults:
    """Reads the results of an algorithm on the former API stack, one after the other."""

    def __init__(self, algorithm: Any, scenario: Scenario) -> None:
        self._algorithm, self._scenario = algorithm, scenario
        self._decisions = self._updates = 0

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what an iteration did."""
        played, timers = result["env_runners"], result["timers"]
        decisions, self._decisions = self._decisions, result["num_agent_steps_sampled_lifetime"]
        trained = result["info"]["learner"]
        updates = self._updates
        policies = [self._algorithm.get_policy(name) for name in trained]
        self._updates = sum(policy.num_grad_updates for policy in policies)
        by_agent = {
            name: played["custom_metrics"][f"{name}_mean"]
            for name in self._scenario.agents
            if f"{name}_mean" in played["custom_metrics"]
        }
        returns = {**played["policy_reward_mean"], **by_agent}
        return {
            "env_steps": int(result["num_env_steps_sampled_this_iter"]),
            "decisions": int(self._decisions - decisions),
            "returns": {name: float(value) for name, value in returns.items()},
            "trained_rows": self._scenario.minibatch_rows * (self._updates - updates),
            # Means over the latest ten iterations.
            "sampling_s": timers["sample_time_ms"] / 1000,
            "learning_s": timers["learn_time_ms"] / 1000,
        }
