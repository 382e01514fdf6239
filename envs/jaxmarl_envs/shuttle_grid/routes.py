"""Static tables of a one-way guidepath: exits, shortest travel times and local terrain.

Cells are numbered row by row, `cell = row * num_cols + col`. Even rows run east and odd rows west;
even columns run north (towards row 0) and odd columns south. So a cell has at most two exits, one
along its row (axis 0) and one along its column (axis 1), and at most two entries. Everything here
is NumPy and runs once, when an environment is built.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROW, COLUMN = 0, 1  # axes of travel, and the index of an exit
NO_EXIT = -1
UNREACHABLE = 1 << 24  # more steps than any route takes, and still safe to add to
WINDOW_RADIUS = 2
WINDOW_CELLS = (2 * WINDOW_RADIUS + 1) ** 2  # 25, so a window fits the bits of one word
MAX_CELLS = 1024


@dataclass(frozen=True)
class Timings:
    """Duration of each operation in steps."""

    move_empty: int = 2  # one cell, without a load
    move_loaded: int = 3  # one cell, with a load
    turn: int = 2  # added to a move along the other axis than the last one
    handling: int = 4  # picking up or putting down

    def __post_init__(self) -> None:
        lowest = {"move_empty": 1, "move_loaded": 1, "turn": 0, "handling": 1}
        for name, minimum in lowest.items():
            steps = getattr(self, name)
            if not is_int(steps) or not minimum <= steps <= 1000:
                raise ValueError(f"{name}={steps!r}: must be an integer from {minimum} to 1000")

    @property
    def longest(self) -> int:
        """Return the maximum number of steps of one operation of a shuttle."""
        return max(max(self.move_empty, self.move_loaded) + self.turn, self.handling)


def is_int(value: object) -> bool:
    """Return whether `value` is a whole number; a bool is not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class Guidepath:
    """Streets, ports and timings, and all that follows from them.

    Args:
        num_rows: even, at least 2; with an odd number a corner of the grid would have no exit.
        num_cols: even, at least 2.
        ports: `(row, col)` of each port; at least one, and not every cell.
        timings: steps of each operation.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, num_rows: int, num_cols: int, ports: Sequence[tuple[int, int]], timings: Timings
    ):
        _check_size(num_rows, num_cols)
        is_port = _port_map(num_rows, num_cols, ports)
        self.num_rows, self.num_cols, self.timings = num_rows, num_cols, timings
        self.num_cells = num_rows * num_cols
        self.port_cells = np.flatnonzero(is_port).astype(np.int32)
        self.storage_cells = np.flatnonzero(~is_port).astype(np.int32)
        self.exits = exit_cells(num_rows, num_cols)  # [cells, 2]
        self.port_bits = window_bits(is_port, outside=False)  # [cells]
        self.wall_bits = window_bits(np.zeros_like(is_port), outside=True)  # [cells]
        moves = (timings.move_empty, timings.move_loaded)
        # [loaded, cell, axis, target]
        self.travel_times = np.stack([travel_times(self.exits, m, timings.turn) for m in moves])
        self.time_scale = self._longest_exit_time()

    @property
    def is_symmetric(self) -> bool:
        """Return whether a turn by 180 degrees leads every port to a port; streets always match."""
        return set(self.num_cells - 1 - self.port_cells) == set(self.port_cells)

    @property
    def mean_job(self) -> float:
        """Return the mean steps between deliveries without other shuttles in the way."""
        to_load = self.travel_times[0].mean(axis=1)[np.ix_(self.port_cells, self.storage_cells)]
        to_port = self.travel_times[1].mean(axis=1)[np.ix_(self.storage_cells, self.port_cells)]
        return float(to_load.mean() + to_port.mean()) + 2 * self.timings.handling

    def _longest_exit_time(self) -> int:
        """Compute `S`: no shuttle sees more steps until its target is served, via either exit."""
        targets = (self.storage_cells, self.port_cells)
        moves = (self.timings.move_empty, self.timings.move_loaded)
        travel = max(
            move + int(self.travel_times[loaded][..., targets[loaded]].max())
            for loaded, move in enumerate(moves)
        )
        return self.timings.longest + self.timings.turn + travel + self.timings.handling


def exit_cells(num_rows: int, num_cols: int) -> np.ndarray:
    """List the cell behind each row and column exit, or `NO_EXIT`, `[cells, 2]` int32."""
    row, col = np.divmod(np.arange(num_rows * num_cols), num_cols)
    to_col = col + np.where(row % 2 == 0, 1, -1)
    to_row = row + np.where(col % 2 == 0, -1, 1)
    by_row = np.where((to_col >= 0) & (to_col < num_cols), row * num_cols + to_col, NO_EXIT)
    by_col = np.where((to_row >= 0) & (to_row < num_rows), to_row * num_cols + col, NO_EXIT)
    return np.stack([by_row, by_col], axis=1).astype(np.int32)


def travel_times(exits: np.ndarray, move: int, turn: int) -> np.ndarray:
    """Compute the shortest times over the guidepath without others in the way.

    Bellman's equation, iterated to its fixed point for all targets at once::

        D[c, a, g] = 0                                                       if c = g
        D[c, a, g] = min over exits b of c:  move + turn * [a != b] + D[exit(c, b), b, g]

    Args:
        exits: `[cells, 2]` from `exit_cells`.
        move: steps for one cell.
        turn: steps added when the axis of travel changes.

    Returns:
        `D [cells, 2, cells]` int32: steps from standing on cell `c`, having last moved along axis
        `a`, to standing on cell `g`; the axis on arrival is free.
    """
    num_cells = len(exits)
    at_target = np.eye(num_cells, dtype=bool)[:, None, :]
    times = np.where(at_target, 0, np.full((num_cells, 2, num_cells), UNREACHABLE))
    while True:
        # [cells, exit, cells]: the time through each exit, before the turn is added.
        through = np.stack([move + times[exits[:, b], b] for b in (ROW, COLUMN)], axis=1)
        through = np.where(exits[:, :, None] == NO_EXIT, UNREACHABLE, through)
        relaxed = np.minimum(through, through[:, ::-1] + turn)
        relaxed = np.where(at_target, 0, np.minimum(relaxed, times))
        if np.array_equal(relaxed, times):
            return times.astype(np.int32)
        times = relaxed


def window_bits(marked: np.ndarray, *, outside: bool) -> np.ndarray:
    """Write the 5 x 5 neighbourhood of every cell as bits.

    Args:
        marked: `[rows, cols]` bool.
        outside: what cells off the grid count as.

    Returns:
        `[cells]` uint32; bit `5 * (row offset + 2) + (col offset + 2)` is set where that neighbour
        is marked.
    """
    num_rows, num_cols = marked.shape
    padded = np.pad(marked, WINDOW_RADIUS, constant_values=outside)
    bits = np.zeros(num_rows * num_cols, np.uint32)
    width = 2 * WINDOW_RADIUS + 1
    for k in range(WINDOW_CELLS):
        row, col = divmod(k, width)
        shifted = padded[row : row + num_rows, col : col + num_cols]
        bits |= shifted.reshape(-1).astype(np.uint32) << np.uint32(k)
    return bits


def _check_size(num_rows: int, num_cols: int) -> None:
    for name, value in (("num_rows", num_rows), ("num_cols", num_cols)):
        if not is_int(value) or value < 2 or value % 2:
            raise ValueError(
                f"{name}={value!r}: must be an even integer of at least 2, "
                "or else a corner of the one-way grid has no exit"
            )
    if num_rows * num_cols > MAX_CELLS:
        raise ValueError(
            f"num_rows * num_cols = {num_rows * num_cols}: at most {MAX_CELLS} cells are supported"
        )


def _port_map(num_rows: int, num_cols: int, ports: Sequence[tuple[int, int]]) -> np.ndarray:
    """Mark where the ports are, `[rows, cols]` bool."""
    is_port = np.zeros((num_rows, num_cols), bool)
    for port in ports:
        if len(port) != 2 or not all(map(is_int, port)):
            raise ValueError(f"port {port!r}: must be a pair of integers (row, col)")
        if not (0 <= port[0] < num_rows and 0 <= port[1] < num_cols):
            raise ValueError(
                f"port {port!r}: off the grid, whose rows are 0 to {num_rows - 1} "
                f"and columns 0 to {num_cols - 1}"
            )
        if is_port[port]:
            raise ValueError(f"ports={ports!r}: {port!r} is listed twice")
        is_port[port] = True
    if not is_port.any() or is_port.all():
        raise ValueError(f"ports={ports!r}: there must be at least one port and one other cell")
    return is_port
