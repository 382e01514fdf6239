"""A table of slots for environments that do not draw themselves: who lives, acts and sees what."""

from collections.abc import Sequence

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas

ROW, WIDTH, STRIP = 26.0, 360.0, 150.0
MAX_CELLS = 48  # of features; of more, so many means of neighbours


def draw_lives(
    agents: Sequence[str],
    alive: np.ndarray,
    agent_mask: np.ndarray,
    features: np.ndarray,
    caption: str,
) -> str:
    """Draw a line for every slot.

    Args:
        agents: names of the `A` slots.
        alive: `[A]` bool, whether each holds an agent.
        agent_mask: `[A]` bool, whether it is to act.
        features: `[A, ...]`, what it sees: a strip, the greater in size the darker.
        caption: what is written below.
    """
    canvas = Canvas(WIDTH, ROW * (len(agents) + 1) + 8)
    flat = np.nan_to_num(np.asarray(features, float).reshape(len(agents), -1))
    strips = np.array([_means(row) for row in flat])
    strips = np.abs(strips) / max(np.abs(strips).max(initial=0.0), 1e-9)
    said = []
    for i, name in enumerate(agents):
        y = 8 + ROW * (i + 0.5)
        hue = "ink" if alive[i] else "faint"
        if alive[i]:
            canvas.rect(6, y - ROW / 2 + 1, WIDTH - 12, ROW - 2, corner=4)
            canvas.agent(i, 22, y, 9, str(i), hollow=not agent_mask[i])
        does = "not there" if not alive[i] else "acts" if agent_mask[i] else "waits"
        canvas.text(38, y, name, 11, hue, "start", bold=bool(agent_mask[i]))
        canvas.text(146, y, does, 11, hue, "start")
        if alive[i]:
            _draw_strip(canvas, WIDTH - 14 - STRIP, y, strips[i])
        said.append(f"{name} {does}")
    bottom = canvas.height - 0.45 * ROW
    canvas.text(10, bottom, caption, 11, "faint", "start")
    canvas.text(WIDTH - 14, bottom, "what each sees", 11, "faint", "end")
    return canvas.to_svg(f"{caption}; {', '.join(said)}")


def _means(row: np.ndarray) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(row, min(len(row), MAX_CELLS))])


def _draw_strip(canvas: Canvas, left: float, y: float, strip: np.ndarray) -> None:
    width = STRIP / max(len(strip), 1)
    for k, size in enumerate(strip):
        height = 2 + 16 * float(size)
        canvas.rect(left + k * width, y + 9 - height, max(0.8 * width, 0.5), height, "faint")
