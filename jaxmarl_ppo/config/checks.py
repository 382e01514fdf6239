"""Checks of single values, shared by all parts of a configuration."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def check_counts(config: Any, *names: str) -> None:
    """Refuse fields that are no whole numbers from 1; None stands for a default.

    Raises:
        ValueError: a field that is something else.
    """
    for name in names:
        value = getattr(config, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_range(config: Any, low: float, high: float, *names: str) -> None:
    """Refuse fields that are no finite numbers between `low` and `high`.

    Raises:
        ValueError: a field that is something else.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not (low <= value <= high and np.isfinite(value)):
            raise ValueError(f"{name} must be finite and lie in [{low}, {high}], got {value}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a word that is none of `choices`.

    Raises:
        ValueError: it is another one.
    """
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; valid: {', '.join(choices)}")
