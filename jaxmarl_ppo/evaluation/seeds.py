"""Statistics over several seeds of one run: means, interquartile means and confidence intervals.

The measures are those of Agarwal et al. (2021): the interquartile mean leaves out the worst and the
best quarter of seeds. Its interval is a bootstrap over seeds, drawn with replacement. There is one
task, so all seeds are of one stratum.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000
# Tables that `summarise_seeds` adds, with the same keys as the means.
IQM, LOW, HIGH = SPREAD = ("iqm", "ci95_low", "ci95_high")

Path = tuple[str, ...]


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Compute the interquartile mean along an axis: without the lowest and the highest quarter."""
    ordered, count = np.sort(values, axis=axis), values.shape[axis]
    left_out = count // 4
    return ordered.take(range(left_out, count - left_out), axis).mean(axis)


def bootstrap_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 95 % bootstrap interval of the interquartile mean.

    Args:
        values: `[seeds, ...]`, at least two seeds.

    Returns:
        Its lower and its upper end, `[...]`.
    """
    # The same seeds are drawn for all numbers and at every call.
    draws = np.random.default_rng(0).integers(len(values), size=(NUM_RESAMPLES, len(values)))
    # One by one, since the draws of a single number fit in the cache.
    numbers = np.ascontiguousarray(values.reshape(len(values), -1).T)
    means = np.array([iqm(number[draws], axis=1) for number in numbers])
    ends = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=1)
    low, high = ends.reshape(2, *values.shape[1:])
    return low, high


def summarise_seeds(tables: Sequence[Mapping[str, Any]], has_counts: bool = True) -> dict[str, Any]:
    """Join the tables of several seeds.

    The result has the mean of every number, over the seeds that have it. Other values and standard
    errors are left out.

    Args:
        tables: of each seed.
        has_counts: whether whole numbers are counts, which are summed instead.

    Returns:
        The joined table, and beside its keys `iqm`, `ci95_low` and `ci95_high`: tables of the
        interquartile means and of the ends of their intervals. A number of a single seed has no
        interval.
    """
    found = [dict(_numbers(table)) for table in tables]
    paths = list(dict.fromkeys(path for numbers in found for path in numbers))
    values = {path: [own[path] for own in found if path in own] for path in paths}
    joined: dict[str, Any] = {}
    measured: dict[int, list[Path]] = {}  # by the number of seeds that have them
    for path, numbers in values.items():
        if has_counts and all(isinstance(x, int) for x in numbers):
            _enter(joined, path, sum(numbers))
        else:
            _enter(joined, path, float(np.mean(numbers, dtype=np.float64)))
            measured.setdefault(len(numbers), []).append(path)
    for count, group in measured.items():
        columns = np.array([values[path] for path in group], np.float64).T
        rows = {IQM: iqm(columns)}
        if count > 1:
            rows[LOW], rows[HIGH] = bootstrap_interval(columns)
        for name, row in rows.items():
            for path, number in zip(group, row, strict=True):
                _enter(joined, (name, *path), float(number))
    return joined


def _numbers(table: Mapping[str, Any], before: Path = ()) -> list[tuple[Path, float]]:
    """List the numbers of a table and of the tables in it, by their paths."""
    found: list[tuple[Path, float]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            found += _numbers(value, (*before, key))
        # The standard error of one seed does not measure differences between seeds.
        elif (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and (not key.endswith("_se"))
        ):
            found.append(((*before, key), value))
    return found


def _enter(table: dict[str, Any], path: Path, number: float) -> None:
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = number
