"""Conditions on metrics of a run, such as `shared.return_mean > 20`."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from jaxmarl_ppo.config.checks import MAX_FLOAT, check_sequence, reject_repeated, rejection

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_CONDITION = re.compile(r"\s*(?P<name>\S[^<>=]*?)\s*(?P<relation>[<>]=?)\s*(?P<number>\S+)\s*")


@dataclass(frozen=True)
class Condition:
    """A comparison of a metric with a number.

    Attributes:
        name: name of the metric, as it was written.
        relation: `>`, `>=`, `<` or `<=`.
        bound: number that the metric is compared with.
    """

    name: str
    relation: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the condition holds for a value."""
        return _RELATIONS[self.relation](value, self.bound)

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.bound:g}"


def parse_condition(text: str, name: str = "a condition") -> Condition:
    """Read a condition such as `shared.return_mean > 20`, with or without blanks.

    Args:
        text: the condition.
        name: what messages call it.

    Raises:
        ValueError: If it is something else.
    """
    found = _CONDITION.fullmatch(text)
    try:
        bound = float(found["number"]) if found else float("nan")
    except ValueError:
        bound = float("nan")
    if found is None or not abs(bound) <= MAX_FLOAT:
        raise rejection(
            name,
            f"the name of a metric, one of {', '.join(_RELATIONS)}, and a finite number, such as "
            "'shared.return_mean > 20'",
            text,
        )
    return Condition(found["name"], found["relation"], bound)


def check_until(name: str, value: Any) -> tuple[str, ...]:
    """Return conditions as they are to be kept; the rule of a field.

    Raises:
        ValueError: If an entry is not a condition, or is given twice.
    """
    texts = tuple(check_sequence(name, value, "a sequence of conditions"))
    for text in texts:
        _check_condition(f"an entry of {name}", text)
    reject_repeated(name, texts)
    return texts


def _check_condition(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise rejection(name, "a condition such as 'all.return_mean > 20'", value)
    parse_condition(value, name)
    return value


ConditionText = Annotated[str, _check_condition]
# Each word of a command line is one only if it reads as such.
Conditions = Annotated[tuple[ConditionText, ...], check_until]
