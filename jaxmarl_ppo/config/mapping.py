"""Configuration of the policy mapping: which policy plays which agent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax
from flax import struct

from jaxmarl_ppo.config.checks import (
    Count,
    check_fields,
    check_name,
    check_not_negative,
    check_policy_name,
    check_sequence,
    reject_repeated,
    rejection,
    show,
)

SHARED, PER_AGENT, ENSEMBLE = "shared", "per_agent", "ensemble"

# One agent's entry in a table: a policy, several drawn uniformly, or several with weights.
Choice = str | Sequence[str] | Mapping[str, float]
Table = Mapping[str, Choice]


def check_weights(name: str, weights: Any) -> tuple[float, ...]:
    """Check weights of a draw; return them as a tuple."""
    weights = check_sequence(name, weights, "numbers")
    values = tuple(float(check_not_negative(f"one of {name}", each)) for each in weights)
    if not any(values):
        raise rejection(name, "numbers that are not all 0", weights)
    return values


def check_names(name: str, names: Any) -> tuple[str, ...]:
    """Check a list of different policies; return their names as a tuple."""
    valid = "a list of names"
    found = check_sequence(name, names, valid)
    if not found or not all(isinstance(each, str) and each for each in found):
        raise rejection(name, valid, names)
    for each in found:
        check_policy_name(f"one of {name}", each)
    reject_repeated(name, found)
    return tuple(found)


def check_table(name: str, table: Any) -> dict[str, Any]:
    """Check a table from agents to their policies; return a copy with tuples for lists."""
    if not isinstance(table, Mapping):
        raise rejection(name, "a table from agent to policy", table)
    return {
        check_name(f"an agent in {name}", agent): _check_choice(f"{name}[{agent!r}]", choice)
        for agent, choice in table.items()
    }


def _check_choice(name: str, choice: Any) -> Choice:
    if isinstance(choice, str) and choice:
        return check_policy_name(name, choice)
    if isinstance(choice, Mapping) and choice:
        weights = check_weights(f"the weights of {name}", list(choice.values()))
        return dict(zip(check_names(f"the policies of {name}", list(choice)), weights, strict=True))
    if isinstance(choice, str | Mapping) or not isinstance(choice, Sequence) or not choice:
        raise rejection(name, "a policy, a list of policies or weights by policy", choice)
    return check_names(name, choice)


def _check_tables(name: str, tables: Any) -> tuple[dict[str, str], ...]:
    valid = "a list of tables from agent to policy"
    found = check_sequence(name, tables, valid)
    if not found:
        raise rejection(name, valid, tables)
    checked = [check_table(f"{name}[{index}]", table) for index, table in enumerate(found)]
    for index, table in enumerate(checked):
        for agent, policy in table.items():
            check_policy_name(f"{name}[{index}][{agent!r}]", policy)
    return tuple(checked)


def _check_candidates(name: str, table: Any) -> dict[str, tuple[str, ...]]:
    checked = check_table(name, table)
    return {agent: check_names(f"{name}[{agent!r}]", names) for agent, names in checked.items()}


def _check_function(name: str, function: Any) -> Any:
    if not callable(function):
        raise rejection(name, "a function (key, Draw) -> [A] indices", function)
    return function


Weights = Annotated[tuple[float, ...], check_weights]


class Draw(struct.PyTreeNode):
    """Inputs of a draw of policies in one environment."""

    episode: jax.Array  # () int: episodes that this environment has ended
    needed: jax.Array  # [A] bool: slots that get a new policy; all of them as an episode begins
    held: jax.Array  # [A] int: the policy of every other slot
    occupied: jax.Array  # [A] bool: slots that hold an agent


DrawFn = Callable[[jax.Array, Draw], jax.Array]


@dataclass(frozen=True)
class Ensemble:
    """`size` policies for every agent, named `<agent>_0`, `<agent>_1`, ...

    Attributes:
        size: number of policies for each agent.
        weights: weights of the draw, which need not add up to 1; None for equal ones.
        joint: whether all agents of an episode draw the same index, instead of one each.
    """

    size: Count
    weights: Weights | None = None
    joint: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "of an ensemble")
        if self.weights is not None and len(self.weights) != self.size:
            raise ValueError(
                f"an ensemble of {self.size} needs {self.size} weights, got {self.weights}"
            )


@dataclass(frozen=True)
class Matchups:
    """Tables from agent to policy, one of which is drawn for all agents of an episode.

    An agent that is reborn draws among the tables that contain the current policies of the other
    slots, or among all tables if there is none.

    Attributes:
        tables: tables, each from agent (or a pattern such as `car_*`) to policy.
        weights: weights of the tables, which need not add up to 1; None for equal ones.
    """

    tables: Annotated[tuple[Mapping[str, str], ...], _check_tables]
    weights: Weights | None = None

    def __post_init__(self) -> None:
        check_fields(self, "of matchups")
        if self.weights is not None and len(self.weights) != len(self.tables):
            raise ValueError(
                f"{len(self.tables)} matchups need as many weights, got {self.weights}"
            )


@dataclass(frozen=True)
class MappingFunction:
    """A mapping by a function of the user's own.

    Attributes:
        function: pure function `(key, Draw) -> [A]` that returns indices into `policies`; only
            those of slots that need a draw are read.
        policies: names of all policies.
        candidates: by agent (or pattern), the policies that the function may choose for it; None
            for all. Networks are sized for the agents that they may control, so a shorter list can
            make them smaller.
    """

    function: Annotated[DrawFn, _check_function]
    policies: Annotated[tuple[str, ...], check_names]
    candidates: Annotated[Mapping[str, Sequence[str]], _check_candidates] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "of a mapping function")


MappingSpec = str | Table | Ensemble | Matchups | MappingFunction


def check_mapping(name: str, mapping: Any) -> MappingSpec:
    """Check the form of a mapping; its words and names are checked with the environment."""
    if isinstance(mapping, str | Ensemble | Matchups | MappingFunction):
        return mapping
    if not isinstance(mapping, Mapping):
        raise ValueError(f"a policy {name} cannot be made from {show(mapping)}; {valid_words()}")
    return check_table(name, mapping)


def valid_words() -> str:
    """List what a policy mapping can be, for messages."""
    return (
        f"valid: {SHARED!r}, {PER_AGENT!r}, '{ENSEMBLE}:K', a table from agent to policy, "
        "Ensemble, Matchups or MappingFunction"
    )


def weights_of(choice: Choice) -> Mapping[str, float]:
    """Write a table's entry as weights by policy."""
    if isinstance(choice, Mapping):
        return choice
    return dict.fromkeys([choice] if isinstance(choice, str) else choice, 1.0)
