"""Flattening of an environment's own observations to features, described as plain data."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """A part of an observation that has no parts itself: an array, or integer categories.

    Attributes:
        path: keys of dictionaries and indices of tuples that lead to it.
        shape: shape of its array. One axis stands for any shape with as many elements.
        divisor: number that its elements are divided by.
        options: number of options of each category, which becomes a one-hot vector; None for
            numbers.
        first: lowest value of each category.
    """

    path: tuple[str | int, ...] = ()
    shape: tuple[int, ...] = ()
    divisor: int = 1
    options: tuple[int, ...] | None = None
    first: tuple[int, ...] | None = None


def is_image(space: Any) -> bool:
    """Return whether a Box of any library is of bytes of an image, which are divided by 255.

    That is, whether it declares uint8, from 0 to 255, and at least two axes.
    """
    if not hasattr(space, "low") or not hasattr(space, "high"):
        return False
    if np.size(getattr(space, "shape", ())) < 2:
        return False
    if np.dtype(getattr(space, "dtype", None)) != np.uint8:
        return False
    return bool(np.all(np.asarray(space.low) == 0) and np.all(np.asarray(space.high) == 255))


def flatten(parts: Sequence[Part], observation: Any) -> np.ndarray:
    """Write an observation as a vector of its parts, one after the other, `[D]` float32.

    Raises:
        ValueError: If a part is missing, or has another shape or an unknown category.
    """
    return np.concatenate([_numbers(part, observation) for part in parts])


def _numbers(part: Part, observation: Any) -> np.ndarray:
    """Write one part as a vector."""
    found, where = observation, "observation"
    for key in part.path:
        where += f"[{key!r}]"
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"{where} is missing ({type(error).__name__}: {error})") from None
    x = np.asarray(found)
    if x.shape != part.shape and not (len(part.shape) == 1 and x.size == part.shape[0]):
        raise ValueError(f"{where} has shape {x.shape}, but its space has shape {part.shape}")
    if part.options is not None:
        return _one_hots(part, x.ravel(), where)
    return x.ravel().astype(np.float32) / np.float32(part.divisor)


def _one_hots(part: Part, symbols: np.ndarray, where: str) -> np.ndarray:
    """Write symbols `[N]` as one-hot vectors, one after the other."""
    first, options = np.array(part.first), np.array(part.options)
    index = symbols.astype(int) - first
    if not ((index + first == symbols) & (index >= 0) & (index < options)).all():
        valid = ", ".join(f"{a} to {a + n - 1}" for a, n in zip(first, options, strict=True))
        raise ValueError(f"{where} is {symbols.tolist()}, but its space has {valid}")
    one_hots = np.zeros(options.sum(), np.float32)
    one_hots[np.cumsum(options) - options + index] = 1
    return one_hots
