"""The rooms of `asymmetric_play`: walls, doors, lamps and who walks about."""

from collections.abc import Mapping, Sequence

from jaxmarl_envs.drawing.svg import Canvas, agent_colour

CELL, MARGIN, CAPTION = 40.0, 10.0, 20.0
Position = tuple[int, int]


_WAYS = ((0, -1), (0, 1), (-1, 0), (1, 0))  # right and down, of the first four actions
_TOGGLE = 4


def draw_rooms(
    layout: Sequence[str],
    doors: Mapping[Position, bool],
    lamps: Mapping[Position, bool],
    walker: tuple[int, str, Position],
    waits: tuple[int, str] | None,
    wanted: Mapping[Position, bool],
    target: Position | None,
    caption: str,
) -> str:
    """Draw one world, and what the second player is to bring about in it.

    Args:
        layout: rows of signs: `#` wall, `+` door, `d` and `l` switches of doors and lamps.
        doors: places of doors, and whether each is open.
        lamps: places of the switches of lamps, and whether each is lit.
        walker: slot, letter and place of who walks.
        waits: slot and letter of who is to walk later or has walked; None once all is over.
        wanted: of doors and lamps, how they are to be; nothing while that is not known.
        target: where the walker is to end; None while that is not known.
        caption: what is written below.
    """
    rows, cols = len(layout), len(layout[0])
    canvas = Canvas(2 * MARGIN + cols * CELL, 2 * MARGIN + rows * CELL + CAPTION)
    for row, line in enumerate(layout):
        for col, sign in enumerate(line):
            x, y = MARGIN + col * CELL, MARGIN + row * CELL
            if sign == "#":
                canvas.rect(x, y, CELL, CELL, "edge")
                continue
            canvas.rect(x + 1, y + 1, CELL - 2, CELL - 2, "field", corner=2)
            if (row, col) in doors:
                _draw_door(canvas, x + CELL / 2, y + CELL / 2, doors[(row, col)], CELL - 4)
            elif sign == "d":
                _draw_switch(canvas, x + 9, y + 9)
            elif sign == "l":
                _draw_lamp(canvas, x + 9, y + 9, lamps.get((row, col), False))
            if (row, col) == target:
                canvas.rect(x + 3, y + 3, CELL - 6, CELL - 6, None, "ink", 1.5, 4)
    _draw_walker(canvas, walker)
    for (row, col), is_so in wanted.items():
        if is_so != {**doors, **lamps}[(row, col)]:
            words = ("open" if is_so else "shut") if (row, col) in doors else None
            words = words or ("light" if is_so else "dark")
            _draw_wish(canvas, MARGIN + (col + 0.5) * CELL, MARGIN + (row + 1) * CELL - 8, words)
    bottom = canvas.height - 0.5 * CAPTION - 2
    canvas.text(MARGIN, bottom, caption, 11, "faint", "start")
    if waits is not None:
        canvas.agent(waits[0], canvas.width - 58, bottom, 7, waits[1], hollow=True)
        canvas.text(canvas.width - MARGIN, bottom, "waits", 11, "faint", "end")
    _draw_legend(canvas)
    _, letter, (row, col) = walker
    where = f"{letter} at row {row + 1}, column {col + 1}"
    numbers = f"doors open: {sum(doors.values())}; lamps lit: {sum(lamps.values())}"
    return canvas.to_svg(f"{caption}; {where}; {numbers}")


def _draw_walker(canvas: Canvas, walker: tuple[int, str, Position]) -> None:
    """Draw who walks, and where each action leads."""
    slot, letter, (row, col) = walker
    x, y = MARGIN + (col + 0.5) * CELL, MARGIN + (row + 0.5) * CELL
    for action, (dx, dy) in enumerate(_WAYS):
        with canvas.choice(slot, action):
            canvas.arrow(
                (x + 14 * dx, y + 14 * dy), (x + 32 * dx, y + 32 * dy), agent_colour(slot), 4, 11
            )
    with canvas.choice(slot, _TOGGLE):
        canvas.circle(x, y, 17.5, None, agent_colour(slot), 2.5)
    canvas.agent(slot, x, y, 12, letter)


def _draw_door(canvas: Canvas, x: float, y: float, is_open: bool, height: float) -> None:
    """Draw a door across a passage, or folded back to its side."""
    if is_open:
        x -= 0.5 * height - 2
    canvas.path(
        [(x, y - height / 2), (x, y + height / 2)], stroke="faint", line=4 if is_open else 6
    )


def _draw_switch(canvas: Canvas, x: float, y: float) -> None:
    canvas.rect(x - 4, y - 4, 8, 8, None, "faint", 1.5)


def _draw_lamp(canvas: Canvas, x: float, y: float, lit: bool) -> None:
    canvas.circle(x, y, 5, "orange" if lit else None, "faint", 1.5)


def _draw_wish(canvas: Canvas, x: float, y: float, words: str) -> None:
    """Write how something is to be, on a ground of its own since doors lie below."""
    canvas.rect(x - 15, y - 7, 30, 14, "paper", "bad", 1, 4)
    canvas.text(x, y, words, 10, "bad", bold=True)


def _draw_legend(canvas: Canvas) -> None:
    canvas.legend(
        [
            (lambda x, y: _draw_door(canvas, x, y, False, 12), "door, shut"),
            (lambda x, y: _draw_door(canvas, x + 3, y, True, 12), "open"),
            (lambda x, y: _draw_switch(canvas, x, y), "its switch"),
            (lambda x, y: _draw_lamp(canvas, x, y, False), "lamp, dark"),
            (lambda x, y: _draw_lamp(canvas, x, y, True), "lit"),
            (lambda x, y: canvas.rect(x - 6, y - 6, 12, 12, None, "ink", 1.5, 3), "bob's end"),
            (lambda x, y: canvas.rect(x - 7, y - 5, 14, 10, "paper", "bad", 1, 3), "bob's task"),
        ],
        canvas.height - 2,
    )
