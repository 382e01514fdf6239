"""Callbacks of a run: their interface, and the data that they receive during training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.types import Population, TrainState


@dataclass(frozen=True)
class RunInfo:
    """Describes the run that begins or is resumed.

    Attributes:
        run_dir: its folder.
        config: its configuration.
        record: the content of its `config.json`.
        env_name: the environment's name.
        resumed_at: environment steps done before, 0 unless the run is resumed.
        history: entries of the log that were made before.
        evaluations: evaluations that were made before.
    """

    run_dir: Path
    config: TrainConfig
    record: Mapping[str, Any]
    env_name: str
    resumed_at: int
    history: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TrainResult:
    """Holds the result of a run.

    Attributes:
        state: the final training state.
        population: the players in it, as saved.
        history: the entries of `metrics.jsonl`; see `runs.log`.
        evaluations: the entries of `evaluations.jsonl`.
        run_dir: the run's folder.
        env_steps: environment steps done.
        interrupted: whether it was stopped before its end.
        stopped_by: what stopped it: a signal's name, or a sentence; None if it was completed.
        members: of a group of seeds, the results of those that reached the group's end. The state
            of the group has an axis of them, and its numbers cover all of them.
        stopped_members: of a group, by name, the other members and what stopped them.
        best_member: of population-based training, the name of the best member at the last
            measurement.
        failed: whether an error stopped it.
    """

    state: TrainState
    population: Population
    history: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    run_dir: Path
    env_steps: int
    interrupted: bool
    stopped_by: str | None
    members: "tuple[TrainResult, ...]" = ()
    stopped_members: Mapping[str, str] = field(default_factory=dict)
    best_member: str | None = None
    failed: bool = False

    def __repr__(self) -> str:
        stopped = f", stopped by {self.stopped_by}" if self.interrupted else ""
        return (
            f"TrainResult({self.env_steps:,} environment steps in {str(self.run_dir)!r}{stopped})"
        )


class Callback:
    """Receives the events of a run; subclasses define the methods that they need.

    If one of the first three returns True, the run ends as after a signal: it is saved and can be
    resumed. An error in one of them also ends the run, and is then raised as a `CallbackError`.
    """

    def on_start(self, run: RunInfo) -> None:
        """Handle the start of a new or resumed run."""

    def on_log(self, entry: Mapping[str, Any]) -> bool | None:
        """Handle an entry of the log."""

    def on_evaluation(self, report: Mapping[str, Any]) -> bool | None:
        """Handle an evaluation's numbers."""

    def on_checkpoint(self, path: Path) -> bool | None:
        """Handle a complete checkpoint in a folder."""

    def on_end(self, result: TrainResult) -> None:
        """Handle the result of the run, after saving; also if an error ended it."""


class CallbackError(RuntimeError):
    """Reports which callback failed; the run up to there is saved."""

    def __init__(self, callback: Callback, method: str, error: Exception, run_dir: Path) -> None:
        super().__init__(
            f"callback {_name(callback)}.{method} raised {type(error).__name__}: {error}; "
            f"what was learnt is saved in {run_dir}"
        )


class _OnLog(Callback):
    """Calls a function with every entry of the log."""

    def __init__(self, function: Callable[[Mapping[str, Any]], Any]) -> None:
        self.function = function

    def on_log(self, entry: Mapping[str, Any]) -> bool | None:
        return self.function(entry)


def as_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Keep callbacks, and convert functions to callbacks on every entry of the log.

    Raises:
        ValueError: For something that is neither.
    """
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise ValueError(f"callbacks must be a sequence of callbacks, got {show(callbacks)}")
    result = []
    for callback in callbacks:
        if isinstance(callback, type) or not (isinstance(callback, Callback) or callable(callback)):
            raise ValueError(
                f"a callback must be a function of an entry or a Callback, got {show(callback)}"
            )
        result.append(callback if isinstance(callback, Callback) else _OnLog(callback))
    return tuple(result)


class Callbacks:
    """Notifies all callbacks of a run, and records which of them asks for the end.

    Args:
        run_dir: the folder of the run.
        callbacks: notified in this order.
    """

    def __init__(self, run_dir: Path, callbacks: Iterable[Callback] = ()) -> None:
        self._callbacks = list(callbacks)
        self._run_dir = run_dir
        self.stopped_by: str | None = None

    def add(self, *callbacks: Callback) -> None:
        """Also notify these, in their order."""
        self._callbacks += callbacks

    def tell(self, method: str, what: Any) -> None:
        """Call a method of all callbacks.

        Raises:
            CallbackError: If one of them failed.
        """
        for callback in self._callbacks:
            try:
                ends = getattr(callback, method)(what)
            except Exception as error:
                raise CallbackError(callback, method, error, self._run_dir) from error
            if ends is True and self.stopped_by is None:
                self.stopped_by = f"callback {_name(callback)}.{method}"


def _name(callback: Callback) -> str:
    if isinstance(callback, _OnLog):
        return getattr(callback.function, "__qualname__", type(callback.function).__name__)
    return type(callback).__qualname__
