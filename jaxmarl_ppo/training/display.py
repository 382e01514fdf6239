"""Live display of training in a terminal or a notebook: a bar, notes, two tables."""

import importlib
import io
import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jaxmarl_ppo.machine.terminal import PlainConsole
from jaxmarl_ppo.training.progress import (
    PlainProgress,
    Progress,
    count_text,
    entropy_of,
    evaluation_text,
    interval_text,
    intervals,
    number_text,
    rate_text,
    stage_text,
    time_text,
)

MAX_ROWS = 12
_LIFE_KEYS = ("episodes", "return_mean", "return_min", "return_max", "length_mean")
# Title and key of each column of the table of policies, and the columns dropped first where space
# is short.
_POLICY_COLUMNS = (
    ("entropy", "entropy"),
    ("KL", "kl"),
    ("clipped", "clip_fraction"),
    ("expl. var.", "explained_variance"),
    ("value loss", "value_loss"),
    ("learning rate", "learning_rate"),
)
_SPARE_CELLS = ("elapsed", "count", "rate", "bar")
_SPARE_POLICY_COLUMNS = ("learning rate", "value loss", "clipped", "expl. var.", "KL", "entropy")
_SPARE_AGENT_COLUMNS = ("episodes", "min", "max", "length", "trend")
# A trend has at most this many bars, each one of these letters.
TREND_LENGTH = 10
_LEVELS = "▁▂▃▄▅▆▇█"
NOTEBOOK_INTERVAL_S = 0.5
NOTEBOOK_WIDTH = 100
# In the notebook's own colours of text and ground, light or dark. Notebooks would wrap long lines.
_NOTEBOOK_STYLE = "line-height:1.25;font-family:monospace;white-space:pre;overflow-x:auto"
_NOTEBOOK_FORMAT = f'<pre style="{_NOTEBOOK_STYLE}">{{code}}</pre>'
_ENDS = {"done": Text("✓ done", style="green"), "stopped": Text("■ stopped", style="yellow")}


class DrawnProgress(Progress):
    """Composes a bar and two tables for a display that redraws them."""

    def __init__(
        self, total_env_steps: int, title: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(total_env_steps, clock)
        self._title = Text(title, style="bold", overflow="ellipsis", no_wrap=True)
        self._spinner = Spinner("dots", style="cyan")

    def render(self) -> RenderableType:
        """Compose the complete display."""
        parts: list[RenderableType] = [
            self._title,
            _Fitting(self._bar, _SPARE_CELLS),
        ]
        parts += [Text(line, style="dim") for line in self._notes()]
        if self.entry is not None:
            agents, policies = self.entry["agents"], self.entry["policies"]
            spread = intervals(self.entry)
            parts += [agent_table(agents, self.returns, spread), policy_table(policies)]
        return Group(*parts)

    def _notes(self) -> list[str]:
        """Report the stage, the evaluation, the checkpoint and the split of time."""
        notes = [] if self.entry is None else stage_text(self.entry)
        if self.evaluation is not None:
            notes.append(evaluation_text(self.evaluation))
        spent = {phase: s for phase, s in self.seconds.items() if s >= 0.5 and phase not in _ENDS}
        if spent and self.entry is not None:
            total = sum(spent.values())
            shares = {phase: f"{phase} {s / total:.0%}" for phase, s in spent.items()}
            rollout = self.entry.get("rollout_share")
            if rollout is not None and "training" in shares:
                shares["training"] += f" (rollout {rollout:.0%}, update {1 - rollout:.0%})"
            notes.append(", ".join(shares.values()))
        if self.seconds_since_checkpoint is not None and self.phase not in _ENDS:
            notes.append(f"saved {time_text(self.seconds_since_checkpoint)} ago")
        return [" · ".join(notes)] if notes else []

    def _bar(self, left_out: Collection[str]) -> Table:
        row = Table.grid(padding=(0, 1), expand=False)
        for _ in range(8):
            row.add_column(no_wrap=True)
        self._spinner.text = Text(self.phase, style="cyan")
        left = "" if self.phase in _ENDS else f"left {time_text(self.seconds_left)}"
        done, total = count_text(self.env_steps), count_text(self.total_env_steps)
        cells: dict[str, RenderableType] = {
            "phase": _ENDS.get(self.phase, self._spinner),
            "bar": ProgressBar(total=1.0, completed=self.fraction, width=16),
            "share": Text(f"{self.fraction:.0%}", style="magenta"),
            "count": Text(f"{done}/{total} env-steps"),
            "rate": Text(rate_text(self.rate), style="green"),
            "elapsed": Text(f"after {time_text(self.elapsed)}", style="yellow"),
            "left": Text(left, style="cyan"),
        }
        row.add_row(*(cell for name, cell in cells.items() if name not in left_out))
        return row


class LiveProgress(DrawnProgress):
    """Draws in place in a terminal."""

    def __init__(
        self,
        console: Console,
        total_env_steps: int,
        title: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(total_env_steps, title, clock)
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8)
        self._live.start(refresh=True)

    def set_phase(self, phase: str) -> None:
        """Draw at once, since a compilation may delay the next redraw."""
        super().set_phase(phase)
        self._live.refresh()

    def close(self) -> None:
        """Draw a last time and release the terminal."""
        self._live.stop()


class NotebookProgress(DrawnProgress):
    """Draws in the output of a notebook's cell when something has changed.

    Args:
        show: replaces the HTML shown before.
        total_env_steps: of the complete run.
        title: above the tables.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        show: Callable[[str], None],
        total_env_steps: int,
        title: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(total_env_steps, title, clock)
        self._show = show
        self._shown_at: float | None = None
        self._draw()

    def set_phase(self, phase: str) -> None:
        """Draw at once."""
        super().set_phase(phase)
        self._draw()

    def advance(self, env_steps: int, rate: float) -> None:
        """Draw unless the last drawing is recent."""
        super().advance(env_steps, rate)
        if self._shown_at is None or self._clock() - self._shown_at >= NOTEBOOK_INTERVAL_S:
            self._draw()

    def close(self) -> None:
        """Draw the final state."""
        self._draw()

    def _draw(self) -> None:
        self._shown_at = self._clock()
        page = PlainConsole(
            file=io.StringIO(), record=True, width=NOTEBOOK_WIDTH, force_jupyter=False
        )
        page.print(self.render())
        self._show(page.export_html(inline_styles=True, code_format=_NOTEBOOK_FORMAT))


def _notebook_display() -> Callable[[str], None]:
    """Make a placeholder in the present cell's output; return the function that fills it."""
    notebook = importlib.import_module("IPython.display")  # every notebook has it
    place = notebook.display(notebook.HTML(""), display_id=True)
    return lambda html: place.update(notebook.HTML(html))


class _Fitting:
    """Draws a table without the columns that do not fit.

    Args:
        make: makes the table without the columns that are named.
        spare: names of columns, in the order in which they are dropped.
    """

    def __init__(self, make: Callable[[Collection[str]], Table], spare: Sequence[str]) -> None:
        self.make, self.spare = make, tuple(spare)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, left_out = self.make(()), 0
        while left_out < len(self.spare):
            wanted = console.measure(table, options=options.update(width=1000)).maximum
            if wanted <= options.max_width:
                break
            left_out += 1
            table = self.make(self.spare[:left_out])
        yield table


def make_progress(
    show: bool, title: str, total_env_steps: int, agents: Sequence[str], policies: Sequence[str]
) -> Progress:
    """Choose the display that suits standard output."""
    if not show:
        return Progress(total_env_steps)
    console = PlainConsole()
    if console.is_jupyter:
        return NotebookProgress(_notebook_display(), total_env_steps, title)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, total_env_steps, title)
    plain = PlainProgress(console, total_env_steps, agents, policies)
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    return plain


