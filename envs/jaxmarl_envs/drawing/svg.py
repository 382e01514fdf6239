"""A small SVG canvas: named colours in light and dark, and agents distinguished by shape.

Colours are those of Okabe & Ito 2008, "Color Universal Design", which people who see fewer colours
tell apart, and lighter ones of the same hues on a dark page. No text reaches the picture unescaped.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape

_HUES = ("blue", "vermilion", "green", "purple", "orange", "sky")
LIGHT = {
    "paper": "#ffffff",
    "field": "#f1f3f5",
    "edge": "#a3abb4",
    "faint": "#5c6670",
    "ink": "#16191d",
    "good": "#00734f",
    "bad": "#b3421a",
    "blue": "#0072b2",
    "vermilion": "#c65102",
    "green": "#008a63",
    "purple": "#b0578f",
    "orange": "#a87400",
    "sky": "#2a8fd0",
}
DARK = {
    "paper": "#14171a",
    "field": "#22272c",
    "edge": "#66707a",
    "faint": "#a5afb9",
    "ink": "#f2f4f6",
    "good": "#3fcf9c",
    "bad": "#ff9166",
    "blue": "#55b4f2",
    "vermilion": "#ff8f52",
    "green": "#38d1a2",
    "purple": "#e59ccb",
    "orange": "#f0b840",
    "sky": "#9bd6ff",
}
_SHAPES = 6


def _rules(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


# Of the picture itself, so that it also stands alone; a page that lets people choose says more.
_STYLE = (
    f"<style>svg.state{{{_rules(LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{svg.state{{{_rules(DARK)}}}}}</style>"
)


class Canvas:
    """An SVG canvas that collects shapes, one element to a line.

    Colours are names of `LIGHT` and `DARK`. Lengths are in units of the picture, which is scaled
    where it is shown.

    Args:
        width: width of the picture.
        height: height of the picture.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._elements: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str | None = "field",
        stroke: str | None = None,
        line: float = 1.0,
        corner: float = 0.0,
        action: int | None = None,
    ) -> None:
        """Add a rectangle, by its top left corner; a click on it takes its `action`."""
        place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        if action is not None:
            place += f' data-action="{action}"'
        self._add(f'<rect {place} rx="{_n(corner)}"', fill, stroke, line)

    def circle(
        self,
        x: float,
        y: float,
        radius: float,
        fill: str | None = "ink",
        stroke: str | None = None,
        line: float = 1.0,
    ) -> None:
        """Add a circle, by its middle."""
        self._add(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"', fill, stroke, line)

    def path(
        self,
        points: Sequence[tuple[float, float]],
        fill: str | None = None,
        stroke: str | None = "ink",
        line: float = 1.0,
        closed: bool = False,
        dashed: bool = False,
    ) -> None:
        """Add straight lines from point to point."""
        steps = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{_n(2 * line)} {_n(2 * line)}"' if dashed else ""
        round_ends = ' stroke-linecap="round" stroke-linejoin="round"'
        self._add(
            f'<path d="M{steps}{"Z" if closed else ""}"{round_ends}{dashes}', fill, stroke, line
        )

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        stroke: str = "ink",
        line: float = 1.0,
        head: float = 4.0,
        dashed: bool = False,
    ) -> None:
        """Add a line that ends in an arrowhead `head` long."""
        (x0, y0), (x1, y1) = start, end
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        u, v = (x1 - x0) / length, (y1 - y0) / length
        neck = (x1 - head * u, y1 - head * v)
        half = 0.5 * head
        self.path([start, neck], stroke=stroke, line=line, dashed=dashed)
        left = (neck[0] - half * v, neck[1] + half * u)
        right = (neck[0] + half * v, neck[1] - half * u)
        self.path([end, left, right], fill=stroke, stroke=None, closed=True)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 10.0,
        fill: str = "ink",
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        """Add a line of text, by the middle of its height; `anchor` is start, middle or end."""
        weight = ' font-weight="700"' if bold else ""
        # By hand rather than by dominant-baseline, which not every program that draws SVG knows.
        place = f'x="{_n(x)}" y="{_n(y + 0.35 * size)}" font-size="{_n(size)}"'
        style = f' style="fill:var(--{fill})"'
        self._elements.append(
            f'<text {place} text-anchor="{anchor}"{weight}{style}>{escape(words)}</text>'
        )

    def agent(
        self, index: int, x: float, y: float, radius: float, label: str = "", hollow: bool = False
    ) -> None:
        """Add the sign of an agent: its colour and shape, and a label in it.

        Args:
            index: of its slot.
            x: of the middle.
            y: of the middle.
            radius: of the sign.
            label: a letter or a number.
            hollow: only its outline.
        """
        hue = agent_colour(index)
        fill, stroke, line = ("paper" if hollow else hue), hue, 0.16 * radius
        # Colours and shapes repeat with different periods, so that 36 agents differ.
        shape = (index + index // _SHAPES) % _SHAPES
        if shape == 0:
            self.circle(x, y, radius, fill, stroke, line)
        else:
            self.path(_outline(shape, x, y, radius), fill, stroke, line, closed=True)
        if label:
            size = 1.1 * radius / max(1.0, 0.6 * len(label))
            self.text(x, y, label, size, hue if hollow else "paper", bold=True)

    @contextmanager
    def choice(self, slot: int, action: int) -> Iterator[None]:
        """Hide what is added within, until a page shows that a slot takes this action."""
        self._elements.append(f'<g data-slot="{slot}" data-shows="{action}" visibility="hidden">')
        yield
        self._elements.append("</g>")

    def legend(
        self, entries: Sequence[tuple[Callable[[float, float], None], str]], top: float
    ) -> None:
        """Add a legend of signs below the picture, which grows by it.

        Args:
            entries: what draws a sign about a place, within 16 units of width, and its meaning.
            top: of the first line.
        """
        size, line = 11.0, 17.0
        x, y = 8.0, top + line / 2
        for draw_sign, meaning in entries:
            width = 22.0 + 0.53 * size * len(meaning)
            if x > 8.0 and x + width > self.width:
                x, y = 8.0, y + line
            draw_sign(x + 8, y)
            self.text(x + 19, y, meaning, size, "faint", "start")
            x += width + 8
        self.height = y + line / 2 + 3

    def to_svg(self, title: str) -> str:
        """Return the picture as SVG.

        Args:
            title: read out to those who do not see it; nothing where words beside it say the same.
        """
        box = f"0 0 {_n(self.width)} {_n(self.height)}"
        role = 'role="img"' if title else 'aria-hidden="true"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="state" viewBox="{box}" {role} '
            'font-family="system-ui,sans-serif">'
        )
        words = [f"<title>{escape(title)}</title>"] if title else []
        return "\n".join([head, _STYLE, *words, *self._elements, "</svg>"])

    def _add(self, element: str, fill: str | None, stroke: str | None, line: float) -> None:
        style = f"fill:{f'var(--{fill})' if fill else 'none'}"
        if stroke:
            style += f";stroke:var(--{stroke});stroke-width:{_n(line)}"
        self._elements.append(f'{element} style="{style}"/>')


