"""The rooms of `asymmetric_play`: walls, doors, lamps and who walks about."""

from collections.abc import Mapping, Sequence

from jaxmarl_envs.drawing.svg import Canvas

CELL, MARGIN, CAPTION = 40.0, 10.0, 20.0
Position = tuple[int, int]


def draw_rooms(
    layout: Sequence[str],
    doors: Mapping[Position, bool],
    lamps: Mapping[Position, bool],
    walker: tuple[int, str, Position],
    wanted: Mapping[Position, bool],
    target: Position | None,
    caption: str,
) -> str:
    """Draw one world, and in its corners what the second player is to bring about.

    Args:
        layout: rows of signs: `#` wall, `+` door, `d` and `l` switches of doors and lamps.
        doors: places of doors, and whether each is open.
        lamps: places of the switches of lamps, and whether each is lit.
        walker: slot, letter and place of who walks.
        wanted: of doors and lamps, how they are to be; nothing while that is not known.
        target: where the walker is to end; None while that is not known.
        caption: what is written below.
    """
    rows, cols = len(layout), len(layout[0])
    canvas = Canvas(2 * MARGIN + cols * CELL, 2 * MARGIN + rows * CELL + CAPTION)
    for row, line in enumerate(layout):
        for col, sign in enumerate(line):
            place = (row, col)
            x, y = MARGIN + col * CELL, MARGIN + row * CELL
            if sign == "#":
                canvas.rect(x, y, CELL, CELL, "edge")
                continue
            lit = lamps.get(place, False)
            canvas.rect(x + 1, y + 1, CELL - 2, CELL - 2, "field", corner=2)
            if place in doors:
                _draw_door(canvas, x, y, doors[place])
            elif sign == "d":
                canvas.rect(x + 5, y + 5, 8, 8, None, "faint", 1.5)
            elif sign == "l":
                canvas.circle(x + 9, y + 9, 5, "orange" if lit else None, "faint", 1.5)
            if wanted and place in wanted and wanted[place] != {**doors, **lamps}[place]:
                words = (
                    ("open" if wanted[place] else "shut")
                    if place in doors
                    else ("light" if wanted[place] else "dark")
                )
                canvas.text(x + CELL / 2, y + CELL - 6, words, 8, "bad", bold=True)
            if place == target:
                canvas.rect(x + 3, y + 3, CELL - 6, CELL - 6, None, "ink", 1.5, 4)
    slot, letter, (row, col) = walker
    canvas.agent(slot, MARGIN + (col + 0.5) * CELL, MARGIN + (row + 0.5) * CELL, 12, letter)
    canvas.text(MARGIN, canvas.height - 0.5 * CAPTION - 2, caption, 11, "faint", "start")
    open_doors = sum(doors.values())
    lit = sum(lamps.values())
    where = f"{letter} at row {row + 1}, column {col + 1}"
    return canvas.to_svg(f"{caption}; {where}; doors open: {open_doors}; lamps lit: {lit}")


def _draw_door(canvas: Canvas, x: float, y: float, is_open: bool) -> None:
    if is_open:
        canvas.path([(x + 4, y + 2), (x + 4, y + CELL - 2)], stroke="faint", line=4)
    else:
        canvas.path([(x + CELL / 2, y + 2), (x + CELL / 2, y + CELL - 2)], stroke="faint", line=6)
