"""Which policy plays which agent, as a user says it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import struct

SHARED, PER_AGENT, ENSEMBLE = "shared", "per_agent", "ensemble"


# One agent's entry in a table: a policy, several drawn uniformly, or several with weights.
Choice = str | Sequence[str] | Mapping[str, float]


Table = Mapping[str, Choice]


class Draw(struct.PyTreeNode):
    """What a draw can go by, of one environment."""

    episode: jax.Array  # () int: episodes that this environment has ended
    needed: jax.Array  # [A] bool: slots that get a new policy; all of them as an episode begins
    held: jax.Array  # [A] int: the policy of every other slot
    occupied: jax.Array  # [A] bool: slots that hold an agent


DrawFn = Callable[[jax.Array, Draw], jax.Array]


@dataclass(frozen=True)
class Ensemble:
    """`size` policies for every agent, named `<agent>_0`, `<agent>_1`, ...

    Attributes:
        size: members.
        weights: of the members, which need not add up to 1; None for equal ones.
        joint: whether all agents draw the same member number, instead of one each.
    """

    size: int
    weights: tuple[float, ...] | None = None
    joint: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"an ensemble's size must be a whole number from 1, got {self.size!r}")
        if self.weights is not None:
            object.__setattr__(self, "weights", check_weights("ensemble", self.weights))
            if len(self.weights) != self.size:
                raise ValueError(
                    f"an ensemble of {self.size} needs {self.size} weights, got {self.weights}"
                )


@dataclass(frozen=True)
class Matchups:
    """Whole tables from agent to policy, one of which is drawn for an episode.

    An agent that is reborn draws among the tables that agree with what the others hold; where none
    does, among all of them.

    Attributes:
        tables: each from agent (or pattern, such as `car_*`) to policy.
        weights: of the tables, which need not add up to 1; None for equal ones.
    """

    tables: tuple[Mapping[str, str], ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(self.tables))
        if not self.tables:
            raise ValueError("matchups need at least one table from agent to policy, got none")
        if self.weights is not None:
            object.__setattr__(self, "weights", check_weights("matchups", self.weights))
            if len(self.weights) != len(self.tables):
                raise ValueError(
                    f"{len(self.tables)} matchups need as many weights, got {self.weights}"
                )


@dataclass(frozen=True)
class MappingFunction:
    """A mapping of the user's own.

    Attributes:
        function: pure, `(key, Draw) -> [A]` indices into `policies`; only the slots that a draw
            needs are read.
        policies: names of all policies.
        candidates: by agent (or pattern), which of them the function may give it; None for all.
            Networks are sized by the agents that they can meet, so a shorter list can be smaller.
    """

    function: DrawFn
    policies: tuple[str, ...]
    candidates: Mapping[str, Sequence[str]] | None = None


MappingSpec = str | Table | Ensemble | Matchups | MappingFunction


def check_weights(what: str, weights: Any) -> tuple[float, ...]:
    """The weights themselves."""
    try:
        values = np.asarray(tuple(weights), float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the weights of {what} must be numbers, got {weights!r}") from error
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise ValueError(
            f"the weights of {what} must be finite, not negative and not all 0, got {weights}"
        )
    return tuple(values.tolist())
