"""Numbers that change while a run goes on: constants, lines and points."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Linear:
    """From `start` at the first environment step to `end` at the last."""

    start: float
    end: float = 0.0


# A constant, a line over the whole run, or points (environment step, value) joined by lines.
ScheduleSpec = float | Linear | tuple[tuple[float, float], ...]


def schedule_points(spec: ScheduleSpec, total_env_steps: int) -> tuple[tuple[float, float], ...]:
    """A schedule as points (environment step, value) with ascending steps."""
    if isinstance(spec, Linear):
        return ((0.0, spec.start), (float(total_env_steps), spec.end))
    if isinstance(spec, tuple):
        return spec
    return ((0.0, float(spec)),)


def check_schedule(name: str, spec: Any) -> ScheduleSpec:
    """A valid schedule, sequences turned into tuples."""
    if isinstance(spec, Linear):
        values = [spec.start, spec.end]
    elif isinstance(spec, Sequence) and not isinstance(spec, str):
        pairs = all(isinstance(point, Sequence) and len(point) == 2 for point in spec)
        if not spec or not pairs:
            raise ValueError(f"{name} must be a list of pairs [step, value], got {spec!r}")
        spec = tuple((float(step), float(value)) for step, value in spec)
        steps, values = zip(*spec, strict=True)
        if any(b <= a for a, b in itertools.pairwise(steps)):
            raise ValueError(f"the steps of {name} must ascend, got {list(steps)}")
    elif isinstance(spec, int | float) and not isinstance(spec, bool):
        values = [spec]
    else:
        raise ValueError(
            f"{name} must be a number, Linear(start, end) or [[step, value], ...], got {spec!r}"
        )
    if not all(0.0 <= value < np.inf for value in values):
        raise ValueError(f"{name} must be finite and not negative, got {spec!r}")
    return spec
