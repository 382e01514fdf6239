"""Progress display of a search: a live table in a terminal, plain lines in a pipe."""

import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.machine.terminal import PlainConsole
from jaxmarl_ppo.machine.text import printable
from jaxmarl_ppo.sweeps.results import TrialResult, best_of

MAX_ROWS = 12
PLAIN_INTERVAL_S = 5.0
_STYLES = {"failed": "red", "running": "cyan", "pruned": "dim", "waiting": "dim"}
_OVER = ("complete", "pruned", "failed")


class SweepProgress:
    """Shows the progress of a search.

    Args:
        shows: whether to show anything.
        title: of the search.
        num_trials: number of trials in all.
        config: of all runs.
    """

    def __init__(self, shows: bool, title: str, num_trials: int, config: TrainConfig) -> None:
        self._title, self._num_trials, self._config = title, num_trials, config
        self._console = PlainConsole()
        self._shows = shows
        self._live: Live | None = None
        self._said: dict[int, str] = {}
        self._stopping = False
        self._trials: Sequence[TrialResult] = ()
        self._began = time.monotonic()

    def __enter__(self) -> "SweepProgress":
        if not self._shows:
            return self
        if self._console.is_terminal:
            self._live = Live(self._render(), console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            self._print(self._title)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_stopping(self) -> None:
        """Show that a signal was received."""
        self._stopping = True
        self._refresh()

    def show(self, trials: Sequence[TrialResult]) -> None:
        """Show the present state of trials."""
        self._trials = trials
        if self._live is not None:
            self._refresh()
        elif self._shows:
            for trial in trials:
                if trial.state in _OVER and self._said.get(trial.number) != trial.state:
                    self._said[trial.number] = trial.state
                    self._print(self._line(trial))

    def _print(self, line: str) -> None:
        print(printable(line), flush=True)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._render())

    def _line(self, trial: TrialResult) -> str:
        value = "" if trial.value is None else f" {trial.value:.6g}"
        reason = "" if trial.reason is None else f": {trial.reason}"
        values = ", ".join(f"{path} {show_value(x)}" for path, x in trial.values.items())
        return f"trial {trial.number} {trial.state}{value}{reason} | {values} | {self._counts()}"

    def _counts(self) -> str:
        states = [trial.state for trial in self._trials]
        counts = [f"{states.count(s)} {s}" for s in (*_OVER, "running") if s in states]
        best = best_of(self._trials, self._config.objective.goal)
        said = "" if best is None else f", best {best.value:.6g} of trial {best.number}"
        return f"{', '.join(counts) or 'none yet'} of {self._num_trials}{said}"

    def _render(self) -> RenderableType:
        seconds = int(time.monotonic() - self._began)
        head = f"{'stopping | ' if self._stopping else ''}{self._counts()} | {seconds} s"
        running = [trial for trial in self._trials if trial.state == "running"]
        table = trials_table([*running, *ranked(self._trials, self._config)][:MAX_ROWS])
        return Group(Text(self._title, style="bold"), Text(head), table)


def ranked(trials: Sequence[TrialResult], config: TrainConfig) -> list[TrialResult]:
    """Sort the trials that are over: complete ones first, the best before the others."""
    sign = 1.0 if config.objective.goal == "minimise" else -1.0

    def rank(trial: TrialResult) -> tuple[Any, ...]:
        value = float("inf") if trial.value is None else sign * trial.value
        return (_OVER.index(trial.state), value, trial.number)

    return sorted((trial for trial in trials if trial.state in _OVER), key=rank)


def trials_table(trials: Sequence[TrialResult]) -> Table:
    """Draw trials as a table, a row for each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    paths = list(dict.fromkeys(path for trial in trials for path in trial.values))
    for name in ("trial", "state", "value", "s", *map(short, paths)):
        # Where space is short, only the column of tried values wraps.
        is_value = name not in ("trial", "state", "value", "s")
        justify = "left" if name == "state" else "right"
        table.add_column(name, justify=justify, no_wrap=not is_value)
    for trial in trials:
        table.add_row(
            str(trial.number),
            trial.state,
            "" if trial.value is None else f"{trial.value:.5g}",
            "" if trial.seconds is None else f"{trial.seconds:.0f}",
            *(show_value(trial.values.get(path)) for path in paths),
            style=_STYLES.get(trial.state),
        )
    return table


def short(path: str) -> str:
    """Name a dimension by the last part of its path."""
    return path.rpartition(".")[2]


def show_value(value: Any) -> str:
    """Write a value of a dimension in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
