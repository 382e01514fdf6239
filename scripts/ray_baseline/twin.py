"""Protocol of a game in plain Python, as the wrapper for RLlib needs it."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Twin(Protocol):
    """One game with the rules of one of our environments. `A` agents, `N` actions each.

    `reset` begins an episode and `step` advances it by one step; all else tells of the present
    step. Arrays that are handed out are not to be changed.
    """

    agents: tuple[str, ...]
    feature_widths: tuple[int, ...]  # of each agent
    num_actions: int
    bounds: tuple[float, float]  # of all features
    over: bool  # the episode has ended
    truncated: bool  # it was cut off, and is no terminal state

    def reset(self, rng: np.random.Generator) -> None:
        """Begin an episode."""
        ...

    def step(self, actions: Sequence[int]) -> Sequence[float]:
        """Advance one step.

        Args:
            actions: `[A]`; those of agents that do not act are ignored.

        Returns:
            `[A]`: what each agent earned at this step.
        """
        ...

    def acting(self) -> Sequence[int]:
        """Return the indices of the agents that must act now."""
        ...

    def features(self, agent: int) -> np.ndarray:
        """`[D]` float32: what an agent sees."""
        ...

    def action_mask(self, agent: int) -> np.ndarray:
        """`[N]` float32: 1 for an action that is legal, 0 for one that is not."""
        ...
