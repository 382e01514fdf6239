"""What one slot's agent observes and may do, written into its row of a game's arrays.

Most agents observe a Box and act by a Discrete, and there an array is checked and copied with as
few calls as possible: with many agents, these cost more than the game itself. Everything else, and
whatever is wrong, is left to the agent's own spaces.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, OBSERVATION, AgentSpaces
from jaxmarl_envs.spaces import Box, Space

_NUMBERS = "fiub"  # kinds of NumPy's dtypes
_BITS = {0, 1}
MANY = 16  # agents whose observations are sooner copied all at once


class HasSpaces(Protocol):
    """The spaces of an agent."""

    @property
    def observation(self) -> Box:
        """The space of its features."""
        ...

    @property
    def action(self) -> Space:
        """The space of its actions."""
        ...


class Spaces(HasSpaces, Protocol):
    """How a slot's own observations and actions become arrays."""

    @property
    def own_observation(self) -> Any:
        """The space of what it observes, as the environment has it."""
        ...

    def features(self, seen: Any) -> np.ndarray:
        """Write an observation as float32 of the shape of `self.observation`."""
        ...

    def legal(self, seen: Any, info: Any) -> Sequence[np.ndarray | None] | None:
        """Return which options of each choice are legal, `[options]` bool each; None for all."""
        ...

    def own(self, choices: np.ndarray, numbers: np.ndarray) -> Any:
        """Turn choices `[C]` and numbers `[N]` into what the environment takes."""
        ...


class SlotRow:
    """The row of a slot.

    Args:
        spaces: of its agent.
        features: the row of all features, `[...]` float32; padded where it is wider than the space.
        legal: the row of all legal options, `[W]` bool.
        exists: which options there are, `[W]` bool.
        starts: where the options of each choice begin.
    """

    def __init__(
        self,
        spaces: Spaces,
        features: np.ndarray,
        legal: np.ndarray,
        exists: np.ndarray,
        starts: Sequence[int],
    ) -> None:
        self._spaces = spaces
        self._features = features[tuple(map(slice, spaces.observation.shape))]
        self._legal, self._exists, self._starts = legal, exists, starts
        # For the short way: the row in the shape of an observation, and of its only choice.
        self._plain: np.ndarray | None = None
        if isinstance(spaces, AgentSpaces) and spaces.is_plain and self._features.data.contiguous:
            self._plain = self._features.reshape(spaces.own_observation.shape)
            self._shape, self._masked = self._plain.shape, spaces.masked
            self._options = legal[: spaces.num_options]
            self._mask_shape = self._options.shape

    @property
    def own_shape(self) -> tuple[int, ...] | None:
        """The shape of observations that fill the row as they are; None where others come."""
        return None if self._plain is None or self._masked else self._plain.shape

    def show(self, seen: Any, info: Mapping[str, Any] | None, acts: bool) -> None:
        """Write an observation, and the mask that is in it or in the infos.

        All options count as legal where an agent that does not act has none.

        Raises:
            ValueError: If it does not fit the agent's spaces.
        """
        if self._plain is not None and self._shows_plainly(self._plain, seen, info, acts):
            return
        self._features[...] = self._spaces.features(seen)
        legal = self._spaces.legal(seen, info)
        self._legal[:] = self._exists
        if legal is None:
            return
        for start, options in zip(self._starts, legal, strict=False):
            if options is not None and (acts or options.any()):
                self._legal[start : start + options.size] = options

    def _shows_plainly(
        self, row: np.ndarray, seen: Any, info: Mapping[str, Any] | None, acts: bool
    ) -> bool:
        """Write arrays of the shapes that they should have; return whether they have them."""
        if self._masked:
            if type(seen) is not dict or len(seen) != 2:
                return False
            mask = seen.get(MASK)
            if mask is None:
                return False
            for key in seen:
                if key in OBSERVATION:
                    seen = seen[key]
                    break
        else:
            mask = info.get(MASK) if isinstance(info, (dict, Mapping)) else None
        if type(seen) is not np.ndarray or seen.shape != self._shape:
            return False
        if seen.dtype.kind not in _NUMBERS:
            return False
        if mask is None:
            self._legal[...] = self._exists
        elif type(mask) is not np.ndarray or mask.shape != self._mask_shape:
            return False
        else:
            entries = set(mask.tolist())
            if not entries <= _BITS or mask.dtype.kind not in _NUMBERS:
                return False
            self._options[...] = mask if acts or 1 in entries else 1
        row[...] = seen
        return True


def rows_in_common(rows: Sequence[SlotRow], features: np.ndarray) -> np.ndarray | None:
    """Return a view of `features`, `[A, *shape]`, where many agents observe arrays of one shape.

    Args:
        rows: of all slots.
        features: of all slots, `[A, ...]`.

    Returns:
        None where agents are few, their shapes differ, or they do not fill their rows.
    """
    shapes = {row.own_shape for row in rows}
    shape = shapes.pop()
    if len(rows) < MANY or shapes or shape is None or math.prod(shape) != features[0].size:
        return None
    return features.reshape(-1, *shape)


def stack(seen: Sequence[Any], rows: np.ndarray, where: slice | np.ndarray) -> bool:
    """Write observations into `rows[where]`; return False where one is no array that fits.

    Rows may have been written to then.
    """
    shape = rows.shape[1:]
    # Where others have another shape than the first one, NumPy raises a ValueError.
    if set(map(type, seen)) != {np.ndarray} or seen[0].shape != shape:
        return False
    is_view = isinstance(where, slice)
    found = rows[where] if is_view else np.empty((len(seen), *shape), rows.dtype)
    try:
        found[...] = seen
    except (ValueError, TypeError):
        return False
    if not is_view:
        rows[where] = found
    return True
