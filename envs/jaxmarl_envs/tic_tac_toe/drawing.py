"""The board of an (m, n, k)-game."""

from typing import Any

import numpy as np

from jaxmarl_envs.drawing.stones import cell_name, draw_stones, winning_line
from jaxmarl_envs.tic_tac_toe.board import Board, State


def draw_board(board: Board, state: State, last_action: Any = None) -> str:
    """Draw stones, the last move and the line that has won.

    Args:
        board: its size and lines.
        state: of one game.
        last_action: `[2]` int, of the step before.
    """
    x_has, o_has = (_cells(board, words) for words in np.asarray(state.stones))
    cells = np.where(x_has, 0, np.where(o_has, 1, -1)).reshape(board.rows, board.cols)
    ply = int(state.ply)
    last = None if last_action is None or not ply else int(np.asarray(last_action)[(ply - 1) % 2])
    line = winning_line(cells, board.k)
    return draw_stones(cells, _describe(cells, ply, line), last, line)


def _cells(board: Board, words: np.ndarray) -> np.ndarray:
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return bits.ravel()[: board.num_cells].astype(bool)


def _describe(cells: np.ndarray, ply: int, line: np.ndarray | None) -> str:
    names = [cell_name(cell, cells.shape[1]) for cell in range(cells.size)]
    held = [
        ", ".join(name for name, owner in zip(names, cells.flat, strict=True) if owner == player)
        for player in range(2)
    ]
    if line is not None:
        end = f"{'xo'[cells[tuple(line[0])]]} has won"
    elif (cells >= 0).all():
        end = "a draw"
    else:
        end = f"{'xo'[ply % 2]} to move"
    return f"Board after {ply} moves, {end}; x: {held[0] or 'none'}; o: {held[1] or 'none'}"
