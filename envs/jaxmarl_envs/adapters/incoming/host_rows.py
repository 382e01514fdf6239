"""What games see and what their steps bring: a row of arrays for each, in memory of all processes.

Who plays a game writes into its row, and who asked for it reads there; nothing else carries arrays
of answers.
"""

import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_ALIGNED = 64  # bytes: arrays begin at multiples of it


class Frame(NamedTuple):
    """Observation of all slots: an `Observation` as NumPy arrays."""

    features: np.ndarray  # [A, ...] float32
    action_mask: np.ndarray  # [A, W] bool
    alive: np.ndarray  # [A] bool
    agent_mask: np.ndarray  # [A] bool


class GameStep(NamedTuple):
    """Result of an environment step."""

    reward: np.ndarray  # [A] float32
    terminated: np.ndarray  # [A] bool
    truncated: np.ndarray  # [A] bool
    metrics: np.ndarray  # [A, metrics] float32: the environment's own numbers


class ArraySpec(NamedTuple):
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: Any


class RowSpec(NamedTuple):
    """Shapes of the arrays of one game."""

    features: tuple[int, ...]  # [A, ...]
    options: int  # W
    metrics: int

    @property
    def frame(self) -> tuple[ArraySpec, ...]:
        """The arrays of a `Frame`."""
        slots = self.features[:1]
        return (
            ArraySpec(self.features, np.float32),
            ArraySpec((*slots, self.options), np.bool_),
            ArraySpec(slots, np.bool_),
            ArraySpec(slots, np.bool_),
        )

    @property
    def outcome(self) -> tuple[ArraySpec, ...]:
        """The arrays of a `GameStep`."""
        slots = self.features[:1]
        return (
            ArraySpec(slots, np.float32),
            ArraySpec(slots, np.bool_),
            ArraySpec(slots, np.bool_),
            ArraySpec((*slots, self.metrics), np.float32),
        )


class Rows:
    """Rows of games, counted from 0, as one process has them; there are as many as are reached for.

    Args:
        spec: of a row.
        file: such as `shared_file` makes, the same in all processes; it is closed with the rows.

    Attributes:
        spec: as given, and so is `file`.
        frame: what all slots see, `[rows, A, ...]`.
        outcome: what the latest step brought.
        final: what all slots saw right after it, of games in which they see something else now.
    """

    def __init__(self, spec: RowSpec, file: Any) -> None:
        self.spec, self.file = spec, file
        weakref.finalize(self, file.close)
        arrays = [*spec.frame, *spec.outcome, *spec.frame]
        starts = [0]
        for shape, dtype in arrays:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            starts.append(starts[-1] + -(-size // _ALIGNED) * _ALIGNED)
        self._row_bytes = starts.pop()
        self._arrays = list(zip(starts, arrays, strict=True))
        self._num_rows = 0

    def reach(self, num_rows: int) -> None:
        """Have at least so many rows; arrays of the rows that there were stay what they are."""
        if num_rows <= self._num_rows:
            return
        descriptor, needed = self.file.fileno(), num_rows * self._row_bytes
        if os.fstat(descriptor).st_size < needed:
            os.ftruncate(descriptor, 2 * needed)
        memory = mmap.mmap(descriptor, 0)
        self._num_rows = len(memory) // self._row_bytes
        found = [
            np.ndarray(
                (self._num_rows, *shape),
                dtype,
                memory,
                start,
                (self._row_bytes, *np.empty(shape, dtype).strides),
            )
            for start, (shape, dtype) in self._arrays
        ]
        self.frame, self.outcome = Frame(*found[:4]), GameStep(*found[4:8])
        self.final = Frame(*found[8:])

    def write(self, rows: Sequence[int], frame: Frame, outcome: GameStep | None) -> None:
        """Write arrays of several games, `[n, A, ...]`, into their rows."""
        parts = zip((*self.frame, *self.outcome), (*frame, *(outcome or ())), strict=False)
        for column, own in parts:
            column[rows] = own

    def keep_final(self, row: int, final: Frame) -> None:
        """Write what all slots of a game saw right after a step, `[A, ...]`."""
        for column, own in zip(self.final, final, strict=True):
            column[row] = own

    def read(self, rows: Sequence[int], finals: Sequence[int]) -> tuple[Frame, GameStep, Frame]:
        """Read several games, `[n, A, ...]`; arrays may change as these are played on.

        Args:
            rows: of the games.
            finals: those of them that have an own row of `final`.

        Returns:
            What all slots saw right after the step, what it brought, and what they see now.
        """
        index = _as_slice(rows)
        frame = Frame(*(column[index] for column in self.frame))
        outcome = GameStep(*(column[index] for column in self.outcome))
        if not finals:
            return frame, outcome, frame
        places = np.flatnonzero(np.isin(rows, finals))
        after = Frame(*map(np.copy, frame))
        for column, own in zip(self.final, after, strict=True):
            own[places] = column[np.asarray(rows)[places]]
        return after, outcome, frame


def shared_file(size: int = 0) -> Any:
    """Make a file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("jaxmarl-envs"), "wb+")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.truncate(size)
    return file


def _as_slice(rows: Sequence[int]) -> Any:
    """Return an index: a slice, which copies nothing, where rows are evenly spaced."""
    step = rows[1] - rows[0] if len(rows) > 1 else 1
    if step > 0 and list(rows) == list(range(rows[0], rows[-1] + 1, step)):
        return slice(rows[0], rows[-1] + 1, step)
    return np.asarray(rows)
