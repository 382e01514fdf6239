"""The board of an (m, n, k)-game."""

from typing import Any

import numpy as np

from jaxmarl_envs.drawing.stones import draw_stone
from jaxmarl_envs.drawing.svg import Canvas
from jaxmarl_envs.tic_tac_toe.board import Board, State

CELL, MARGIN = 40.0, 12.0


def cell_name(board: Board, cell: int) -> str:
    """Name a cell by a letter for its column and a number for its row, the first at the top."""
    row, col = divmod(cell, board.cols)
    return f"{chr(ord('a') + col)}{row + 1}" if col < 26 else f"{row + 1}.{col + 1}"


def draw_board(board: Board, state: State, last_action: Any = None) -> str:
    """Draw stones, the last move and the line that has won.

    Args:
        board: its size and lines.
        state: of one game.
        last_action: `[2]` int, of the tick before.
    """
    rows, cols = board.rows, board.cols
    canvas = Canvas(2 * MARGIN + cols * CELL, 2 * MARGIN + rows * CELL)
    stones = np.array([_cells(board, words) for words in np.asarray(state.stones)])  # [2, cells]
    ply = int(state.ply)
    last = None if last_action is None or not ply else int(np.asarray(last_action)[(ply - 1) % 2])
    for cell in range(rows * cols):
        row, col = divmod(cell, cols)
        left, top = MARGIN + col * CELL, MARGIN + row * CELL
        x, y = left + CELL / 2, top + CELL / 2
        marked = cell == last and stones[:, cell].any()
        name = cell_name(board, cell)
        frame = "ink" if marked else None
        side = CELL - 2
        canvas.rect(left + 1, top + 1, side, side, "field", frame, 1.5, 4, action=cell)
        if stones[:, cell].any():
            draw_stone(canvas, int(stones[1, cell]), x, y, CELL)
        else:
            canvas.text(x, y, name, 9, "faint")
    line = _winning_line(board, stones)
    if line is not None:
        ends = [divmod(int(cell), cols) for cell in (line[0], line[-1])]
        points = [(MARGIN + (c + 0.5) * CELL, MARGIN + (r + 0.5) * CELL) for r, c in ends]
        canvas.path(points, stroke="ink", line=2.5)
    return canvas.to_svg(_describe(board, stones, ply, line))


def _cells(board: Board, words: np.ndarray) -> np.ndarray:
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return bits.ravel()[: board.num_cells].astype(bool)


def _winning_line(board: Board, stones: np.ndarray) -> np.ndarray | None:
    for words in np.asarray(board.lines):
        cells = np.nonzero(_cells(board, words))[0]
        if stones[:, cells].all(1).any():
            return cells
    return None


def _describe(board: Board, stones: np.ndarray, ply: int, line: np.ndarray | None) -> str:
    held = [
        ", ".join(cell_name(board, int(cell)) for cell in np.nonzero(own)[0]) or "none"
        for own in stones
    ]
    if line is not None:
        end = f"{'x' if stones[0, line[0]] else 'o'} has won"
    elif stones.any(0).all():
        end = "a draw"
    else:
        end = f"{'xo'[ply % 2]} to move"
    return f"Board after {ply} moves, {end}; x: {held[0]}; o: {held[1]}"
