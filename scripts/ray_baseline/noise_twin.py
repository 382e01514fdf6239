"""Six shuttles that see and earn noise, in NumPy: `noise.Noise`.

The shape of a workload and nothing to learn: 6 agents, 116 features, 3 actions, and at every step
each agent is idle, and then acts, with probability 1/2.
"""

from collections.abc import Sequence

import numpy as np

NUM_AGENTS = 6
NUM_FEATURES = 116
NUM_ACTIONS = 3
MAX_STEPS = 200
_ALL = np.ones(NUM_ACTIONS, np.float32)


class NoiseTwin:
    """Features are uniform on [-1, 1], rewards on [0, 1]."""

    agents = tuple(str(i) for i in range(NUM_AGENTS))
    feature_widths = (NUM_FEATURES,) * NUM_AGENTS
    num_actions = NUM_ACTIONS
    bounds = (-1.0, 1.0)
    truncated = False

    def reset(self, rng: np.random.Generator) -> None:
        """Everybody begins idle."""
        self._rng, self.time, self.over = rng, 0, False
        self._observe()
        self._idle: Sequence[int] = range(NUM_AGENTS)

    def step(self, actions: Sequence[int]) -> Sequence[float]:
        """Draw everything anew, whatever is done; all end together."""
        self.time += 1
        self.over = self.time >= MAX_STEPS
        self._observe()
        drawn = self._rng.random(2 * NUM_AGENTS).tolist()
        self._idle = () if self.over else [i for i in range(NUM_AGENTS) if drawn[i] < 0.5]
        return drawn[NUM_AGENTS:]

    def acting(self) -> Sequence[int]:
        """The idle ones."""
        return self._idle

    def features(self, agent: int) -> np.ndarray:
        """Noise."""
        return self._features[agent]

    def action_mask(self, agent: int) -> np.ndarray:
        """Everything is legal."""
        return _ALL

    def _observe(self) -> None:
        uniform = self._rng.random((NUM_AGENTS, NUM_FEATURES), np.float32)
        self._features = 2.0 * uniform - 1.0
