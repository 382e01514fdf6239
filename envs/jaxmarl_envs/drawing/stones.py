"""Stones on a board: the crosses of its first player and the rings of its second one."""

from jaxmarl_envs.drawing.svg import Canvas


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
    """Give a player's stone as a picture of its own, to stand beside its name."""
    canvas = Canvas(28, 28)
    draw_stone(canvas, player, 14, 14, 34)
    return canvas.to_svg("")
