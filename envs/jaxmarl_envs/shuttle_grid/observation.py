"""Observations of `shuttle_grid`: `[A, 16 + 50 + 10 (A - 1)]` features, all in [-1, 1].

With `Sight.full` there are `3 + 6 (A - 1)` more; with `Sight.half_turn` shuttles in the
lower half of the hall see it turned by 180 degrees.

Below, `R` and `C` are the numbers of rows and columns, "node" is the cell where the shuttle will
act next (the one that it is entering, else its own), `B` is the longest operation and `S` the
longest time via an exit (`Guidepath.time_scale`), both in steps.

======== ============================ =================================================
columns  what                         value
======== ============================ =================================================
0, 1     row, column                  `2 row / (R - 1) - 1`, `2 col / (C - 1) - 1`
2        axis                         -1 row, 1 column
3        loaded                       0 or 1
4        steps busy                   `busy / B`
5        wait                         `wait / (wait + 8)`
6, 7     target relative to me        `Δrow / (R - 1)`, `Δcol / (C - 1)`
8        shortest remaining time      least of 13, 14; at the target `busy / S`
9, 10    row, column exit legal       0 or 1; of the node
11, 12   row, column exit free now    1 if legal and held by no other; of the node
13, 14   time via row, column exit    `ShuttleState.exit_times / S`; 1 where not legal
15       time left                    `1 - time / max_steps`
16..40   window, held by another      0 or 1; the 5 x 5 cells around me, row by row
41..65   window, terrain              -1 off the grid, 1 port, 0 otherwise
66..     mates, ten columns each      shuttles `i + 1, i + 2, ...` modulo A
+0, +1   cell relative to me          `Δrow / (R - 1)`, `Δcol / (C - 1)`
+2       loaded                       0 or 1
+3, +4   busy, steps busy             0 or 1, `busy / B`
+5, +6   direction of its move        rows and columns that it is moving by: -1, 0, 1
+7, +8   its target relative to me    `Δrow / (R - 1)`, `Δcol / (C - 1)`
+9       wait                         `wait / (wait + 8)`
======== ============================ =================================================

In full, behind all of these:

======== ============================ =================================================
+0, +1   port of my job relative      `Δrow / (R - 1)`, `Δcol / (C - 1)`
+2       my turn to go first          `(i + time) mod A / A`: who is level yields to a higher one
+3..     mates, six columns each      shuttles `i + 1, i + 2, ...` modulo A
+0       its axis                     -1 row, 1 column
+1, +2   its times via its exits      `ShuttleState.exit_times / S`; 1 where not legal
+3, +4   port of its job relative     `Δrow / (R - 1)`, `Δcol / (C - 1)`
+5       has precedence over me       1 if it gets a cell that we both ask for now
======== ============================ =================================================

Mates are listed in cyclic order since precedence between shuttles is cyclic too: a policy that all
share then finds the same relation in the same columns whichever shuttle it drives. The wait feature
keeps its resolution for the short waits that ordinary traffic has and still shows a deadlock.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.shuttle_grid.routes import NO_EXIT, WINDOW_CELLS, WINDOW_RADIUS, Guidepath
from jaxmarl_envs.shuttle_grid.state import ShuttleState

EGO_WIDTH = 16
MATE_WIDTH = 10
FULL_EGO_WIDTH = 3
FULL_MATE_WIDTH = 6
EXIT_FREE = slice(11, 13)  # the columns "row, column exit free now"
Sign = jax.Array | np.ndarray  # [A] int: -1 for who sees the hall turned round, else 1
WAIT_HALF = 8  # waits at which the wait feature is one half


@dataclass(frozen=True)
class Sight:
    """Options of observations: further columns, and the orientation of the hall.

    Attributes:
        full: adds what precedence and the mates' routes depend on, in the columns tabled last.
        half_turn: shuttles in the lower half of the hall see everything turned by 180 degrees, as
            if they stood where that turn takes them. Streets and timings look the same from there.
    """

    full: bool = False
    half_turn: bool = False

    def width(self, num_shuttles: int) -> int:
        """Count the features of each shuttle."""
        num_mates = num_shuttles - 1
        width = EGO_WIDTH + 2 * WINDOW_CELLS + MATE_WIDTH * num_mates
        return width + self.full * (FULL_EGO_WIDTH + FULL_MATE_WIDTH * num_mates)


def features(
    state: ShuttleState,
    path: Guidepath,
    max_steps: int | jax.Array,
    priority: jax.Array,
    sight: Sight,
) -> jax.Array:
    """Compute what every shuttle sees, `[A, sight.width(A)]` float32, as tabled above.

    Args:
        state: of one environment.
        path: its streets.
        max_steps: steps of a shift.
        priority: `[A]` int, the highest of which gets a cell that several ask for.
        sight: what is shown.
    """
    # Which way rows and columns count from where each shuttle stands, [A].
    sign: Sign = np.ones(len(state.cell), np.int32)
    if sight.half_turn:
        sign = jnp.where(2 * (state.cell // path.num_cols) >= path.num_rows, -1, 1)
    parts = [_ego(state, path, max_steps, sign), _window(state, path, sign)]
    if len(state.cell) > 1:
        parts.append(_mates(state, path, sign))
    if sight.full:
        parts.append(_full_ego(state, path, sign))
    if sight.full and len(state.cell) > 1:
        parts.append(_full_mates(state, path, priority, sign))
    # Fused into the concatenation, the parts would be computed with a branch for every element.
    return jnp.concatenate(jax.lax.optimization_barrier(parts), axis=1)


def held_by_another(cell: jax.Array, state: ShuttleState) -> jax.Array:
    """Return whether another shuttle stands on, leaves or enters the exits `cell [A]`, `[A]` bool.

    A shuttle's exits are never cells that it holds itself (one-way streets lead nowhere and back in
    two moves), so there is no need to leave out the shuttle that asks.
    """
    asked = cell[:, None]
    return ((asked == state.cell) | (asked == state.reserved)).any(axis=1)


def _ego(state: ShuttleState, path: Guidepath, max_steps: int | jax.Array, sign: Sign) -> jax.Array:
    """Compute what every shuttle sees of itself and its exits, `[A, 16]` float32."""
    row, col = jnp.divmod(state.cell, path.num_cols)
    target_row, target_col = jnp.divmod(state.target, path.num_cols)
    exits = jnp.asarray(path.exits)[state.reserved]  # [A, 2]
    legal = exits != NO_EXIT
    free = [legal[:, b] & ~held_by_another(exits[:, b], state) for b in range(2)]
    handling = (state.busy > 0) & (state.reserved == state.cell)
    remaining = jnp.where(handling, state.busy, state.exit_times.min(axis=1))
    via = _exit_times(state, path)
    columns = [
        # One division of integers each: rounding then never leads out of [-1, 1].
        sign * (2 * row - (path.num_rows - 1)) / (path.num_rows - 1),
        sign * (2 * col - (path.num_cols - 1)) / (path.num_cols - 1),
        2 * state.axis - 1,
        state.loaded,
        state.busy / path.timings.longest,
        _wait(state),
        sign * (target_row - row) / (path.num_rows - 1),
        sign * (target_col - col) / (path.num_cols - 1),
        remaining / path.time_scale,
        *(legal[:, 0], legal[:, 1], *free, via[:, 0], via[:, 1]),
        jnp.broadcast_to(jnp.maximum(1 - state.time / max_steps, 0), row.shape),
    ]
    return _columns(columns)


def _wait(state: ShuttleState) -> jax.Array:
    return state.wait / (state.wait + WAIT_HALF)


def _exit_times(state: ShuttleState, path: Guidepath) -> jax.Array:
    return jnp.minimum(state.exit_times / path.time_scale, 1.0)


def _window(state: ShuttleState, path: Guidepath, sign: Sign) -> jax.Array:
    """Compute the windows, `[A, 50]` float32, each 5 x 5 window assembled as bits of one word."""
    held = _held_bits(state, path, sign)
    # Seen the other way up, the hall around a cell is what lies around the opposite one.
    cell = jnp.where(sign < 0, path.num_cells - 1 - state.cell, state.cell)
    port = jnp.asarray(path.port_bits)[cell]
    wall = jnp.asarray(path.wall_bits)[cell]
    held, port, wall = (x[:, None] for x in jax.lax.optimization_barrier((held, port, wall)))
    column = np.arange(2 * WINDOW_CELLS, dtype=np.uint32)
    is_terrain, place = column >= WINDOW_CELLS, column % WINDOW_CELLS
    plus = (jnp.where(is_terrain, port, held) >> place) & 1
    minus = (jnp.where(is_terrain, wall, jnp.uint32(0)) >> place) & 1
    return plus.astype(jnp.float32) - minus.astype(jnp.float32)


def _held_bits(state: ShuttleState, path: Guidepath, sign: Sign) -> jax.Array:
    """Mark which cells of each shuttle's window others hold, `[A]` uint32, as bits."""
    num = len(state.cell)
    width = 2 * WINDOW_RADIUS + 1
    row, col = jnp.divmod(state.cell, path.num_cols)

    def bits(held: jax.Array) -> jax.Array:  # [A] cells -> [A, A], seen by i, held by j
        held_row, held_col = jnp.divmod(held, path.num_cols)
        down = sign[:, None] * (held_row - row[:, None]) + WINDOW_RADIUS
        right = sign[:, None] * (held_col - col[:, None]) + WINDOW_RADIUS
        inside = (down >= 0) & (down < width) & (right >= 0) & (right < width)
        place = jnp.where(inside, width * down + right, 0).astype(jnp.uint32)
        return jnp.where(inside, jnp.uint32(1) << place, jnp.uint32(0))

    seen = bits(state.cell) | bits(state.reserved)
    # Nobody else holds the same cell, so the sum over shuttles is the union of their bits.
    return jnp.where(np.eye(num, dtype=bool), jnp.uint32(0), seen).sum(axis=1, dtype=jnp.uint32)


