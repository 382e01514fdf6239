"""What a person sees while training runs: a live display in a terminal, plain lines in a pipe."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

PLAIN_INTERVAL_S = 5.0
MAX_ROWS = 12
_LIFE_KEYS = ("episodes", "return_mean", "return_min", "return_max", "length_mean")
# Title and key of each column of the table of policies.
_POLICY_COLUMNS = (
    ("entropy", "entropy"),
    ("KL", "kl"),
    ("clipped", "clip_fraction"),
    ("expl. var.", "explained_variance"),
    ("value loss", "value_loss"),
    ("learning rate", "learning_rate"),
)


class Progress:
    """Shows nothing, and is what the displays have in common.

    Args:
        total_env_steps: of the whole run.
        clock: seconds, for tests.
    """

    def __init__(self, total_env_steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total_env_steps = total_env_steps
        self.env_steps = 0
        self.rate = 0.0  # env-steps/s
        self.phase = "starting"
        self.entry: Mapping[str, Any] | None = None
        self._clock = clock
        self._started = clock()

    def set_phase(self, phase: str) -> None:
        """Say what is going on, such as compiling or training."""
        self.phase = phase

    def advance(self, env_steps: int, rate: float) -> None:
        """Take note of the environment steps done so far, and of their rate per second."""
        self.env_steps, self.rate = env_steps, rate

    def show_entry(self, entry: Mapping[str, Any]) -> None:
        """Show a new entry of the log."""
        self.entry = entry

    def close(self) -> None:
        """Leave the last state on the screen."""

    @property
    def elapsed(self) -> float:
        """Seconds since the display began."""
        return self._clock() - self._started

    @property
    def fraction(self) -> float:
        """Fraction of the run that is done, from 0 to 1."""
        return min(1.0, self.env_steps / self.total_env_steps)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the present rate; None while that is unknown."""
        if not self.rate:
            return None
        return max(0, self.total_env_steps - self.env_steps) / self.rate

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class PlainProgress(Progress):
    """Prints a short line per entry: at most one every few seconds, always the first and last."""

    def __init__(
        self,
        console: Console,
        total_env_steps: int,
        agents: Sequence[str],
        policies: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(total_env_steps, clock)
        self._console = console
        self._agents = agents
        self._policies = policies
        self._printed_at: float | None = None
        self._unprinted = False

    def set_phase(self, phase: str) -> None:
        """Print a line of its own for every phase before the first entry, and for stopping."""
        super().set_phase(phase)
        if self.entry is None or phase.startswith("stopping"):
            self._print(f"{phase} ...")

    def show_entry(self, entry: Mapping[str, Any]) -> None:
        """Print the entry unless the last line is too fresh."""
        super().show_entry(entry)
        now = self._clock()
        if self._printed_at is None or now - self._printed_at >= PLAIN_INTERVAL_S:
            self._print(self._line(entry))
            self._printed_at, self._unprinted = now, False
        else:
            self._unprinted = True

    def close(self) -> None:
        """Print the last entry if it has not been printed yet."""
        if self._unprinted and self.entry is not None:
            self._print(self._line(self.entry))
            self._unprinted = False

    def _line(self, entry: Mapping[str, Any]) -> str:
        width = len(f"{self.total_env_steps:,}")
        parts = [
            f"{self.env_steps:>{width},} / {self.total_env_steps:,} env-steps",
            f"{self.fraction:>4.0%}",
            f"{rate_text(self.rate):>8}",
            f"left {time_text(self.seconds_left):>5}",
            _return_text(entry, self._agents, self._policies),
        ]
        entropies = [p["entropy"] for p in entry["policies"].values() if "entropy" in p]
        if entropies:
            parts.append("entropy " + " ".join(f"{x:.3f}" for x in entropies[:3]))
        return "  ".join(parts)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class LiveProgress(Progress):
    """Draws a bar and two tables, again and again in the same place."""

    def __init__(
        self,
        console: Console,
        total_env_steps: int,
        title: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(total_env_steps, clock)
        self._title = Text(title, style="bold", overflow="ellipsis", no_wrap=True)
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8)
        self._live.start(refresh=True)

    def set_phase(self, phase: str) -> None:
        """Draw at once, since a compilation may hold up the next redraw."""
        super().set_phase(phase)
        self._live.refresh()

    def close(self) -> None:
        """Draw once more and give the terminal back."""
        self._live.stop()

    def render(self) -> RenderableType:
        """Compose the whole display."""
        parts: list[RenderableType] = [self._title, self._bar()]
        if self.entry is not None:
            parts += [agent_table(self.entry["agents"]), policy_table(self.entry["policies"])]
        return Group(*parts)

    def _bar(self) -> RenderableType:
        row = Table.grid(padding=(0, 1), expand=False)
        for _ in range(8):
            row.add_column(no_wrap=True)
        ends = {"done": Text("✓ done", style="green"), "stopped": Text("■ stopped", style="yellow")}
        self._spinner.text = Text(self.phase, style="cyan")
        left = "" if self.phase in ends else f"left {time_text(self.seconds_left)}"
        row.add_row(
            ends.get(self.phase, self._spinner),
            ProgressBar(total=1.0, completed=self.fraction, width=24),
            Text(f"{self.fraction:.0%}", style="magenta"),
            Text(f"{count_text(self.env_steps)}/{count_text(self.total_env_steps)} env-steps"),
            Text(rate_text(self.rate), style="green"),
            Text(time_text(self.elapsed), style="yellow"),
            Text(left, style="cyan"),
        )
        return row


def make_progress(
    show: bool, title: str, total_env_steps: int, agents: Sequence[str], policies: Sequence[str]
) -> Progress:
    """Choose the display that suits standard output."""
    if not show:
        return Progress(total_env_steps)
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, total_env_steps, title)
    plain = PlainProgress(console, total_env_steps, agents, policies)
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    return plain


