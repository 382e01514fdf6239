"""The loop around compiled iterations: slices, entries, evaluations, checkpoints, the end."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.processes import Processes
from jaxmarl_ppo.machine.interruption import Interruption
from jaxmarl_ppo.runs.callbacks import Callbacks
from jaxmarl_ppo.runs.manifest import RunPosition
from jaxmarl_ppo.runs.place import RunFolders
from jaxmarl_ppo.training.conditions import Until
from jaxmarl_ppo.training.objective import Objective
from jaxmarl_ppo.training.outcome import Logged
from jaxmarl_ppo.training.progress import Progress
from jaxmarl_ppo.training.run import RunClock
from jaxmarl_ppo.training.saving import Saver
from jaxmarl_ppo.training.slicing import Slices
from jaxmarl_ppo.training.time_split import TimeSplit
from jaxmarl_ppo.training.trained import Trained

# Without a configured log interval a run has an entry at least this often.
LOG_EVERY_S = 5.0


@dataclass(frozen=True)
class Surroundings:
    """Holds the constant context of a loop.

    Attributes:
        config: of the run.
        record: the content of `config.json`.
        run_dir: the folder of the run.
        log_interval: iterations for each entry of the log.
        callbacks: notified of every event.
        progress: the display.
        interruption: whether a signal has requested a stop.
        saver: writes checkpoints.
        objective: its tracker.
        until: further conditions that end the run.
        place: where the folders of the run are; None on processes that write none.
        time_split: measures the rollout's share of training; None where it is not measured.
        processes: of the job. All run the same loop; where clocks, signals or callbacks matter, the
            first one decides.
    """

    config: TrainConfig
    record: Mapping[str, Any]
    run_dir: Path
    log_interval: int
    callbacks: Callbacks
    progress: Progress
    interruption: Interruption
    saver: Saver
    objective: Objective
    until: Until
    place: RunFolders | None
    time_split: TimeSplit | None
    processes: Processes


@dataclass
class Loop:
    """Trains until the run ends or something stops it.

    Attributes:
        around: its context.
        trained: the run or group that it trains.
        began: when this process began the run, by `time.perf_counter`, compilation included.
        history: entries of the log.
        evaluations: evaluations.
        iteration: iterations done.
        logged_iteration: those up to the newest entry of the log.
        earlier_s: seconds of training before this process.
    """

    around: Surroundings
    trained: Trained[Any]
    began: float
    history: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    iteration: int = 0
    logged_iteration: int = 0
    earlier_s: float = 0.0

    def __post_init__(self) -> None:
        self._slices = Slices()
        self._env_steps = self.around.config.env_steps
        # Of the newest checkpoint; a new run has none.
        self._saved_iteration = self.iteration or None
        every = self.around.config.evaluation.every_env_steps
        self._every_evaluation = None if every is None else -(-every // self._env_steps(1))
        # The point from which rates are measured: the newest entry, or the start.
        self._measured_from = (self.iteration, time.perf_counter())

    def notify(self, method: str, what: Any) -> None:
        """Call a method of all callbacks, and change the numbers that they ask to change.

        Raises:
            CallbackError: If one of them failed.
        """
        around = self.around
        around.callbacks.notify(method, what)
        changes = around.processes.agree("changes", around.callbacks.control.take)
        if changes:
            self.trained.change(**changes)

    def run(self) -> None:
        """Train.

        Raises:
            EnvironmentFault: If the environment produced values that cannot be trained on.
            TrainingDiverged: If parameters are no longer finite.
            CallbackError: If a callback failed.
            RunFolderMoved: If the folder of the run no longer exists.
            ValueError: If the objective's measure is not among the metrics of an entry.
        """
        around, total = self.around, self.around.config.num_iterations
        while self.iteration < total and self.stopped_by is None:
            self._advance(self._next_target())
            self.trained.check(self.iteration)
            is_best = False
            if self._falls_on(around.log_interval) or self._is_entry_late():
                is_best = self._log()
            if self._every_evaluation is not None and self._falls_on(self._every_evaluation):
                is_best = self._evaluate() or is_best
            if is_best or self.iteration == total or self._is_save_due():
                self._save("end" if self.iteration == total else "interval", is_best)
            self._notify_of_checkpoint(around.saver.poll())

    def leave(self) -> None:
        """Save a checkpoint, and log the interrupted interval."""
        if self.iteration != self._saved_iteration:
            # Without the entry below: a resumed run logs the complete interval.
            self._save(self.stopped_by or "error", is_best=False)
        if self.iteration > self.logged_iteration:
            self._log()

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder, which has no checkpoint yet.

        Returns:
            The records of a group's members.
        """
        self.finish_saving()
        self.around = dataclasses.replace(self.around, run_dir=folder, place=None)
        self.around.saver.run_dir = folder
        self._saved_iteration = None
        return self.trained.move_to(folder)

    def finish_saving(self) -> None:
        """Wait for the newest checkpoint."""
        self._notify_of_checkpoint(self.around.saver.finish())

    @property
    def stopped_by(self) -> str | None:
        """Return the reason to stop (a signal's name or a sentence), or None."""
        around, signal = self.around, self.around.interruption.requested
        asked = around.processes.asked_to_stop(None if signal is None else signal.name)
        return around.processes.agree("stop", lambda: asked or self._stopped_here_by())

    def _stopped_here_by(self) -> str | None:
        around, limit = self.around, self.around.config.max_minutes
        if limit is not None and time.perf_counter() - self.began >= 60.0 * limit:
            return f"max_minutes={limit:g} are over"
        return around.callbacks.stopped_by or around.objective.stopped_by or around.until.stopped_by

    def _falls_on(self, interval: int) -> bool:
        """Return whether the present iteration ends an interval, or the run."""
        return self.iteration % interval == 0 or self._is_at_end

    @property
    def _is_at_end(self) -> bool:
        return self.iteration == self.around.config.num_iterations

    def _is_entry_late(self) -> bool:
        """Return whether the newest entry is so old that the run would look dead."""
        if self.around.config.log_interval is not None or self.iteration == self.logged_iteration:
            return False
        seconds = time.perf_counter() - self._measured_from[1]
        return self.around.processes.agree("log", lambda: seconds >= LOG_EVERY_S)

    def _is_save_due(self) -> bool:
        around = self.around
        return around.processes.agree("save", lambda: around.saver.is_due(self.iteration))

    def _next_target(self) -> int:
        """Find the next iteration at which something other than training is due."""
        around = self.around
        intervals = [around.log_interval, self._every_evaluation, around.saver.every_iterations]
        intervals += self.trained.intervals
        ends = [(self.iteration // every + 1) * every for every in intervals if every]
        return min(around.config.num_iterations, *ends)

    def _advance(self, target: int) -> None:
        """Train up to iteration `target`, in slices, unless something else is due before."""
        around = self.around
        while self.iteration < target and self.stopped_by is None:
            count = min(self._agreed_slice(), target - self.iteration)
            started = time.perf_counter()
            self.iteration = self.trained.train(count)
            seconds = time.perf_counter() - started
            self._slices.adapt(count, seconds)
            around.progress.advance(self._env_steps(self.iteration), self._rate())
            if around.time_split is not None:
                around.time_split.poll(self.trained.state, seconds / count)
            due = self._is_save_due() or self._is_entry_late()
            if self.trained.has_fault or due:
                return

    def _agreed_slice(self) -> int:
        return self.around.processes.agree("slice", lambda: self._slices.num_iterations)

    def _rate(self) -> float:
        """Measure environment steps per second since the newest entry, or the start."""
        iteration, moment = self._measured_from
        return self._env_steps(self.iteration - iteration) / (time.perf_counter() - moment)

    def _log(self) -> bool:
        """Make an entry of the interval; return whether the objective is at its best."""
        around = self.around
        entry = self.trained.entry(self._clock)
        entry["seconds"] = dict(around.progress.seconds)
        if around.time_split is not None and around.time_split.rollout_share is not None:
            entry["rollout_share"] = around.time_split.rollout_share
        self.logged_iteration = self.iteration
        self._measured_from = (self.iteration, time.perf_counter())
        self.history.append(entry)
        around.progress.show_entry(entry)
        self.notify("on_log", entry)
        around.until.see_entry(entry)
        return around.objective.see_entry(entry) is not None

    def _evaluate(self) -> bool:
        """Evaluate the newest policies; return whether the objective is at its best."""
        around = self.around
        around.progress.set_phase("evaluating")
        began = time.perf_counter()
        evaluate = self.trained.evaluate
        report = around.processes.agree("evaluation", lambda: evaluate(self._clock))
        # Excluded from the training rate.
        iteration, moment = self._measured_from
        self._measured_from = (iteration, moment + time.perf_counter() - began)
        self.evaluations.append(report)
        around.progress.show_evaluation(report)
        around.progress.set_phase("training")
        self.notify("on_evaluation", report)
        around.until.see_evaluation(report)
        return around.objective.see_evaluation(report) is not None

    def _save(self, saved_by: str, is_best: bool) -> None:
        """Start writing a checkpoint of the present state."""
        around = self.around
        if not around.saver.saves:
            return
        self.finish_saving()
        # If a callback has failed, no process begins to write.
        around.processes.agree("begin to save", self._check_place)
        position = RunPosition(
            iteration=self.iteration,
            logged_iteration=self.logged_iteration,
            env_steps=self._env_steps(self.iteration),
            decisions=self.trained.decisions,
            num_entries=len(self.history),
            num_evaluations=len(self.evaluations),
            log_interval=around.log_interval,
            wall_s=self._wall_s,
            objective=around.objective.best if is_best else None,
            best=around.objective.best,
            num_worse=around.objective.num_worse,
            saved_by=saved_by,
            changes=self.trained.changes,
        )
        around.saver.begin(self.trained.snapshot(around.record, position), is_best)
        # Of the newest checkpoint; a new run has none.
        self._saved_iteration = self.iteration or None

    def _check_place(self) -> None:
        if self.around.place is not None:
            self.around.place.check()

    def _notify_of_checkpoint(self, path: Path | None) -> None:
        if path is not None:
            self.around.progress.show_checkpoint()
            self.trained.forget()
            self.around.callbacks.notify("on_checkpoint", path)

    @property
    def _clock(self) -> RunClock:
        return RunClock(self.iteration, self._env_steps(self.iteration), self._wall_s, self._rate())

    @property
    def _wall_s(self) -> float:
        return self.earlier_s + time.perf_counter() - self.began