def agent_table(
    agents: Mapping[str, Mapping[str, Any]],
    returns: Mapping[str, Sequence[float]],
    spread: Mapping[str, tuple[float, float]],
) -> RenderableType:
    """Tabulate returns, lengths and the environment's own metrics of every agent.

    Args:
        agents: of an entry of the log.
        returns: mean returns of entries up to this one, by agent.
        spread: of several seeds, the interval of the return, by agent.
    """
    extras = list(dict.fromkeys(k for a in agents.values() for k in a if k not in _LIFE_KEYS))
    rows = {}
    for name, agent in list(agents.items())[:MAX_ROWS]:
        rows[name] = {
            "return": Text(number_text(agent, "return_mean", "+.3f"), style="bold"),
            **({"95 % interval": interval_text(spread.get(name))} if spread else {}),
            "trend": trend(returns.get(name, ())),
            "min": number_text(agent, "return_min", "+.2f"),
            "max": number_text(agent, "return_max", "+.2f"),
            "length": number_text(agent, "length_mean", ".1f"),
            "episodes": f"{agent['episodes']:,}",
            **{key.replace("_", " "): number_text(agent, key, ".3f") for key in extras},
        }
    spare = (*_SPARE_AGENT_COLUMNS, *(key.replace("_", " ") for key in extras[::-1]))
    return _table("agent", rows, len(agents), spare)


def policy_table(policies: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Tabulate the update statistics of every policy."""
    rows = {}
    for name, policy in list(policies.items())[:MAX_ROWS]:
        numbers = dict(policy)
        if (entropy := entropy_of(policy)) is not None:
            numbers["entropy"] = entropy
        rows[name] = {title: number_text(numbers, key, ".3g") for title, key in _POLICY_COLUMNS}
    return _table("policy", rows, len(policies), _SPARE_POLICY_COLUMNS)


def trend(values: Sequence[float]) -> str:
    """Draw numbers as a short row of bars, each a mean of equally many, the highest full."""
    known = [x for x in values if math.isfinite(x)]
    count = min(len(known), TREND_LENGTH)
    edges = [len(known) * k // count for k in range(count + 1)] if count else []
    bars = [sum(known[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span, top = min(bars, default=0.0), max(bars, default=0.0), len(_LEVELS) - 1
    span = span - low or 1.0
    return "".join(_LEVELS[round(top * (x - low) / span)] for x in bars)


def _table(
    first: str,
    rows: Mapping[str, Mapping[str, RenderableType]],
    num_rows: int,
    spare: Sequence[str],
) -> RenderableType:
    """Tabulate rows by name without columns that do not fit; those of `spare` are dropped first."""
    titles = list(next(iter(rows.values()), {}))

    def make(left_out: Collection[str]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, padding=(0, 1))
        table.add_column(first, style="cyan", no_wrap=True, overflow="ellipsis", max_width=20)
        kept = [title for title in titles if title not in left_out]
        for title in kept:
            table.add_column(title, justify="right", no_wrap=True)
        for name, row in rows.items():
            table.add_row(name, *(row[title] for title in kept))
        if num_rows > MAX_ROWS:
            table.caption = f"and {num_rows - MAX_ROWS} more"
            table.caption_justify = "left"
        return table

    return _Fitting(make, spare)
