"""Callbacks of a run: their interface, and the data that they receive during training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.checks import check_name, show
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.types import Population, TrainState

# From a path and a value.
Check = Callable[[str, Any], tuple[str, bool | int | float]]


def _reject(path: str, value: Any) -> tuple[str, bool | int | float]:
    raise ValueError(f"{path} cannot change here: there is no run of its own")


class Control:
    """Changes hyper-parameters and environment parameters during a run.

    Callbacks get it as `RunInfo.control`. In a group of seeds it changes all replicas.

    Args:
        check: returns the full path of a number that may change, and its new value, or raises a
            `ValueError`; by default nothing may change.
        values: the values that callbacks have set before, in a resumed run, by full path.
        logs_by_clock: whether the moments of log entries depend on the clock.
    """

    # A change in others would not be in the checkpoint of the same moment.
    _METHODS = ("on_start", "on_log", "on_evaluation")

    def __init__(
        self,
        check: Check = _reject,
        values: Mapping[str, bool | int | float] | None = None,
        logs_by_clock: bool = False,
    ) -> None:
        self._check, self._logs_by_clock = check, logs_by_clock
        self._values = dict(values or {})
        self._changes: dict[str, Any] = {}
        self._set_by: list[str] = []
        self._caller: tuple[str, str] | None = None

    @property
    def values(self) -> Mapping[str, bool | int | float]:
        """The values that callbacks have set, by full path; a resumed run begins with them."""
        return dict(self._values)

    def set(self, path: str, value: float) -> None:
        """Change a parameter from the next iteration on.

        The changed value is logged, is part of checkpoints, and holds until it is set again.
        Evaluations still play with the environment's parameters as configured.

        Args:
            path: path of the parameter: `env.params.NAME`, `default_ppo.NAME` or
                `policies.POLICY.ppo.NAME`, or a short name such as `learning_rate`.
            value: the new value.

        Raises:
            ValueError: If the number cannot change during a run, cannot have this value, or
                follows a schedule or a curriculum; or if this is not called in `on_start`,
                `on_log` or `on_evaluation`.
        """
        check_name("the path of control.set", path)
        name, method = self._caller or ("", "")
        if method not in self._METHODS:
            raise ValueError(
                f"control.set({path!r}, ...) must be called in a callback's "
                f"{', '.join(self._METHODS)}, got a call in {method or 'none of its methods'}"
            )
        if method == "on_log" and self._logs_by_clock:
            raise ValueError(
                f"control.set({path!r}, ...) in on_log needs log_interval, without which the "
                "moments of log entries depend on the clock; set it"
            )
        full, value = self._check(path, value)
        self._values[full] = self._changes[full] = value
        if name not in self._set_by:
            self._set_by.append(name)

    def take(self) -> dict[str, Any] | None:
        """Return the changes since the last call, and who made them; None without any."""
        if not self._changes:
            return None
        taken = {"values": self._changes, "set_by": self._set_by}
        self._changes, self._set_by = {}, []
        return taken

    def called_from(self, caller: tuple[str, str] | None) -> None:
        """Note the callback and the method that is running; None if none is."""
        self._caller = caller


@dataclass(frozen=True)
class RunInfo:
    """A run that begins or is resumed.

    Attributes:
        run_dir: the run's folder.
        config: the run's configuration.
        record: the content of its `config.json`.
        env_name: name of the environment.
        resumed_at: environment steps done before; 0 unless the run is resumed.
        history: entries of the log from before.
        evaluations: evaluations from before.
        control: changes hyper-parameters and environment parameters during the run.
    """

    run_dir: Path
    config: TrainConfig
    record: Mapping[str, Any]
    env_name: str
    resumed_at: int
    history: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    control: Control = field(default_factory=Control)


@dataclass(frozen=True)
class TrainResult:
    """Result of a run.

    Attributes:
        state: the final training state.
        population: the final players, as saved.
        history: the entries of `metrics.jsonl`; see `runs.log`.
        evaluations: the entries of `evaluations.jsonl`.
        run_dir: the run's folder.
        env_steps: environment steps done.
        interrupted: whether it was stopped before its end.
        stopped_by: what stopped it: a signal's name, or a sentence; None if it was completed.
        members: results of the replicas of a group that reached the group's end. The state of the
            group has an axis of replicas, and its metrics cover all of them.
        stopped_members: other replicas of a group by name, with what stopped them.
        best_member: name of the best replica at the last measurement, in population-based training.
        failed: whether an error ended it.
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
        """Handle the start of a new or resumed run.

        To change parameters during the run, keep `run.control`.
        """

    def on_log(self, entry: Mapping[str, Any]) -> bool | None:
        """Handle an entry of the log."""

    def on_evaluation(self, report: Mapping[str, Any]) -> bool | None:
        """Handle the report of an evaluation."""

    def on_checkpoint(self, path: Path) -> bool | None:
        """Handle a complete checkpoint in a folder."""

    def on_end(self, result: TrainResult) -> None:
        """Handle the result of the run, after saving; also if an error ended it."""


class CallbackError(RuntimeError):
    """Reports which callback failed; the run up to there is saved."""

    def __init__(self, callback: Callback, method: str, error: Exception, run_dir: Path) -> None:
        super().__init__(
            f"callback {name_of(callback)}.{method} raised {type(error).__name__}: {error}; "
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
        control: by which they can change the run; None where they cannot.
    """

    def __init__(
        self, run_dir: Path, callbacks: Iterable[Callback] = (), control: Control | None = None
    ) -> None:
        self._callbacks = list(callbacks)
        self._run_dir = run_dir
        self.control = Control() if control is None else control
        self.stopped_by: str | None = None

    def add(self, *callbacks: Callback) -> None:
        """Also notify these, in their order."""
        self._callbacks += callbacks

    def notify(self, method: str, what: Any) -> None:
        """Call a method of all callbacks.

        Raises:
            CallbackError: If one of them failed.
        """
        for callback in self._callbacks:
            try:
                self.control.called_from((name_of(callback), method))
                ends = getattr(callback, method)(what)
            except Exception as error:
                raise CallbackError(callback, method, error, self._run_dir) from error
            finally:
                self.control.called_from(None)
            if ends is True and self.stopped_by is None:
                self.stopped_by = f"callback {name_of(callback)}.{method}"


def name_of(callback: Callback) -> str:
    """Name a callback by its class, or a function by itself."""
    if isinstance(callback, _OnLog):
        return getattr(callback.function, "__qualname__", type(callback.function).__name__)
    return type(callback).__qualname__
