"""`Original`: an environment as its own library steps it, the other side of a comparison."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

Chosen = tuple[np.ndarray, np.ndarray]  # choices [C] int, numbers [N] float32


class Reported(NamedTuple):
    """What an environment reports after a reset or a step, agents by name.

    Agents that a field leaves out are not compared, except in `ends`.

    Attributes:
        observations: numbers in the order of an agent's features, `[D]` each.
        acting: the agents that must act now; None where the library does not say.
        action_masks: which options of all choices of an acting agent are legal, `[W]` bool each.
        returns: the sum of an agent's rewards since the episode began.
        ends: the agents whose lives ended at this step: "terminated", "truncated", or "ended" where
            the library does not say which.
        is_over: whether the episode is.
    """

    observations: Mapping[str, np.ndarray]
    acting: Collection[str] | None
    action_masks: Mapping[str, np.ndarray]
    returns: Mapping[str, float]
    ends: Mapping[str, str]
    is_over: bool


class Original:
    """Base class of one environment that is stepped as its own library documents it.

    Attributes:
        horizon: the step at which the adapter was asked to truncate an episode that the original
            does not end; None where it was not.
        at_time_limit: as the adapter was given it. Ends at the time limit are then compared, but
            not whether they terminate or truncate.
    """

    horizon: int | None = None
    at_time_limit: str | None = None

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin an episode.

        Args:
            key: the random key of `reset_env`.
            seed: of the episode, for environments that are stepped in Python; else None.
        """
        raise NotImplementedError

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Advance one step.

        Args:
            key: the random key of `step_env`.
            chosen: choices and numbers of the acting agents.
        """
        raise NotImplementedError

    def follow(self, state: Any) -> None:
        """Continue from the adapter's state, if it is the same up to rounding.

        In a chaotic game the rounding of two programs would grow from step to step. By default, the
        original continues from its own state.
        """
