"""Numbers that change during a run: constants, lines and points."""

import itertools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from jaxmarl_ppo.config.checks import (
    Rule,
    check_fields,
    check_fraction,
    check_not_negative,
    check_number,
    check_positive,
    check_sequence,
    plain,
    rejection,
)


@dataclass(frozen=True)
class Linear:
    """From `start` at the first environment step to `end` at the last."""

    start: Annotated[float, check_number]
    end: Annotated[float, check_number] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "of Linear")


# A constant, a line over the complete run, or points (environment step, value) joined by lines.
ScheduleSpec = float | Linear | tuple[tuple[float, float], ...]


def schedule_points(spec: ScheduleSpec, total_env_steps: int) -> tuple[tuple[float, float], ...]:
    """Write a schedule as points (environment step, value) with ascending steps."""
    if isinstance(spec, Linear):
        return ((0.0, spec.start), (float(total_env_steps), spec.end))
    if isinstance(spec, tuple):
        return spec
    return ((0.0, float(spec)),)


@dataclass(frozen=True)
class ScheduleRule:
    """Refuses what is no schedule; returns one with its points as tuples.

    Attributes:
        check: the rule that every value of a schedule must keep.
    """

    check: Rule

    def __call__(self, name: str, spec: Any) -> ScheduleSpec:
        """Check a value of a field."""
        if isinstance(spec, Linear):
            self.check(f"the start of {name}", spec.start)
            self.check(f"the end of {name}", spec.end)
            return spec
        spec = plain(spec)
        if isinstance(spec, list | tuple | np.ndarray):
            return _check_points(name, spec, self.check)
        if isinstance(spec, bool) or not isinstance(spec, int | float):
            raise rejection(name, "a number, Linear(start, end) or [[step, value], ...]", spec)
        return self.check(name, spec)


def _check_points(name: str, spec: Any, check: Rule) -> tuple[tuple[float, float], ...]:
    pair = "a pair [step, value]"
    points = [
        check_sequence(f"a point of {name}", point, pair)
        for point in check_sequence(name, spec, "a list of pairs [step, value]")
    ]
    if not points:
        raise rejection(name, "a list of pairs [step, value]", spec)
    for point in points:
        if len(point) != 2:
            raise rejection(f"a point of {name}", pair, point)
    steps = [float(check_number(f"a step of {name}", step)) for step, _ in points]
    values = [float(check(f"a value of {name}", value)) for _, value in points]
    if any(b <= a for a, b in itertools.pairwise(steps)):
        raise ValueError(f"the steps of {name} must ascend, got {steps}")
    return tuple(zip(steps, values, strict=True))


# What a field is annotated with that takes a schedule, by the values that it may have.
Scheduled = Annotated[ScheduleSpec, ScheduleRule(check_not_negative)]
ScheduledPositive = Annotated[ScheduleSpec, ScheduleRule(check_positive)]
ScheduledFraction = Annotated[ScheduleSpec, ScheduleRule(check_fraction)]
