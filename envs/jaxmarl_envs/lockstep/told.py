"""What an original tells: the side of its own library in a comparison."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

Chosen = tuple[np.ndarray, np.ndarray]  # choices [C] int, numbers [N] float32


class Told(NamedTuple):
    """What an environment tells after a reset or a step, agents by name.

    Whatever is left out is not compared.

    Attributes:
        seen: what agents observe, as numbers in the order of their features, `[D]` each.
        acts: the agents that must act now; None where the library does not say.
        legal: of agents that act, which options of their choices are legal, in a row, `[W]` bool.
        earned: the sum of all that agents have been paid since the episode began.
        ended: the agents whose lives ended at this step: "terminated", "truncated", or "ended"
            where the library does not say which of them.
        is_over: whether the episode is.
    """

    seen: Mapping[str, np.ndarray]
    acts: Collection[str] | None
    legal: Mapping[str, np.ndarray]
    earned: Mapping[str, float]
    ended: Mapping[str, str]
    is_over: bool


class Original:
    """One environment, stepped as its own library says; a base class for originals.

    Attributes:
        horizon: the step at which the adapter was asked to truncate an episode of which the
            original knows no end; None where it was not.
        at_time_limit: what the adapter was asked to make of an end at the time limit; where it was,
            ends there are compared, but not whether they terminate or truncate.
    """

    horizon: int | None = None
    at_time_limit: str | None = None

    def reset(self, key: Any, seed: int | None) -> Told:
        """Begin an episode, with the key of `reset_env`, or a seed where it is stepped in Python.

        Args:
            key: random key.
            seed: of plain Python; else None.
        """
        raise NotImplementedError

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Told:
        """Advance one step.

        Args:
            key: the key of `step_env`.
            chosen: choices and numbers of the agents that act.
        """
        raise NotImplementedError

    def follow(self, state: Any) -> None:
        """Go on from the adapter's state, if it is the same up to rounding.

        In a chaotic game the rounding of two programs would grow from step to step. By default the
        original goes on from its own state.
        """
