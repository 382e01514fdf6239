"""Stones on a board: the crosses of its first player and the rings of its second one."""

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas

CELL, MARGIN = 40.0, 12.0


def cell_name(cell: int, cols: int) -> str:
    """Name a cell by a letter for its column and a number for its row, the first at the top."""
    row, col = divmod(cell, cols)
    return f"{chr(ord('a') + col)}{row + 1}" if col < 26 else f"{row + 1}.{col + 1}"


def draw_stones(
    cells: np.ndarray,
    title: str,
    last: int | None = None,
    line: np.ndarray | None = None,
    by_column: bool = False,
) -> str:
    """Draw a board with the last stone and the line that has won, a place for every action.

    Args:
        cells: `[rows, cols]` int, whose stone lies there; -1 for none.
        title: what is read out.
        last: the cell of the last stone.
        line: `[k, 2]` int, the cells of the line that has won.
        by_column: actions are columns instead of cells, which then have no names.
    """
    rows, cols = cells.shape
    canvas = Canvas(2 * MARGIN + cols * CELL, 2 * MARGIN + rows * CELL)
    for cell, owner in enumerate(cells.ravel().tolist()):
        row, col = divmod(cell, cols)
        left, top = MARGIN + col * CELL, MARGIN + row * CELL
        x, y = left + CELL / 2, top + CELL / 2
        frame = "ink" if cell == last and owner >= 0 else None
        action = col if by_column else cell
        side = CELL - 2
        canvas.rect(left + 1, top + 1, side, side, "field", frame, 1.5, 4, action=action)
        if owner >= 0:
            draw_stone(canvas, owner, x, y, CELL)
        elif not by_column:
            canvas.text(x, y, cell_name(cell, cols), 9, "faint")
    if line is not None:
        ends = [(MARGIN + (c + 0.5) * CELL, MARGIN + (r + 0.5) * CELL) for r, c in line[[0, -1]]]
        canvas.path(ends, stroke="ink", line=2.5)
    return canvas.to_svg(title)


def draw_stone(canvas: Canvas, player: int, x: float, y: float, cell: float) -> None:
    """Draw a player's stone about the middle of a cell that is so wide."""
    if player == 0:
        arm = 0.26 * cell
        for sign in (-1, 1):
            ends = [(x - arm, y - sign * arm), (x + arm, y + sign * arm)]
            canvas.path(ends, stroke="blue", line=0.125 * cell)
    else:
        canvas.circle(x, y, 0.27 * cell, None, "vermilion", 0.125 * cell)


def stone_sign(player: int) -> str:
    """Return a player's stone as a separate picture, to show beside its name."""
    canvas = Canvas(28, 28)
    draw_stone(canvas, player, 14, 14, 34)
    return canvas.to_svg("")


def winning_line(cells: np.ndarray, in_a_row: int) -> np.ndarray | None:
    """Find stones of one player in a row, `[in_a_row, 2]` places; None where there are none."""
    steps = np.arange(in_a_row)[:, None]
    for start in np.argwhere(cells >= 0):
        for way in ((0, 1), (1, 0), (1, 1), (1, -1)):
            line = start + steps * np.array(way)
            inside = (line >= 0).all() and (line < cells.shape).all()
            if inside and (cells[tuple(line.T)] == cells[tuple(start)]).all():
                return line
    return None
