"""A shift of `shuttle_grid`: one-way streets, ports, shuttles, their loads and where they go."""

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas, agent_colour
from jaxmarl_envs.shuttle_grid.routes import NO_EXIT, Guidepath
from jaxmarl_envs.shuttle_grid.state import LEAVE_BY_COLUMN, LEAVE_BY_ROW, ShuttleState

CELL, MARGIN, CAPTION = 44.0, 8.0, 18.0
MOST_DOTS = 4


def draw_shift(guidepath: Guidepath, state: ShuttleState) -> str:
    """Draw where everybody stands, which cells are held, and what each shuttle is about."""
    canvas = Canvas(
        2 * MARGIN + guidepath.num_cols * CELL, 2 * MARGIN + guidepath.num_rows * CELL + CAPTION
    )
    for cell in range(guidepath.num_cells):
        _draw_cell(canvas, guidepath, cell)
    shuttles = range(len(np.asarray(state.cell)))
    for i in shuttles:
        _draw_way(canvas, guidepath, state, i)
    for i in shuttles:
        _draw_shuttle(canvas, guidepath, state, i)
    _draw_targets(canvas, guidepath, state)
    for cell in guidepath.port_cells:
        x, y = _middle(guidepath, int(cell))
        _draw_port(canvas, x - 14, y - 13)
    delivered, time = int(np.asarray(state.num_delivered).sum()), int(state.time)
    caption = f"step {time}, {delivered} delivered"
    canvas.text(MARGIN, canvas.height - 0.6 * CAPTION, caption, 11, "faint", "start")
    _draw_legend(canvas)
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
    for to in guidepath.exits[cell]:
        if to != NO_EXIT:
            tx, ty = _middle(guidepath, to)
            dx, dy = (tx - x) / CELL, (ty - y) / CELL
            # Near the border between the two, where no shuttle hides it.
            start = (x + 14 * dx, y + 14 * dy)
            canvas.arrow(start, (x + 21 * dx, y + 21 * dy), "edge", 1.2, 4)


def _draw_way(canvas: Canvas, guidepath: Guidepath, state: ShuttleState, i: int) -> None:
    """Draw a shuttle's way to where it heads, as the crow flies, and the cells that it holds."""
    hue = agent_colour(i)
    cell, reserved = int(np.asarray(state.cell)[i]), int(np.asarray(state.reserved)[i])
    here, there = _middle(guidepath, reserved), _middle(guidepath, np.asarray(state.target)[i])
    if here != there:
        canvas.path([here, there], stroke=hue, line=0.8, dashed=True)
    if cell != reserved:
        for x, y in (_middle(guidepath, cell), here):
            _draw_hold(canvas, x, y, CELL / 2 - 2, hue)


def _draw_shuttle(canvas: Canvas, guidepath: Guidepath, state: ShuttleState, i: int) -> None:
    """Draw a shuttle between the cell that it leaves and the one that it holds for its arrival."""
    cell, reserved = int(np.asarray(state.cell)[i]), int(np.asarray(state.reserved)[i])
    busy, hue = int(np.asarray(state.busy)[i]), agent_colour(i)
    x, y = _middle(guidepath, cell)
    if cell != reserved:
        tx, ty = _middle(guidepath, reserved)
        share = 1.0 / (busy + 1)
        canvas.arrow((x, y), (tx, ty), hue, 2, 7)
        x, y = x + share * (tx - x), y + share * (ty - y)
    elif not busy:
        for axis, to in enumerate(guidepath.exits[cell]):
            if to != NO_EXIT:
                tx, ty = _middle(guidepath, to)
                with canvas.choice(i, (LEAVE_BY_ROW, LEAVE_BY_COLUMN)[axis]):
                    start = (x + 0.3 * (tx - x), y + 0.3 * (ty - y))
                    end = (x + 0.72 * (tx - x), y + 0.72 * (ty - y))
                    canvas.arrow(start, end, hue, 4, 11)
    canvas.agent(i, x, y, 11, str(i), hollow=busy == 0)
    if bool(np.asarray(state.loaded)[i]):
        _draw_load(canvas, x + 11, y - 12)
    if cell == reserved:
        _draw_handling(canvas, x + 18, y, busy)


def _draw_targets(canvas: Canvas, guidepath: Guidepath, state: ShuttleState) -> None:
    """Draw on every cell the numbers of the shuttles that head for it, over what stands there."""
    seen: dict[int, int] = {}
    for i, cell in enumerate(np.asarray(state.target).tolist()):
        place = seen[cell] = seen.get(cell, -1) + 1
        x, y = _middle(guidepath, cell)
        row, col = divmod(place, 3)
        waits = not bool(np.asarray(state.loaded)[i])
        _draw_target(canvas, x + 14 * (col - 1), y + 15 * (1 - 2 * row), i, waits)


def _draw_target(canvas: Canvas, x: float, y: float, i: int, waits: bool) -> None:
    """Draw where a shuttle picks up a waiting load, or must bring the one that it has."""
    hue = agent_colour(i)
    canvas.rect(x - 6, y - 6, 12, 12, hue if waits else "paper", hue, 1.2, 2)
    canvas.text(x, y, str(i), 10, "paper" if waits else hue, bold=True)


def _draw_hold(canvas: Canvas, x: float, y: float, half: float, hue: str) -> None:
    canvas.rect(x - half, y - half, 2 * half, 2 * half, None, hue, 1, 4)


def _draw_load(canvas: Canvas, x: float, y: float) -> None:
    canvas.rect(x - 4, y - 4, 8, 8, "ink", "paper", 1)


def _draw_handling(canvas: Canvas, x: float, y: float, steps: int) -> None:
    """Draw the steps that loading or unloading still takes, as dots one below the other."""
    for k in range(min(steps, MOST_DOTS)):
        canvas.circle(x, y - 7.5 + 5 * k, 1.8, "ink")


def _draw_port(canvas: Canvas, x: float, y: float) -> None:
    canvas.text(x, y, "P", 11, "ink", bold=True)


def _draw_legend(canvas: Canvas) -> None:
    canvas.legend(
        [
            (lambda x, y: canvas.agent(0, x, y, 7, "0", hollow=True), "idle"),
            (lambda x, y: canvas.agent(0, x, y, 7, "0"), "busy"),
            (lambda x, y: _draw_load(canvas, x, y), "loaded"),
            (lambda x, y: _draw_handling(canvas, x, y + 2.5, 3), "steps of handling"),
            (lambda x, y: _draw_hold(canvas, x, y, 6, agent_colour(0)), "held on the way"),
            (lambda x, y: _draw_port(canvas, x, y), "port"),
            (lambda x, y: _draw_target(canvas, x, y, 0, True), "load that 0 fetches"),
            (lambda x, y: _draw_target(canvas, x, y, 0, False), "where 0 brings its load"),
        ],
        canvas.height - 2,
    )


def _describe(guidepath: Guidepath, state: ShuttleState, caption: str) -> str:
    words = []
    for i in range(len(np.asarray(state.cell))):
        cell, target = np.asarray(state.cell)[i], np.asarray(state.target)[i]
        row, col = divmod(int(cell), guidepath.num_cols)
        to_row, to_col = divmod(int(target), guidepath.num_cols)
        load = "with a load" if bool(np.asarray(state.loaded)[i]) else "empty"
        words.append(f"shuttle {i} at {row},{col} {load}, to {to_row},{to_col}")
    return f"{caption}; {'; '.join(words)}"
