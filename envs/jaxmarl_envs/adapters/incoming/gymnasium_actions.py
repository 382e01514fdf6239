"""One agent's actions in plain Python: Gymnasium's spaces as choices and numbers, and back."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.spaces import MAX_CHOICES, Box, Discrete, MultiDiscrete, Space, Tuple

REFUSED = (
    "an action space is a Discrete, MultiDiscrete, MultiBinary, a Box, or a Tuple or Dict of these"
)


@dataclasses.dataclass(frozen=True)
class Actions:
    """Encoding of an agent's own actions as choices and numbers, in the order of its space.

    Attributes:
        counts: options of each choice, `[C]`.
        low: lowest numbers, `[N]` float32.
        high: highest numbers, `[N]` float32.
        build: makes what the environment takes of choices `[C]` int and numbers `[N]` float.
        joint: whether all choices are learned as one, over their combinations, which are counted in
            the order of `numpy.ndindex`.
        parts: of a Tuple or a Dict, each of its spaces.
    """

    counts: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray
    build: Callable[[np.ndarray, np.ndarray], Any]
    joint: bool = False
    parts: tuple["Actions", ...] = ()

    @property
    def learned_counts(self) -> tuple[int, ...]:
        """Options of each choice as it is learned: of one, where `joint`."""
        return (math.prod(self.counts),) if self.joint else self.counts

    @property
    def space(self) -> Space:
        """The same space as one of ours, as it is learned."""
        counts = self.learned_counts
        box = Box(self.low, self.high, self.low.shape) if self.low.size else None
        if not counts and box is not None:
            return box
        choices = Discrete(counts[0]) if len(counts) == 1 else MultiDiscrete(counts)
        return choices if box is None else Tuple((choices, box))

    def own(self, choices: np.ndarray, numbers: np.ndarray) -> Any:
        """Turn an action as it is learned into what the environment takes."""
        if self.joint:
            choices = np.array(np.unravel_index(int(choices[0]), self.counts))
        return self.build(choices, numbers)


def read_actions(space: Any, joint: bool = False) -> Actions:
    """Read an action space.

    Args:
        space: Gymnasium's.
        joint: learn several choices as one, over their combinations.

    Raises:
        ValueError: If it has other parts than choices and bounded numbers, or too many
            combinations; the message says why.
    """
    actions = _read(space)
    if not joint or len(actions.counts) < 2:
        return actions
    size = math.prod(actions.counts)
    if size > MAX_CHOICES:
        raise ValueError(
            f"{size:,} combinations are more than the {MAX_CHOICES:,} that can be learned as one "
            "choice; drop joint=True"
        )
    return dataclasses.replace(actions, joint=True)


def _read(space: Any) -> Actions:
    spaces = import_extra("gymnasium.spaces", "gymnasium")
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return _choices((int(space.n),), lambda choices, _: int(choices[0]) + start)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return _read_array(space)
    if isinstance(space, spaces.Box):
        return _read_box(space)
    if isinstance(space, spaces.Tuple):
        return _join([_read(part) for part in space.spaces], tuple)
    if isinstance(space, spaces.Dict):
        keys = tuple(space.spaces)
        parts = [_read(space.spaces[key]) for key in keys]
        return _join(parts, lambda own: dict(zip(keys, own, strict=True)))
    raise ValueError(f"{type(space).__name__} cannot be played; {REFUSED}")


def _choices(counts: tuple[int, ...], build: Callable[[np.ndarray, np.ndarray], Any]) -> Actions:
    nothing = np.zeros(0, np.float32)
    return Actions(counts, nothing, nothing, build)


def _read_array(space: Any) -> Actions:
    nvec = np.ravel(getattr(space, "nvec", np.full(space.shape, 2)))
    start = np.ravel(getattr(space, "start", np.zeros(space.shape, int)))
    return _integers(space, nvec, start)


def _integers(space: Any, counts: Iterable[int], start: np.ndarray) -> Actions:
    """Make a choice of each element of an array of integers from `start` on."""
    shape, dtype = space.shape, space.dtype
    return _choices(
        tuple(int(count) for count in counts),
        lambda choices, _: (choices + start).astype(dtype).reshape(shape),
    )


def _read_box(space: Any) -> Actions:
    if not math.prod(space.shape):
        raise ValueError("a Box of actions must have at least one element")
    if not np.issubdtype(space.dtype, np.floating):
        start = np.ravel(space.low)
        # As Python's integers, since the number of values need not fit into those of NumPy.
        ends = zip(start.tolist(), np.ravel(space.high).tolist(), strict=True)
        counts = [int(high) - int(low) + 1 for low, high in ends]
        if max(counts) > MAX_CHOICES:
            raise ValueError(
                f"an element of a Box of integers has {max(counts):,} values, more than the "
                f"{MAX_CHOICES:,} that can be options of a choice"
            )
        return _integers(space, counts, start)
    with np.errstate(over="ignore"):  # the greatest number of a float64 is infinite here
        low, high = (np.ravel(x).astype(np.float32) for x in (space.low, space.high))

    def build(_: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        values = numbers.reshape(space.shape).astype(space.dtype)
        return np.clip(values, space.low, space.high, out=values)

    return Actions((), low, high, build)


def _join(parts: Sequence[Actions], combine: Callable[[Any], Any]) -> Actions:
    """Make one of several actions at once."""
    if not parts:
        raise ValueError(f"it is empty; {REFUSED}")
    choice_ends = np.cumsum([len(part.counts) for part in parts])[:-1]
    number_ends = np.cumsum([part.low.size for part in parts])[:-1]

    def build(choices: np.ndarray, numbers: np.ndarray) -> Any:
        own = zip(
            parts, np.split(choices, choice_ends), np.split(numbers, number_ends), strict=True
        )
        return combine([part.build(*values) for part, *values in own])

    return Actions(
        tuple(count for part in parts for count in part.counts),
        low=np.concatenate([part.low for part in parts]),
        high=np.concatenate([part.high for part in parts]),
        build=build,
        parts=tuple(parts),
    )
