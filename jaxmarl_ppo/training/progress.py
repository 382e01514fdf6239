"""What a person sees while training runs: a live display in a terminal, plain lines in a pipe."""

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

PLAIN_INTERVAL_S = 5.0
MAX_ROWS = 12
_LIFE_KEYS = ("episodes", "return_mean", "return_min", "return_max", "length_mean")
# Title and key of each column of the table of policies, and which of them go first where there is
# little room.
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
# A trend has at most so many bars, each one of these letters.
TREND_LENGTH = 10
_LEVELS = "▁▂▃▄▅▆▇█"


_ENDS = {"done": Text("✓ done", style="green"), "stopped": Text("■ stopped", style="yellow")}


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
        self.evaluation: Mapping[str, Any] | None = None
        self.returns: dict[str, list[float]] = defaultdict(list)  # of agents, newest last
        self._seconds: dict[str, float] = defaultdict(float)  # by phase, up to the present one
        self._clock = clock
        self._started = self._phase_began = clock()
        self._saved_at: float | None = None

    def set_phase(self, phase: str) -> None:
        """Say what is going on, such as compiling or training."""
        now = self._clock()
        self._seconds[self.phase] += now - self._phase_began
        self.phase, self._phase_began = phase, now

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of every phase so far, in the order of their beginnings."""
        found = dict(self._seconds)
        found[self.phase] = found.get(self.phase, 0.0) + self._clock() - self._phase_began
        return found

    def advance(self, env_steps: int, rate: float) -> None:
        """Take note of the environment steps done so far, and of their rate per second."""
        self.env_steps, self.rate = env_steps, rate

    def show_entry(self, entry: Mapping[str, Any]) -> None:
        """Show a new entry of the log."""
        self.entry = entry
        for name, agent in entry["agents"].items():
            if "return_mean" in agent:
                self.returns[name].append(agent["return_mean"])

    def show_evaluation(self, report: Mapping[str, Any]) -> None:
        """Show what an evaluation has found."""
        self.evaluation = report

    def show_checkpoint(self) -> None:
        """Take note that the run is saved."""
        self._saved_at = self._clock()

    @property
    def seconds_since_checkpoint(self) -> float | None:
        """Seconds since the newest checkpoint was whole; None where there is none."""
        return None if self._saved_at is None else self._clock() - self._saved_at

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

    def show_evaluation(self, report: Mapping[str, Any]) -> None:
        """Print a line of it."""
        super().show_evaluation(report)
        self._print(_evaluation_text(report))

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
        """Say what was evaluated and saved, and where time went."""
        notes = []
        if self.evaluation is not None:
            notes.append(_evaluation_text(self.evaluation))
        spent = {phase: s for phase, s in self.seconds.items() if s >= 0.5 and phase not in _ENDS}
        if spent and self.entry is not None:
            total = sum(spent.values())
            notes.append(", ".join(f"{phase} {s / total:.0%}" for phase, s in spent.items()))
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
            "elapsed": Text(time_text(self.elapsed), style="yellow"),
            "left": Text(left, style="cyan"),
        }
        row.add_row(*(cell for name, cell in cells.items() if name not in left_out))
        return row


class _Fitting:
    """Draws a table without those of its columns that there is no room for.

    Args:
        make: makes the table without the columns that are named.
        spare: names of columns, those that go first at the beginning.
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
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, total_env_steps, title)
    plain = PlainProgress(console, total_env_steps, agents, policies)
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    return plain


def intervals(entry: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Find within what the interquartile mean of seeds lies of every agent's return, if it says."""
    low, high = (entry.get(end, {}).get("agents", {}) for end in ("ci95_low", "ci95_high"))
    return {
        name: (row["return_mean"], high[name]["return_mean"])
        for name, row in low.items()
        if "return_mean" in row
    }


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
            "return": Text(_number(agent, "return_mean", "+.3f"), style="bold"),
            **({"95 % interval": _interval(spread.get(name))} if spread else {}),
            "trend": trend(returns.get(name, ())),
            "min": _number(agent, "return_min", "+.2f"),
            "max": _number(agent, "return_max", "+.2f"),
            "length": _number(agent, "length_mean", ".1f"),
            "episodes": f"{agent['episodes']:,}",
            **{key.replace("_", " "): _number(agent, key, ".3f") for key in extras},
        }
    spare = (*_SPARE_AGENT_COLUMNS, *(key.replace("_", " ") for key in extras[::-1]))
    return _table("agent", rows, len(agents), spare)


def policy_table(policies: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Tabulate what the updates of every policy looked like."""
    rows = {
        name: {title: _number(policy, key, ".3g") for title, key in _POLICY_COLUMNS}
        for name, policy in list(policies.items())[:MAX_ROWS]
    }
    return _table("policy", rows, len(policies), _SPARE_POLICY_COLUMNS)


def trend(values: Sequence[float]) -> str:
    """Draw numbers as a short row of bars, each the mean of as many, the greatest the highest."""
    known = [x for x in values if math.isfinite(x)]
    count = min(len(known), TREND_LENGTH)
    edges = [len(known) * k // count for k in range(count + 1)] if count else []
    bars = [sum(known[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span, top = min(bars, default=0.0), max(bars, default=0.0), len(_LEVELS) - 1
    span = span - low or 1.0
    return "".join(_LEVELS[round(top * (x - low) / span)] for x in bars)


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


def _table(
    first: str,
    rows: Mapping[str, Mapping[str, RenderableType]],
    num_rows: int,
    spare: Sequence[str],
) -> RenderableType:
    """Tabulate rows by name, without columns that there is no room for, first those of `spare`."""
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


def _evaluation_text(report: Mapping[str, Any]) -> str:
    """Write the mean returns of an evaluation, or of its first agents."""
    means = [
        f"{name} {row['return_mean']:+.3f}"
        for name, row in report["agents"].items()
        if "return_mean" in row
    ]
    rest = ["…"] if len(means) > 3 else []
    return f"evaluated at {count_text(report['env_steps'])}: {' '.join(means[:3] + rest)}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"


def _number(values: Mapping[str, Any], key: str, form: str) -> str:
    return format(values[key], form) if key in values else "-"


def _return_text(entry: Mapping[str, Any], agents: Sequence[str], policies: Sequence[str]) -> str:
    """Write mean returns, of every agent if there are few, else of every policy."""
    few = len(agents) <= 3
    groups = entry["agents"] if few else entry["policies"]
    names = agents if few else policies[:3]
    shown = [f"{name} {_number(groups[name], 'return_mean', '+.3f')}" for name in names]
    spread = intervals(entry) if few else {}
    shown = [
        text + (f" ({_interval(spread[name])})" if name in spread else "")
        for name, text in zip(names, shown, strict=True)
    ]
    return "return " + " ".join(shown)