def agent_sign(index: int, label: str | None = None) -> str:
    """Return the sign of the agent in a slot as a separate picture, to show beside its name.

    Args:
        index: of its slot.
        label: a letter or a number in it; None for the number of the slot.
    """
    canvas = Canvas(28, 28)
    canvas.agent(index, 14, 14, 10, str(index) if label is None else label)
    return canvas.to_svg("")


def agent_colour(index: int) -> str:
    """Return the name of the colour of the agent in a slot."""
    return _HUES[index % len(_HUES)]


def page_style() -> str:
    """Return the colour rules of pictures for pages with a theme choice (`data-theme`)."""
    chosen = {"light": LIGHT, "dark": DARK}
    return (
        f"svg.state{{{_rules(LIGHT)}}}"
        + (f"@media(prefers-color-scheme:dark){{svg.state{{{_rules(DARK)}}}}}")
        + "".join(
            f":root[data-theme={name}] svg.state{{{_rules(colours)}}}"
            for name, colours in chosen.items()
        )
    )


def fixed_colours(svg: str, colours: dict[str, str] = LIGHT) -> str:
    """Put colours in the place of their names, for programs that know no variables of CSS."""
    plain = svg.replace(_STYLE, "")
    return re.sub(r"var\(--([a-z]+)\)", lambda match: colours[match[1]], plain)


def _outline(shape: int, x: float, y: float, radius: float) -> list[tuple[float, float]]:
    """Return the corners of a square, triangle, diamond, hexagon or inverted triangle."""
    sides, turn, scale = (
        (4, 0.25, 1.25),
        (3, -0.5, 1.35),
        (4, 0.0, 1.25),
        (6, 0.0, 1.1),
        (3, 0.5, 1.35),
    )[shape - 1]
    angles = [2 * math.pi * (k / sides) + math.pi * turn for k in range(sides)]
    return [(x + scale * radius * math.cos(a), y + scale * radius * math.sin(a)) for a in angles]


def _n(number: float) -> str:
    """Write a number in as few signs as a tenth of a unit takes."""
    return f"{round(float(number), 1):g}"