def _mates(state: ShuttleState, path: Guidepath, sign: Sign) -> jax.Array:
    """Compute what each mate shows to all, less where I stand, `[A, 10 (A - 1)]` float32."""
    row, col = jnp.divmod(state.cell, path.num_cols)
    to_row, to_col = jnp.divmod(state.reserved, path.num_cols)
    target_row, target_col = jnp.divmod(state.target, path.num_cols)
    height, width = path.num_rows - 1, path.num_cols - 1
    here = (row / height, col / width)
    zeros = (jnp.zeros_like(row),)
    shown = (
        *here,
        *(state.loaded, state.busy > 0, state.busy / path.timings.longest),
        *(to_row - row, to_col - col),
        *(target_row / height, target_col / width),
        _wait(state),
    )
    shown = _columns(shown)
    origin = _columns((*here, *zeros * 5, *here, *zeros))
    turns = np.array([True, True, False, False, False, True, True, True, True, False])
    return _of_mates(shown, origin, jnp.where(turns, sign[:, None], 1))


def _of_mates(shown: jax.Array, origin: jax.Array, sign: Sign) -> jax.Array:
    """Line up what mates show, `[A, N]`, less my origin, times my sign, `[A, N (A - 1)]`."""
    # Computed once, and not again for every mate that looks on.
    shown, origin = jax.lax.optimization_barrier((shown, origin))
    mates = [sign * (jnp.roll(shown, -k, axis=0) - origin) for k in range(1, len(shown))]
    return jnp.concatenate(mates, axis=1)


