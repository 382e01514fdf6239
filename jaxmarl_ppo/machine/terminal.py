"""The terminal: a console that shows names from files as text, whatever is in them."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from jaxmarl_ppo.machine.text import LINES, printable


class PlainConsole(Console):
    """A console without markup, on which control characters are escapes that can be read.

    Names of agents, policies and metrics come from files of others. `[bold]` in one is not markup,
    `:smile:` no picture, and control characters do not reach the terminal. Styles and cursor
    movements of a live display are unaffected.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **kwargs})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render what is drawn, with its text made printable."""
        for segment in super().render(renderable, options):
            is_text = segment.control is None and not segment.text.isprintable()
            yield segment._replace(text=printable(segment.text, LINES)) if is_text else segment
