"""Six shuttles on a one-way guidepath, in plain Python: `jaxmarl_envs.make("shuttle_grid")`.

Everything that depends on cells alone is tabled once; a step then is a few loops over six shuttles.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

NUM_SHUTTLES, ROWS, COLS = 6, 6, 8
PORTS = ((0, 3), (5, 4))
MOVE = (2, 3)  # steps to move one cell, empty and loaded
TURN, HANDLING = 2, 4
LONGEST = max(*MOVE) + TURN
MAX_STEPS = 256
NUM_CELLS = ROWS * COLS
ROW, COLUMN = 0, 1
NO_EXIT = -1
RADIUS = 2
WINDOW = (2 * RADIUS + 1) ** 2
EGO, MATE = 16, 10
NUM_FEATURES = EGO + 2 * WINDOW + MATE * (NUM_SHUTTLES - 1)
WAIT_HALF = 8

PLACES = [divmod(cell, COLS) for cell in range(NUM_CELLS)]
PORT_CELLS = [row * COLS + col for row, col in PORTS]
STORAGE_CELLS = [cell for cell in range(NUM_CELLS) if cell not in PORT_CELLS]


def _exit(cell: int, axis: int) -> int:
    """The cell behind an exit; even rows lead east, odd west, even columns north, odd south."""
    row, col = PLACES[cell]
    if axis == ROW:
        col += -1 if row % 2 else 1
    else:
        row += 1 if col % 2 else -1
    return row * COLS + col if 0 <= row < ROWS and 0 <= col < COLS else NO_EXIT


EXITS = [(_exit(cell, ROW), _exit(cell, COLUMN)) for cell in range(NUM_CELLS)]


def _travel_times(move: int) -> list[list[list[int]]]:
    """`[cell][axis][target]`: least steps to the target for who has last moved along the axis."""
    far = 10**6
    times = np.full((NUM_CELLS, 2, NUM_CELLS), far)
    at_target = np.eye(NUM_CELLS, dtype=bool)
    before = np.empty_like(times)
    while not np.array_equal(times, before):
        before = times.copy()
        for cell, axis in itertools.product(range(NUM_CELLS), (ROW, COLUMN)):
            ways = [
                move + TURN * (axis != b) + times[goal, b]
                for b, goal in enumerate(EXITS[cell])
                if goal != NO_EXIT
            ]
            times[cell, axis] = np.where(at_target[cell], 0, np.min(ways, axis=0))
    return times.tolist()


TRAVEL = [_travel_times(move) for move in MOVE]  # [loaded][cell][axis][target]


def _longest_exit_time() -> int:
    """No shuttle ever sees a longer time until its target is served."""
    targets = (STORAGE_CELLS, PORT_CELLS)
    travel = max(
        MOVE[loaded] + TRAVEL[loaded][cell][axis][target]
        for loaded in (0, 1)
        for cell, axis in itertools.product(range(NUM_CELLS), (ROW, COLUMN))
        for target in targets[loaded]
    )
    return LONGEST + TURN + travel + HANDLING


TIME_SCALE = _longest_exit_time()


def _window_place(cell: int, other: int) -> int:
    """Return the index of `other` among the 25 cells around a cell; -1 for none."""
    (row, col), (other_row, other_col) = PLACES[cell], PLACES[other]
    down, right = other_row - row + RADIUS, other_col - col + RADIUS
    side = 2 * RADIUS + 1
    return down * side + right if 0 <= down < side and 0 <= right < side else -1


def _terrain(cell: int) -> np.ndarray:
    """`[25]`: -1 off the grid, 1 for a port."""
    seen = np.full(WINDOW, -1.0, np.float32)
    for other in range(NUM_CELLS):
        if (place := _window_place(cell, other)) >= 0:
            seen[place] = other in PORT_CELLS
    return seen


WINDOW_PLACE = [[_window_place(c, other) for other in range(NUM_CELLS)] for c in range(NUM_CELLS)]
TERRAIN = [_terrain(cell) for cell in range(NUM_CELLS)]
MASKS = [np.array([1, *(e != NO_EXIT for e in pair)], np.float32) for pair in EXITS]
HEIGHT, WIDTH = ROWS - 1, COLS - 1


class ShuttleGridTwin:
    """State lists have an entry for each shuttle; a shuttle moves exactly while `to != at`.

    Args:
        draw_job: `(shuttle, number of the job)` to a storage cell and a port; None to draw both
            uniformly from the generator of the episode.
    """

    agents = tuple(f"shuttle_{i}" for i in range(NUM_SHUTTLES))
    feature_widths = (NUM_FEATURES,) * NUM_SHUTTLES
    num_actions = 3
    bounds = (-1.0, 1.0)
    truncated = False

    def __init__(self, draw_job: Callable[[int, int], tuple[int, int]] | None = None) -> None:
        self._draw_job = draw_job or self._random_job

    def reset(self, rng: np.random.Generator) -> None:
        """Distinct uniform cells, everyone empty, and each with its first job."""
        self._rng = rng
        self.set_state(rng.permutation(NUM_CELLS)[:NUM_SHUTTLES].tolist())

    def set_state(self, cells: list[int]) -> None:
        """Begin a shift with shuttles on these cells."""
        self.at, self.to = list(cells), list(cells)
        self.axis = [ROW if EXITS[cell][ROW] != NO_EXIT else COLUMN for cell in cells]
        self.loaded, self.wait = [0] * NUM_SHUTTLES, [0] * NUM_SHUTTLES
        self.num_delivered = [0] * NUM_SHUTTLES
        self.jobs = [self._draw_job(i, 0) for i in range(NUM_SHUTTLES)]
        self.busy = [
            HANDLING if cell == job[0] else 0 for cell, job in zip(cells, self.jobs, strict=True)
        ]
        self.time, self.over, self._shown = 0, False, None

    def step(self, actions: Sequence[int]) -> Sequence[float]:
        """Reserve, then let time pass; everybody earns the deliveries of all."""
        if self.over:
            return (0.0,) * NUM_SHUTTLES
        self._reserve(actions)
        delivered = sum(self._complete(i) for i in range(NUM_SHUTTLES))
        self.time += 1
        self.over, self._shown = self.time >= MAX_STEPS, None
        return (float(delivered),) * NUM_SHUTTLES

    def _reserve(self, actions: Sequence[int]) -> None:
        """Start moves; among shuttles that want the same cell, the highest priority wins."""
        held = {*self.at, *self.to}
        best: dict[int, tuple[int, int]] = {}
        for i in range(NUM_SHUTTLES):
            if self.busy[i]:
                self.wait[i] = 0
                continue
            goal = EXITS[self.at[i]][actions[i] - 1] if actions[i] else NO_EXIT
            if goal != NO_EXIT and goal not in held:
                turn = (i + self.time) % NUM_SHUTTLES
                rank = 1_000_000 * self.loaded[i] + 10 * min(self.wait[i], 999) + turn
                if goal not in best or best[goal][0] < rank:
                    best[goal] = (rank, i)
            self.wait[i] += 1
        for goal, (_, i) in best.items():
            axis = actions[i] - 1
            self.busy[i] = MOVE[self.loaded[i]] + TURN * (axis != self.axis[i])
            self.to[i], self.axis[i], self.wait[i] = goal, axis, 0

    def _complete(self, i: int) -> int:
        """A step passes for a shuttle; 1 if it delivered."""
        if self.busy[i] == 0:
            return 0
        self.busy[i] -= 1
        if self.busy[i]:
            return 0
        if self.to[i] != self.at[i]:
            self.at[i] = self.to[i]
            if self.at[i] == self.jobs[i][self.loaded[i]]:
                self.busy[i] = HANDLING
            return 0
        self.loaded[i] ^= 1
        if self.loaded[i]:
            return 0
        self.num_delivered[i] += 1
        self.jobs[i] = self._draw_job(i, self.num_delivered[i])
        return 1

    def acting(self) -> Sequence[int]:
        """The idle ones."""
        return () if self.over else [i for i in range(NUM_SHUTTLES) if self.busy[i] == 0]

    def action_mask(self, agent: int) -> np.ndarray:
        """Holding, and the exits that there are."""
        return MASKS[self.to[agent]]

    def features(self, agent: int) -> np.ndarray:
        """`[116]`: itself, the cells around it, the others."""
        row = np.zeros(NUM_FEATURES, np.float32)
        at = self.at[agent]
        row[:EGO] = self._ego(agent)
        places = WINDOW_PLACE[at]
        for i in range(NUM_SHUTTLES):
            if i != agent:
                for cell in (self.at[i], self.to[i]):
                    if places[cell] >= 0:
                        row[EGO + places[cell]] = 1.0
        row[EGO + WINDOW : EGO + 2 * WINDOW] = TERRAIN[at]
        if self._shown is None:
            self._shown = self._show()
        shown, origin = self._shown
        mates = shown[agent + 1 : agent + NUM_SHUTTLES] - origin[agent]
        row[EGO + 2 * WINDOW :] = mates.reshape(-1)
        return row

    def _ego(self, i: int) -> list[float]:
        at, busy, loaded, target = self.at[i], self.busy[i], self.loaded[i], self._target(i)
        (row, col), (target_row, target_col) = PLACES[at], PLACES[target]
        exits = EXITS[self.to[i]]
        legal = [goal != NO_EXIT for goal in exits]
        times = [
            busy + MOVE[loaded] + TURN * (b != self.axis[i]) + TRAVEL[loaded][goal][b][target]
            for b, goal in enumerate(exits)
            if goal != NO_EXIT
        ]
        remaining = busy if busy and self.to[i] == at else min(times) + HANDLING
        via = [(times.pop(0) + HANDLING) / TIME_SCALE if there else 1.0 for there in legal]
        free = [there and not self._held(goal) for there, goal in zip(legal, exits, strict=True)]
        return [
            (2 * row - HEIGHT) / HEIGHT,
            (2 * col - WIDTH) / WIDTH,
            2 * self.axis[i] - 1,
            loaded,
            busy / LONGEST,
            self.wait[i] / (self.wait[i] + WAIT_HALF),
            (target_row - row) / HEIGHT,
            (target_col - col) / WIDTH,
            remaining / TIME_SCALE,
            *legal,
            *free,
            *via,
            1 - self.time / MAX_STEPS,
        ]

    def _show(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what each shows to others `[2 A, 10]`, twice over, and its place `[A, 10]`."""
        shown, origin = [], []
        for i in range(NUM_SHUTTLES):
            at, to, busy, wait = self.at[i], self.to[i], self.busy[i], self.wait[i]
            (row, col), (to_row, to_col) = PLACES[at], PLACES[to]
            target_row, target_col = PLACES[self._target(i)]
            down, right = row / HEIGHT, col / WIDTH
            shown.append(
                (
                    *(down, right, self.loaded[i], busy > 0, busy / LONGEST),
                    *(to_row - row, to_col - col, target_row / HEIGHT, target_col / WIDTH),
                    wait / (wait + WAIT_HALF),
                )
            )
            origin.append((down, right, 0, 0, 0, 0, 0, down, right, 0))
        return np.array(shown * 2, np.float32), np.array(origin, np.float32)

    def _target(self, i: int) -> int:
        return self.jobs[i][self.loaded[i]]

    def _held(self, cell: int) -> bool:
        return cell in self.at or cell in self.to

    def _random_job(self, shuttle: int, index: int) -> tuple[int, int]:
        storage, port = self._rng.random(2).tolist()
        num_storage, num_ports = len(STORAGE_CELLS), len(PORT_CELLS)
        return STORAGE_CELLS[int(storage * num_storage)], PORT_CELLS[int(port * num_ports)]
