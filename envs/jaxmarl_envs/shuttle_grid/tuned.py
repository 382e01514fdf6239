"""A dispatcher whose costs were tuned: detours round where others often stand, waits that pay.

Each shuttle for itself takes the exit of the least cost, in steps: the move, the cheapest way on
from there, and a penalty if another holds the cell behind it now. The penalty tells apart what the
holder does there, along which axis it does and whether it is loaded, and grows with how long it
will be busy. On the way on every move costs what it takes and a share of how often one is in the
way there, `Costs.edge`. A half-turn of the hall leaves all costs as they are.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import Observation
from jaxmarl_envs.shuttle_grid.dispatchers import Dispatcher
from jaxmarl_envs.shuttle_grid.routes import NO_EXIT, UNREACHABLE, Guidepath, Timings
from jaxmarl_envs.shuttle_grid.state import (
    LEAVE_BY_COLUMN,
    LEAVE_BY_ROW,
    ShuttleParams,
    ShuttleState,
)

# What some 150 generations of `benchmarks/tune_dispatcher.py` found, and for what: shuttles, rows,
# columns, cells of ports, timings.
WEIGHTS = Path(__file__).with_name("tuned.json")
TUNED_FOR = (6, 6, 8, (3, 44), Timings())

WAITS, HANDLES, LEAVES, ENTERS = range(4)  # what the holder of a cell does there
NUM_KINDS = 4


@struct.dataclass
class Costs:
    """Costs added to the steps of a route; the first axis is whether the shuttle is loaded."""

    edge: Any  # [2, cells / 2, 2] of a move out of a cell of the upper half along an axis
    held: Any  # [2, kinds, 2, 2] of a held cell: by whom, on my axis or not, loaded or not
    per_step: Any  # [2, kinds, 2] for each step that the holder will be busy; likewise

    @staticmethod
    def plain(path: Guidepath, held: float) -> "Costs":
        """Make costs that know no more than whether a cell is held."""
        return Costs(
            edge=jnp.zeros((2, path.num_cells // 2, 2)),
            held=jnp.full((2, NUM_KINDS, 2, 2), held),
            per_step=jnp.zeros((2, NUM_KINDS, 2)),
        )


def tuned_dispatcher(path: Guidepath, num_shuttles: int) -> Dispatcher | None:
    """Make the dispatcher with the costs that were tuned; None where they are for something else.

    Args:
        path: the streets.
        num_shuttles: `A`, on which it hangs what being in the way costs.
    """
    ports = tuple(path.port_cells.tolist())
    if (num_shuttles, path.num_rows, path.num_cols, ports, path.timings) != TUNED_FOR:
        return None
    found = json.loads(WEIGHTS.read_text())
    with jax.ensure_compile_time_eval():
        costs = Costs(**{name: jnp.asarray(value) for name, value in found.items()})
        costs, table = jax.tree.map(np.asarray, (costs, ways(costs, path)))

    def tuned(
        state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array
    ) -> jax.Array:
        del obs, params, key
        return choose(costs, table, state, path)

    return tuned


def ways(costs: Costs, path: Guidepath) -> jax.Array:
    """Compute the cheapest ways, `[2, cells, 2, cells]` float32.

    The entry `[loaded, cell, axis, target]` is what it costs to leave the cell along the axis and
    go on to the target; at least `UNREACHABLE` where there is no such exit. A turn from the axis of
    the last move is not in it.
    """
    exits = jnp.asarray(path.exits)
    timings = path.timings
    move = jnp.array([timings.move_empty, timings.move_loaded], jnp.float32)
    edge = jnp.concatenate([costs.edge, costs.edge[:, ::-1]], axis=1)
    # Not less than a step, or going round would be free.
    step = jnp.maximum(move[:, None, None] + edge, 1.0)  # [2, cells, 2]
    step = jnp.where(exits == NO_EXIT, UNREACHABLE, step)
    at_target = jnp.eye(path.num_cells, dtype=bool)[:, None, :]
    turn = timings.turn * (1.0 - jnp.eye(2))  # [axis before, axis]

    def relax(on: jax.Array, _: None) -> tuple[jax.Array, None]:
        # Standing on a cell, having come along an axis.
        standing = (on[:, :, None] + turn[:, :, None]).min(axis=3)
        standing = jnp.where(at_target, 0.0, standing)
        onward = jnp.stack([standing[:, exits[:, b], b] for b in range(2)], axis=2)
        return jnp.minimum(step[..., None] + onward, UNREACHABLE), None

    start = jnp.full((2, path.num_cells, 2, path.num_cells), float(UNREACHABLE))
    # No cheapest way visits a cell twice along the same axis.
    return jax.lax.scan(relax, start, None, length=path.num_cells)[0]


def choose(costs: Costs, table: jax.Array, state: ShuttleState, path: Guidepath) -> jax.Array:
    """Choose an exit for every shuttle, `[A]` int; `table` is of `ways`."""
    loaded = state.loaded.astype(jnp.int32)
    axes = jnp.arange(2)
    table = jnp.asarray(table)
    onward = table[loaded[:, None], state.cell[:, None], axes, state.target[:, None]]  # [A, 2]
    turns = path.timings.turn * (state.axis[:, None] != axes)
    total = onward + turns + _penalties(costs, state, path)
    return jnp.where(total[:, 1] < total[:, 0], LEAVE_BY_COLUMN, LEAVE_BY_ROW)


def _penalties(costs: Costs, state: ShuttleState, path: Guidepath) -> jax.Array:
    """Compute what both exits cost for who holds the cells behind them, `[A, 2]`."""
    exits = jnp.asarray(path.exits)[state.cell]  # [A, 2]
    leaves = (state.reserved != state.cell) & (exits[..., None] == state.cell)
    enters = (state.reserved != state.cell) & (exits[..., None] == state.reserved)
    stands = (state.reserved == state.cell) & (exits[..., None] == state.cell)  # [A, 2, A]
    kind = jnp.where(leaves, LEAVES, jnp.where(enters, ENTERS, HANDLES))
    kind = jnp.where(stands & (state.busy == 0), WAITS, kind)
    across = (state.axis != jnp.arange(2)[:, None]).astype(jnp.int32)  # [2, A]
    mine = state.loaded.astype(jnp.int32)[:, None, None]
    its = state.loaded.astype(jnp.int32)
    held = jnp.asarray(costs.held)[mine, kind, across, its]
    held += jnp.asarray(costs.per_step)[mine, kind, across] * state.busy
    return jnp.where(leaves | enters | stands, held, 0.0).sum(axis=-1)
