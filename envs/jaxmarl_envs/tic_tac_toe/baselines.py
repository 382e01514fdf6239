"""Scripted players for boards that can be solved: perfect play, and win-else-block play."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import Observation
from jaxmarl_envs.tic_tac_toe.board import Board, Params, State
from jaxmarl_envs.tic_tac_toe.solver import MAX_CELLS, GameTable

Script = Callable[[State, Observation, Params, jax.Array], jax.Array]


def scripts(board: Board) -> Mapping[str, Script]:
    """Make the scripted players of a board, none where it cannot be solved.

    `minimax` draws among the moves that keep the position's value, `win_block` wins at once, else
    blocks, else moves at random.
    """
    if board.num_cells > MAX_CELLS:
        return {}
    build = partial(_cached_tables, board)
    return {name: partial(_play, board, build, name) for name in ("minimax", "win_block")}


def best_moves(board: Board, state: State) -> np.ndarray | None:
    """Find the moves that keep the value of a position, `[2, N]` bool; None on larger boards."""
    if board.num_cells > MAX_CELLS:
        return None
    tables = _cached_tables(board)
    row = tables["rows"][int(np.asarray(board.cells(state)).astype(int).ravel() @ _powers(board))]
    return np.broadcast_to(tables["minimax"][row] > 0, (2, board.num_cells))


@cache
def _cached_tables(board: Board) -> Mapping[str, Any]:
    return _tables(board)


def _tables(board: Board) -> Mapping[str, Any]:
    """Tabulate scripted move probabilities, `[D + 1, N]` each, and each board's row in base 3."""
    table = GameTable(board)
    states = jax.tree.map(lambda x: x[table.decisions], table.states())
    cells = np.asarray(jax.jit(jax.vmap(board.cells))(states))
    # Positions without a decision have the last row.
    rows = np.full(3**board.num_cells, table.num_decisions)
    rows[cells.reshape(table.num_decisions, -1) @ _powers(board)] = np.arange(table.num_decisions)
    policies = {"minimax": table.minimax_policy(), "win_block": table.win_block_policy()}
    spare = np.full((1, board.num_cells), 1.0 / board.num_cells)
    padded = {name: np.concatenate([policy, spare]) for name, policy in policies.items()}
    return {"rows": rows.astype(np.int32), **padded}


def _play(
    board: Board,
    build: Callable[[], Mapping[str, Any]],
    name: str,
    state: State,
    obs: Observation,
    params: Params,
    key: jax.Array,
) -> jax.Array:
    """Draw a move for whoever's turn it is, `[2]`."""
    del obs, params
    with jax.ensure_compile_time_eval():
        tables = build()
    code = board.cells(state).astype(jnp.int32).ravel() @ jnp.asarray(_powers(board))
    probabilities = jnp.asarray(tables[name], jnp.float32)[jnp.asarray(tables["rows"])[code]]
    return jnp.broadcast_to(jax.random.categorical(key, jnp.log(probabilities)), (2,))


def _powers(board: Board) -> np.ndarray:
    return 3 ** np.arange(board.num_cells, dtype=np.int32)
