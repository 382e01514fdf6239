"""Means over episodes and how certain they are."""

from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

# Half the width of a 95 % confidence interval, in standard errors.
Z95 = 1.96


class MeanAndSE(TypedDict):
    """A mean and its standard error."""

    mean: float
    se: float | None  # one value alone has none


def mean_and_se(values: ArrayLike) -> MeanAndSE:
    """Compute the mean of independent values `[n]` and its standard error."""
    values = np.asarray(values, np.float64)
    se = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None
    return {"mean": float(values.mean()), "se": se}


def plus_minus(mean: float, se: float | None, digits: int) -> str:
    """Write a mean and its standard error, if it has one, as `25.1 ± 0.2`."""
    return f"{mean:.{digits}f}" + ("" if se is None else f" ± {se:.{digits}f}")


def mean_and_ci(values: np.ndarray) -> dict[str, list[list[float | None]]]:
    """Compute the mean over episodes and half the width of its 95 % confidence interval.

    `values` are `[rows, columns, episodes]`, each entry of the result is `[rows][columns]`; of one
    episode alone the widths are None.
    """
    episodes = values.shape[-1]
    mean = values.mean(-1, dtype=np.float64)
    if episodes == 1:
        return {"mean": mean.tolist(), "ci95": [[None] * mean.shape[1]] * mean.shape[0]}
    error = values.std(-1, ddof=1, dtype=np.float64) / np.sqrt(episodes)
    return {"mean": mean.tolist(), "ci95": (Z95 * error).tolist()}