def _full_ego(state: ShuttleState, path: Guidepath, sign: Sign) -> jax.Array:
    """Compute the port of each shuttle's job and its turn, `[A, 3]` float32."""
    row, col = jnp.divmod(state.cell, path.num_cols)
    port_row, port_col = jnp.divmod(state.port, path.num_cols)
    num = len(row)
    columns = [
        sign * (port_row - row) / (path.num_rows - 1),
        sign * (port_col - col) / (path.num_cols - 1),
        (jnp.arange(num) + state.time) % num / num,
    ]
    return _columns(columns)


def _full_mates(state: ShuttleState, path: Guidepath, priority: jax.Array, sign: Sign) -> jax.Array:
    """Compute axes, routes and precedence of mates, `[A, 6 (A - 1)]` float32."""
    row, col = jnp.divmod(state.cell, path.num_cols)
    port_row, port_col = jnp.divmod(state.port, path.num_cols)
    height, width = path.num_rows - 1, path.num_cols - 1
    via = _exit_times(state, path)
    zeros = (jnp.zeros_like(row),)
    ports = (port_row / height, port_col / width)
    shown = _columns((2 * state.axis - 1, via[:, 0], via[:, 1], *ports, *zeros))
    origin = _columns((*zeros * 3, row / height, col / width, *zeros))
    turns = np.array([False, False, False, True, True, False])
    mates = _of_mates(shown, origin, jnp.where(turns, sign[:, None], 1))
    num = len(row)
    before = [jnp.roll(priority, -k) > priority for k in range(1, num)]
    last = np.arange(mates.shape[1]) % FULL_MATE_WIDTH == FULL_MATE_WIDTH - 1
    return jnp.where(last, jnp.repeat(_columns(before), FULL_MATE_WIDTH, axis=1), mates)


def _columns(columns: Iterable[jax.Array]) -> jax.Array:
    """Put arrays `[A]` of any type side by side as float32."""
    return jnp.stack([jnp.asarray(c, jnp.float32) for c in columns], axis=1)
