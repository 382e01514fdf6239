"""A twin with dictionaries by agent, as a class for RLlib is written; it needs no RLlib."""

from typing import Any

import gymnasium as gym
import numpy as np

from ray_baseline.crypto_twin import CryptoTwin
from ray_baseline.noise_twin import NoiseTwin
from ray_baseline.shuttle_grid_twin import ShuttleGridTwin
from ray_baseline.tic_tac_toe_twin import TicTacToeTwin
from ray_baseline.twin import Twin

TWINS: dict[str, Any] = {
    "tic_tac_toe": TicTacToeTwin,
    "crypto": CryptoTwin,
    "shuttle_grid": ShuttleGridTwin,
    "noise": NoiseTwin,
}
HOLD = 0  # what stands for the action of an agent that does not act


class TwinByAgent:
    """A twin whose observations, rewards and flags are dictionaries by agent, as RLlib has them.

    Those who must act observe; when the game ends, everybody does.

    RLlib adds up what an agent earns until its next observation, so the final observations of those
    who wait are what carries their last reward.

    Args:
        config: `"game"`, a key of `TWINS`; `"action_mask"`, whether observations are dictionaries
            with the mask in them; `"all_observe"`, whether those who wait observe and decide too.
    """

    def __init__(self, config: Any) -> None:
        self.twin: Twin = TWINS[config["game"]]()
        self._masked, self._all_observe = config["action_mask"], config["all_observe"]
        self._names = self.twin.agents
        self.agents = self.possible_agents = list(self._names)
        self._everybody = range(len(self._names))
        self._rng = np.random.default_rng()
        low, high = self.twin.bounds
        actions = self.twin.num_actions
        self.observation_spaces, self.action_spaces = {}, {}
        for agent, width in zip(self._names, self.twin.feature_widths, strict=True):
            features = gym.spaces.Box(low, high, (width,), np.float32)
            mask = gym.spaces.Box(0.0, 1.0, (actions,), np.float32)
            both = gym.spaces.Dict({"action_mask": mask, "observations": features})
            self.observation_spaces[agent] = both if self._masked else features
            self.action_spaces[agent] = gym.spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin an episode; a seed begins a new stream of them."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.twin.reset(self._rng)
        return self._observe(), {}

    def step(self, action_dict: Any) -> tuple[Any, Any, Any, Any, Any]:
        """One step; nobody is waited for."""
        rewards = self.twin.step([int(action_dict.get(agent, HOLD)) for agent in self._names])
        over, truncated = self.twin.over, self.twin.truncated
        return (
            self._observe(),
            dict(zip(self._names, rewards, strict=True)),
            {"__all__": over and not truncated},
            {"__all__": over and truncated},
            {},
        )

    def _observe(self) -> dict[str, Any]:
        twin = self.twin
        who = self._everybody if twin.over or self._all_observe else twin.acting()
        if not self._masked:
            return {self._names[i]: twin.features(i) for i in who}
        return {
            self._names[i]: {"action_mask": twin.action_mask(i), "observations": twin.features(i)}
            for i in who
        }
