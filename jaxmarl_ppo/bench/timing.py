"""Timing of calls: medians of several runs, and calls that take turns."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """Summarises the seconds of several runs."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        """Summarise the seconds of some runs."""
        return cls(float(np.median(seconds)), min(seconds), max(seconds))

    def rate(self, count: float) -> dict[str, float]:
        """Divide `count` by the seconds; the fastest run gives `max`."""
        return {"median": count / self.median, "min": count / self.max, "max": count / self.min}


def time_calls(call: Call, repeats: int, warm_up: int = 1) -> Timing:
    """Time a call, including the wait for its result; the first runs are left out."""
    return Timing.of(time_in_turn([call], repeats, warm_up)[0])


def time_in_turn(calls: Sequence[Call], repeats: int, warm_up: int = 1) -> list[list[float]]:
    """Time several calls in turn, so that a change of the machine's speed affects all of them.

    Args:
        calls: to run; each waits for its result.
        repeats: rounds that are timed.
        warm_up: rounds before them that are not.

    Returns:
        For every call its wall-clock seconds, round by round.
    """
    seconds: list[list[float]] = [[] for _ in calls]
    for round_index in range(warm_up + repeats):
        for call, own in zip(calls, seconds, strict=True):
            started = time.perf_counter()
            jax.block_until_ready(call())
            if round_index >= warm_up:
                own.append(time.perf_counter() - started)
    return seconds
