"""One agent's actions in plain Python: Gymnasium's spaces as one choice or one vector, and back."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.spaces import MAX_CHOICES, Box, Discrete, Space


@dataclass(frozen=True)
class Actions:
    """Encoding of an agent's own actions as one choice or one vector.

    Attributes:
        space: as one choice, or one vector.
        counts: of finite choices, how many there are of each of those made at once; else none.
        build: makes what the environment takes of the choices `[C]` int, or of the vector.
    """

    space: Space
    counts: tuple[int, ...]
    build: Callable[[np.ndarray], Any]

    def own(self, action: np.ndarray) -> Any:
        """Turn an action, a number or `[N]` float, into what the environment takes."""
        if isinstance(self.space, Box):
            return self.build(action[: self.space.size])
        if len(self.counts) == 1:
            return self.build(np.array([action]))
        return self.build(np.array(np.unravel_index(int(action), self.counts)))


def read_actions(space: Any) -> Actions:
    """Read an action space.

    Raises:
        ValueError: If it cannot be written as one choice or one vector; the message says why.
    """
    spaces = import_extra("gymnasium.spaces", "gymnasium")
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return _choices((int(space.n),), lambda chosen: int(chosen[0]) + start)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return _read_array(space)
    if isinstance(space, spaces.Box):
        return _read_box(space)
    if isinstance(space, spaces.Tuple):
        return _join([read_actions(part) for part in space.spaces], tuple)
    if isinstance(space, spaces.Dict):
        keys = tuple(space.spaces)
        parts = [read_actions(space.spaces[key]) for key in keys]
        return _join(parts, lambda own: dict(zip(keys, own, strict=True)))
    raise ValueError(
        "what can be played is a Discrete, a Box with finite bounds, or several of one kind at once"
    )


def join_masks(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return which combinations are legal, `[N]` bool, from masks of each choice."""
    return functools.reduce(lambda x, y: np.logical_and.outer(x, y).ravel(), masks)


def _choices(counts: tuple[int, ...], build: Callable[[np.ndarray], Any]) -> Actions:
    size = math.prod(counts)
    if size > MAX_CHOICES:
        raise ValueError(f"{size:,} combinations are more than the {MAX_CHOICES:,} that can be")
    return Actions(Discrete(size), counts, build)


def _read_array(space: Any) -> Actions:
    shape, dtype = space.shape, space.dtype
    nvec = np.ravel(getattr(space, "nvec", np.full(shape, 2)))
    start = np.ravel(getattr(space, "start", np.zeros(shape, int)))
    counts = tuple(int(n) for n in nvec)
    return _choices(counts, lambda chosen: (chosen + start).astype(dtype).reshape(shape))


def _read_box(space: Any) -> Actions:
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError("a Box of actions must hold floats")
    low, high = (np.ravel(x).astype(np.float32) for x in (space.low, space.high))
    if not np.isfinite([low, high]).all():
        raise ValueError("a Box of actions must have finite bounds")

    def build(vector: np.ndarray) -> np.ndarray:
        values = vector.reshape(space.shape).astype(space.dtype)
        return np.clip(values, space.low, space.high)

    return Actions(Box(low, high, low.shape), (), build)


def _join(parts: Sequence[Actions], combine: Callable[[Any], Any]) -> Actions:
    """Make one of several actions at once."""
    if len({type(part.space) for part in parts}) != 1:
        raise ValueError("finite choices and Boxes at once cannot be played")
    boxes = [part.space for part in parts if isinstance(part.space, Box)]
    ends = np.cumsum([box.size for box in boxes] or [len(part.counts) for part in parts])[:-1]

    def build(values: np.ndarray) -> Any:
        own = zip(parts, np.split(values, ends), strict=True)
        return combine([part.build(value) for part, value in own])

    if not boxes:
        return _choices(tuple(n for part in parts for n in part.counts), build)
    low, high = (np.concatenate([getattr(box, end) for box in boxes]) for end in ("low", "high"))
    return Actions(Box(low, high, low.shape), (), build)
