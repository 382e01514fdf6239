"""What a training loop trains: one run on all devices, or several side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from jaxmarl_ppo.devices.compilation import TrainFn
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.interruption import wait_until_ready
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import CheckpointData
from jaxmarl_ppo.runs.manifest import Standing
from jaxmarl_ppo.training.changing import InForce
from jaxmarl_ppo.training.outcome import Logged, save_run
from jaxmarl_ppo.training.run import Run, RunClock
from jaxmarl_ppo.training.snapshot_archive import SnapshotArchive
from jaxmarl_ppo.types import TrainState


class Trained(Protocol):
    """One run, or several side by side, as a training loop sees them."""

    @property
    def state(self) -> TrainState:
        """The state of training; of several runs it has an axis of them."""
        ...

    @property
    def good_env_steps(self) -> int:
        """Environment steps of the newest players known to be finite."""
        ...

    @property
    def decisions(self) -> int:
        """Decisions of a run up to the newest entry of the log."""
        ...

    @property
    def intervals(self) -> Sequence[int]:
        """Number of iterations between calls of `check` that have work to do."""
        ...

    @property
    def has_fault(self) -> bool:
        """Return whether an environment has produced a fault since the last check."""
        ...

    def train(self, count: int) -> int:
        """Train so many iterations, and return the total."""
        ...

    def check(self, iteration: int) -> None:
        """Mark the players as the ones to save; raise where nothing can continue."""
        ...

    def entry(self, clock: RunClock) -> dict[str, Any]:
        """Make a log entry of the metrics since the last one."""
        ...

    def evaluate(self, clock: RunClock) -> dict[str, Any]:
        """Evaluate the newest finite players."""
        ...

    def snapshot(self, record: Mapping[str, Any], standing: Standing) -> Any:
        """Copy the content of a checkpoint."""
        ...

    @property
    def changes(self) -> dict[str, Any] | None:
        """What a checkpoint needs to know of numbers that change; of a group, its first run's."""
        ...

    def change(self, values: Mapping[str, Any], set_by: Sequence[str]) -> None:
        """Change numbers, by path, as the callbacks of these names ask for."""
        ...

    def forget(self) -> None:
        """Remove files that only older checkpoints needed, now that there is a newer one."""
        ...

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder; return the records of a group's members."""
        ...

    def end(self, result: TrainResult, logged: Logged) -> TrainResult:
        """Save the result of the run, and return it with a further description."""
        ...


@dataclass
class OneRun:
    """Trains one run on all devices.

    Attributes:
        run: what the host keeps of it.
        compiled: the compiled iterations.
        no_metrics: the neutral element, on the host, where it is never donated.
        state: of training.
        metrics: of the present log interval.
        archive: of snapshots that do not all lie on the device; None where they do.
        in_force: the numbers that change.
    """

    run: Run
    compiled: TrainFn
    no_metrics: Metrics
    state: TrainState
    metrics: Metrics
    archive: SnapshotArchive | None
    in_force: InForce

    @property
    def good_env_steps(self) -> int:
        """Environment steps of the newest sound players."""
        return self.run.good_env_steps

    @property
    def decisions(self) -> int:
        """Decisions up to the newest entry of the log."""
        return self.run.decisions

    @property
    def intervals(self) -> Sequence[int]:
        """Iterations between which snapshots are exchanged."""
        return [] if self.archive is None else self.archive.intervals

    @property
    def has_fault(self) -> bool:
        """Return whether the environment has produced a fault."""
        return bool(self.metrics.fault.found)

    def train(self, count: int) -> int:
        """Train so many iterations, or up to a fault."""
        self.state, self.metrics = self.compiled(self.state, np.int32(count), self.metrics)
        wait_until_ready(self.metrics.sums.env_steps)
        return int(self.state.iteration)

    def check(self, iteration: int) -> None:
        """Mark the players as the ones to save, unless something is wrong with them.

        Raises:
            EnvironmentFault: If the environment produced values that cannot be trained on.
            TrainingDiverged: If parameters are no longer finite.
        """
        # Copied, since on a CPU this may be the device's own memory, which training reuses.
        population = jax.tree.map(np.array, jax.device_get(self.state.population))
        self.run.check(population, self.metrics, iteration)
        if self.archive is not None:
            self.state = self.archive.exchange(self.state, population, iteration)

    def entry(self, clock: RunClock) -> dict[str, Any]:
        """Make an entry of the interval, and begin the next one."""
        entry = self.run.entry(self.metrics, clock) | self.in_force.for_entry()
        self.metrics = self.no_metrics
        if self.in_force.see_entry(entry):
            self.state = self.in_force.changed(self.state)
        if "league" in entry and self.archive is not None:
            for policy, described in self.archive.describe().items():
                entry["league"]["pools"][policy] |= described
        return entry

    def evaluate(self, clock: RunClock) -> dict[str, Any]:
        """Evaluate what was learnt."""
        report = self.run.report(clock)
        if self.in_force.see_evaluation(report):
            self.state = self.in_force.changed(self.state)
        return report

    @property
    def changes(self) -> dict[str, Any] | None:
        """What a checkpoint needs to know of numbers that change."""
        return self.in_force.as_json()

    def change(self, values: Mapping[str, Any], set_by: Sequence[str]) -> None:
        """Change numbers, by path, as the callbacks of these names ask for."""
        self.in_force.set(values, set_by)
        self.state = self.in_force.changed(self.state)

    def snapshot(self, record: Mapping[str, Any], standing: Standing) -> CheckpointData:
        """Copy the content of a checkpoint to the host."""
        arrays = to_arrays({"state": self.state, "metrics": self.metrics})
        names = self.run.learner.players.names
        archive = None
        if self.archive is not None:
            self.archive.forget_lost()
            archive = self.archive.as_json()
        return CheckpointData(arrays, self.run.good, names, record, standing, archive)

    def forget(self) -> None:
        """Remove snapshots that no checkpoint needs any more."""
        if self.archive is not None:
            self.archive.remove_unused()

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Use another folder; this run has no members."""
        self.run.run_dir = folder
        if self.archive is not None:
            self.archive.run_dir = folder
        return []

    def end(self, result: TrainResult, logged: Logged) -> TrainResult:
        """Save the newest policies that are sound, the curve and the report."""
        save_run(self.run.learner, self.run.good, logged, result)
        return result
