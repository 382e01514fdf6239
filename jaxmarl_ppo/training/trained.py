"""What a training loop trains: the runs of one compiled program, of which there is often just one.

`seed_group.py` has several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.interruption import wait_until_ready
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import CheckpointData
from jaxmarl_ppo.runs.manifest import RunPosition
from jaxmarl_ppo.training.changing import InForce
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.outcome import Logged, save_run
from jaxmarl_ppo.training.run import Run, RunClock
from jaxmarl_ppo.training.snapshot_archive import SnapshotArchive
from jaxmarl_ppo.types import TrainState


@dataclass(eq=False)
class TrainedRun(Run):
    """A run of a compiled program.

    Attributes:
        replica: the index at which it is trained.
        in_force: the numbers that change.
        archive: of snapshots that do not all lie on the device; None where they do.
    """

    replica: int
    in_force: InForce
    archive: SnapshotArchive | None


AnyRun = TypeVar("AnyRun", bound=TrainedRun)


@dataclass
class Trained(Generic[AnyRun]):
    """Trains the runs of a program, in step with each other: here a single one.

    Attributes:
        compiled: the program.
        state: of training; of several runs by replica.
        metrics: of the present log interval, likewise.
        runs: those that still train.
    """

    compiled: CompiledRuns
    state: TrainState
    metrics: Metrics
    runs: list[AnyRun]

    @property
    def learner(self) -> Learner:
        """The learner of every run."""
        return self.compiled.learner

    @property
    def kept(self) -> Sequence[AnyRun]:
        """Runs whose state a checkpoint holds: those that still train."""
        return self.runs

    @property
    def last_finite_env_steps(self) -> int:
        """Environment steps of the newest players of any run known to be finite."""
        return max(run.last_finite_env_steps for run in self.runs)

    @property
    def decisions(self) -> int:
        """Decisions of all runs that still train, up to the newest entry of the log."""
        return sum(run.decisions for run in self.runs)

    @property
    def intervals(self) -> Sequence[int]:
        """Number of iterations between calls of `check` that exchange snapshots."""
        archives = [run.archive for run in self.runs if run.archive is not None]
        return [every for archive in archives for every in archive.intervals]

    @property
    def has_fault(self) -> bool:
        """Return whether an environment has produced a fault since the last check."""
        found = self.compiled.on_host(self.metrics.fault.found)
        return any(found[run.replica] for run in self.runs)

    def train(self, count: int) -> int:
        """Train for so many iterations, or up to a fault, and return the total."""
        counts = np.zeros(self.compiled.num_replicas, np.int32)
        counts[[run.replica for run in self.runs]] = count
        self.state, self.metrics = self.compiled.train(self.state, counts, self.metrics)
        wait_until_ready(self.metrics.sums.env_steps)
        iterations = self.compiled.on_host(self.state.iteration)
        return int(max(iterations[run.replica] for run in self.runs))

    def check(self, iteration: int) -> None:
        """Mark the players as the ones to save; raise where nothing can continue.

        Raises:
            EnvironmentFault: If the environment produced values that cannot be trained on.
            TrainingDiverged: If parameters are no longer finite.
        """
        populations = self.compiled.on_host(self.compiled.averaged(self.state))
        metrics = self.compiled.on_host(self.metrics)
        errors: list[tuple[AnyRun, Exception]] = []
        for run in self.runs:
            try:
                run.check(populations[run.replica], metrics[run.replica], iteration)
            except (EnvironmentFault, TrainingDiverged) as error:
                errors.append((run, error))
        self._end_faulty(errors)
        for run in self.runs:
            if run.archive is not None:
                self.state = run.archive.exchange(self.state, run.last_finite, iteration)

    def _end_faulty(self, errors: Sequence[tuple[AnyRun, Exception]]) -> None:
        """End the runs that cannot continue."""
        if errors:
            raise errors[0][1]

    def entry(self, clock: RunClock) -> dict[str, Any]:
        """Make a log entry of the interval, and begin the next one."""
        metrics = self.compiled.on_host(self.metrics)
        entries = [self._entry_of(run, metrics[run.replica], clock) for run in self.runs]
        self.metrics = self.compiled.fill(self.compiled.no_metrics)
        return self._together(entries)

    def _entry_of(self, run: AnyRun, metrics: Metrics, clock: RunClock) -> dict[str, Any]:
        """Make an entry of one run's log."""
        entry = run.entry(metrics, clock) | run.in_force.for_entry()
        if run.in_force.see_entry(entry):
            self._apply(run)
        if "league" in entry and run.archive is not None:
            for policy, described in run.archive.describe().items():
                entry["league"]["pools"][policy] |= described
        return entry

    def _together(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the entry of the only run."""
        return entries[0]

    def evaluate(self, clock: RunClock) -> dict[str, Any]:
        """Evaluate the newest finite players."""
        return self._evaluated_together([self._report_of(run, clock) for run in self.runs])

    def _report_of(self, run: AnyRun, clock: RunClock) -> dict[str, Any]:
        """Evaluate one run."""
        report = self._evaluate(run, clock)
        if run.in_force.see_evaluation(report):
            self._apply(run)
        return report

    def _evaluate(self, run: AnyRun, clock: RunClock) -> dict[str, Any]:
        return run.report(clock)

    def _evaluated_together(self, reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the evaluation of the only run."""
        return reports[0]

    @property
    def changes(self) -> dict[str, Any] | None:
        """What a checkpoint needs to know of numbers that change; of a group, its first run's."""
        return self.kept[0].in_force.as_json()

    def change(self, values: Mapping[str, Any], set_by: Sequence[str]) -> None:
        """Change numbers of all runs, by path, as the callbacks of these names ask for."""
        for run in self.kept:
            run.in_force.set(values, set_by)
            self._apply(run)

    def _apply(self, run: AnyRun) -> None:
        """Put the numbers that are in force in a run's state."""
        self.state = run.in_force.changed(self.state)

    def snapshot(self, record: Mapping[str, Any], position: RunPosition) -> Any:
        """Copy the content of a checkpoint to the host."""
        return self._data(self.runs[0], record, position)

    def _data(
        self, run: AnyRun, record: Mapping[str, Any], position: RunPosition
    ) -> CheckpointData:
        """Copy the content of one run's checkpoint to the host."""
        parts = {"state": self.state, "metrics": self.metrics}
        arrays = to_arrays({name: self.compiled.run(of, run.replica) for name, of in parts.items()})
        archive = None
        if run.archive is not None:
            run.archive.forget_lost()
            archive = run.archive.as_json()
        names = self.learner.players.names
        return CheckpointData(arrays, run.last_finite, names, record, position, archive)

    def forget(self) -> None:
        """Remove files that only older checkpoints needed, now that there is a newer one."""
        for run in self.runs:
            if run.archive is not None:
                run.archive.remove_unused()

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder; return the records of a group's members."""
        for run in self.runs:
            run.run_dir = folder
            if run.archive is not None:
                run.archive.run_dir = folder
        return []

    def end(self, result: TrainResult, logged: Logged) -> TrainResult:
        """Save the result, and return it with a further description."""
        save_run(self.learner, self.runs[0].last_finite, logged, result)
        return result