def agent_table(agents: Mapping[str, Mapping[str, Any]]) -> Table:
    """Tabulate returns, lengths and the environment's own metrics of every agent."""
    extras = list(dict.fromkeys(k for a in agents.values() for k in a if k not in _LIFE_KEYS))
    table = _table("agent", "return", "min", "max", "length", "episodes", *extras)
    for name, agent in list(agents.items())[:MAX_ROWS]:
        table.add_row(
            name,
            Text(_number(agent, "return_mean", "+.3f"), style="bold"),
            _number(agent, "return_min", "+.2f"),
            _number(agent, "return_max", "+.2f"),
            _number(agent, "length_mean", ".1f"),
            f"{agent['episodes']:,}",
            *(_number(agent, key, ".3f") for key in extras),
        )
    return _with_rest(table, len(agents))


def policy_table(policies: Mapping[str, Mapping[str, Any]]) -> Table:
    """Tabulate what the updates of every policy looked like."""
    table = _table("policy", *(title for title, _ in _POLICY_COLUMNS))
    for name, policy in list(policies.items())[:MAX_ROWS]:
        table.add_row(name, *(_number(policy, key, ".3g") for _, key in _POLICY_COLUMNS))
    return _with_rest(table, len(policies))


def count_text(count: float) -> str:
    """Write a count with three digits and a unit: 512, 81.9k, 1.02M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            scaled = count / size
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    return f"{count:.0f}"


def rate_text(rate: float) -> str:
    """Write environment steps per second; a dash while unknown."""
    return f"{count_text(rate)}/s" if rate else "-/s"


def time_text(seconds: float | None) -> str:
    """Write seconds as 1:02:03 or 2:03; `-:--` while unknown."""
    if seconds is None:
        return "-:--"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, padding=(0, 1))
    table.add_column(first, style="cyan", no_wrap=True, overflow="ellipsis", max_width=20)
    for title in others:
        table.add_column(title.replace("_", " "), justify="right", no_wrap=True)
    return table


def _with_rest(table: Table, num_rows: int) -> Table:
    if num_rows > MAX_ROWS:
        table.caption = f"and {num_rows - MAX_ROWS} more"
        table.caption_justify = "left"
    return table


def _number(values: Mapping[str, Any], key: str, form: str) -> str:
    return format(values[key], form) if key in values else "-"


def _return_text(entry: Mapping[str, Any], agents: Sequence[str], policies: Sequence[str]) -> str:
    """Write mean returns, of every agent if there are few, else of every policy."""
    few = len(agents) <= 3
    groups = entry["agents"] if few else entry["policies"]
    names = agents if few else policies[:3]
    shown = [f"{name} {_number(groups[name], 'return_mean', '+.3f')}" for name in names]
    return "return " + " ".join(shown)
