"""A shift of `shuttle_grid`: one-way streets, ports, shuttles, their loads and where they go."""

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas, agent_colour
from jaxmarl_envs.shuttle_grid.routes import NO_EXIT, Guidepath
from jaxmarl_envs.shuttle_grid.state import ShuttleState

CELL, MARGIN, CAPTION = 44.0, 8.0, 18.0


def draw_shift(guidepath: Guidepath, state: ShuttleState) -> str:
    """Draw where everybody stands, which cells are held, and what each shuttle is about."""
    canvas = Canvas(
        2 * MARGIN + guidepath.num_cols * CELL, 2 * MARGIN + guidepath.num_rows * CELL + CAPTION
    )
    for cell in range(guidepath.num_cells):
        _draw_cell(canvas, guidepath, cell)
    shuttles = range(len(np.asarray(state.cell)))
    for i in shuttles:
        _draw_job(canvas, guidepath, state, i)
    for i in shuttles:
        _draw_shuttle(canvas, guidepath, state, i)
    delivered, time = int(np.asarray(state.num_delivered).sum()), int(state.time)
    caption = f"tick {time}, {delivered} delivered"
    canvas.text(MARGIN, canvas.height - 0.6 * CAPTION, caption, 11, "faint", "start")
    return canvas.to_svg(_describe(guidepath, state, caption))


def _middle(guidepath: Guidepath, cell: int) -> tuple[float, float]:
    row, col = divmod(int(cell), guidepath.num_cols)
    return MARGIN + (col + 0.5) * CELL, MARGIN + (row + 0.5) * CELL


def _draw_cell(canvas: Canvas, guidepath: Guidepath, cell: int) -> None:
    """Draw the floor, the ways that lead out of it, and a port's frame."""
    x, y = _middle(guidepath, cell)
    is_port = cell in guidepath.port_cells
    half = CELL / 2 - 1
    canvas.rect(x - half, y - half, 2 * half, 2 * half, "field", "ink" if is_port else None, 2, 3)
    if is_port:
        canvas.text(x - half + 4, y - half + 7, "port", 8, "faint", "start")
    for to in guidepath.exits[cell]:
        if to != NO_EXIT:
            tx, ty = _middle(guidepath, to)
            dx, dy = (tx - x) / CELL, (ty - y) / CELL
            # Near the border between the two, where no shuttle hides it.
            start = (x + 14 * dx, y + 14 * dy)
            canvas.arrow(start, (x + 21 * dx, y + 21 * dy), "edge", 1.2, 4)


def _draw_job(canvas: Canvas, guidepath: Guidepath, state: ShuttleState, i: int) -> None:
    """Draw the cell that a shuttle heads for, and the way to it as the crow flies."""
    hue = agent_colour(i)
    x, y = _middle(guidepath, np.asarray(state.target)[i])
    here = _middle(guidepath, np.asarray(state.reserved)[i])
    if (x, y) != here:
        canvas.path([here, (x, y)], stroke=hue, line=0.8, dashed=True)
    half = CELL / 2 - 4 - 1.5 * (i % 4)  # so that several on one cell are all seen
    canvas.rect(x - half, y - half, 2 * half, 2 * half, None, hue, 1.6, 3)
    if not bool(np.asarray(state.loaded)[i]):
        canvas.rect(x + half - 9, y + half - 9, 7, 7, hue)  # the load that waits


def _draw_shuttle(canvas: Canvas, guidepath: Guidepath, state: ShuttleState, i: int) -> None:
    """Draw a shuttle between the cell that it leaves and the one that it holds for its arrival."""
    cell, reserved = int(np.asarray(state.cell)[i]), int(np.asarray(state.reserved)[i])
    busy = int(np.asarray(state.busy)[i])
    x, y = _middle(guidepath, cell)
    if cell != reserved:
        tx, ty = _middle(guidepath, reserved)
        half = CELL / 2 - 2
        for cx, cy in ((x, y), (tx, ty)):
            canvas.rect(cx - half, cy - half, 2 * half, 2 * half, None, agent_colour(i), 1, 4)
        share = 1.0 / (busy + 1)
        canvas.arrow((x, y), (tx, ty), agent_colour(i), 2, 7)
        x, y = x + share * (tx - x), y + share * (ty - y)
    canvas.agent(i, x, y, 11, str(i), hollow=busy == 0)
    if bool(np.asarray(state.loaded)[i]):
        canvas.rect(x - 4, y - 19, 8, 8, "ink", "paper", 1)
    if cell == reserved and busy:
        canvas.text(x + 13, y + 13, str(busy), 8, "ink", "start")  # of handling


def _describe(guidepath: Guidepath, state: ShuttleState, caption: str) -> str:
    words = []
    for i in range(len(np.asarray(state.cell))):
        cell, target = np.asarray(state.cell)[i], np.asarray(state.target)[i]
        row, col = divmod(int(cell), guidepath.num_cols)
        to_row, to_col = divmod(int(target), guidepath.num_cols)
        load = "with a load" if bool(np.asarray(state.loaded)[i]) else "empty"
        words.append(f"shuttle {i} at {row},{col} {load}, to {to_row},{to_col}")
    return f"{caption}; {'; '.join(words)}"
