"""Progress of a run during training, and its display as plain lines in a pipe."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

PLAIN_INTERVAL_S = 5.0


class Progress:
    """Shows nothing; the base of all displays.

    Args:
        total_env_steps: of the complete run.
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
        """Set the phase, such as compiling or training."""
        now = self._clock()
        self._seconds[self.phase] += now - self._phase_began
        self.phase, self._phase_began = phase, now

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of every phase so far, in the order of their starts."""
        found = dict(self._seconds)
        found[self.phase] = found.get(self.phase, 0.0) + self._clock() - self._phase_began
        return found

    def advance(self, env_steps: int, rate: float) -> None:
        """Record the environment steps done so far, and their rate per second."""
        self.env_steps, self.rate = env_steps, rate

    def show_entry(self, entry: Mapping[str, Any]) -> None:
        """Show a new entry of the log."""
        self.entry = entry
        for name, agent in entry["agents"].items():
            if "return_mean" in agent:
                self.returns[name].append(agent["return_mean"])

    def show_evaluation(self, report: Mapping[str, Any]) -> None:
        """Show the result of an evaluation."""
        self.evaluation = report

    def show_checkpoint(self) -> None:
        """Record that the run is saved."""
        self._saved_at = self._clock()

    @property
    def seconds_since_checkpoint(self) -> float | None:
        """Seconds since the newest checkpoint was complete; None without one."""
        return None if self._saved_at is None else self._clock() - self._saved_at

    def close(self) -> None:
        """Leave the last state on the screen."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
        """Seconds to the end at the present rate; None while unknown."""
        if not self.rate:
            return None
        return max(0, self.total_env_steps - self.env_steps) / self.rate


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
        """Print a separate line for every phase before the first entry, and for stopping."""
        super().set_phase(phase)
        if self.entry is None or phase.startswith("stopping"):
            self._print(f"{phase} ...")

    def show_entry(self, entry: Mapping[str, Any]) -> None:
        """Print the entry unless the last line is too recent."""
        super().show_entry(entry)
        now = self._clock()
        if self._printed_at is None or now - self._printed_at >= PLAIN_INTERVAL_S:
            self._print(self._line(entry))
            self._printed_at, self._unprinted = now, False
        else:
            self._unprinted = True

    def show_evaluation(self, report: Mapping[str, Any]) -> None:
        """Print a line about it."""
        super().show_evaluation(report)
        self._print(evaluation_text(report))

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
            *stage_text(entry),
            _return_text(entry, self._agents, self._policies),
        ]
        found = [entropy_of(policy) for policy in entry["policies"].values()]
        entropies = [f"{x:.3f}" for x in found if x is not None]
        if entropies:
            parts.append("entropy " + " ".join(entropies[:3]))
        return "  ".join(parts)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def entropy_of(policy: Mapping[str, Any]) -> float | None:
    """Return a policy's entropy, before clipping where its numbers are clipped; None without."""
    return policy.get("entropy", policy.get("entropy_before_clipping"))


def intervals(entry: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Find the interval of the interquartile mean over seeds of every agent's return, if given."""
    low, high = (entry.get(end, {}).get("agents", {}) for end in ("ci95_low", "ci95_high"))
    return {
        name: (row["return_mean"], high[name]["return_mean"])
        for name, row in low.items()
        if "return_mean" in row
    }


def count_text(count: float) -> str:
    """Write a count with three digits and a unit: 512, 81.9k, 1.02M."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
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


def evaluation_text(report: Mapping[str, Any]) -> str:
    """Write the mean returns of an evaluation, or of its first agents."""
    means = [
        f"{name} {row['return_mean']:+.3f}"
        for name, row in report["agents"].items()
        if "return_mean" in row
    ]
    rest = ["…"] if len(means) > 3 else []
    return f"evaluated at {count_text(report['env_steps'])}: {' '.join(means[:3] + rest)}"


def stage_text(entry: Mapping[str, Any]) -> list[str]:
    """Write the stage of a curriculum, the mean over seeds; nothing without one."""
    return [f"stage {entry['curriculum']['stage']:.3g}"] if "curriculum" in entry else []


def interval_text(ends: tuple[float, float] | None) -> str:
    """Write the interval of a number over several seeds; a dash where unknown."""
    return "-" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}"


def number_text(values: Mapping[str, Any], key: str, form: str) -> str:
    """Write one of several numbers in a form such as `.3f`; a dash where it is missing."""
    return format(values[key], form) if key in values else "-"


def _return_text(entry: Mapping[str, Any], agents: Sequence[str], policies: Sequence[str]) -> str:
    """Write mean returns, of every agent if there are few, else of every policy."""
    few = len(agents) <= 3
    groups = entry["agents"] if few else entry["policies"]
    names = agents if few else policies[:3]
    shown = [f"{name} {number_text(groups[name], 'return_mean', '+.3f')}" for name in names]
    spread = intervals(entry) if few else {}
    shown = [
        text + (f" ({interval_text(spread[name])})" if name in spread else "")
        for name, text in zip(names, shown, strict=True)
    ]
    return "return " + " ".join(shown)
