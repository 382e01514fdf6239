"""A run as the training loop sees it: it trains, is checked, and reports numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compilation import TrainFn
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.learner.summary import find_divergence, largest_reward, summarise
from jaxmarl_ppo.machine.interruption import wait_until_ready
from jaxmarl_ppo.rollout.faults import Fault
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import CheckpointData
from jaxmarl_ppo.runs.log import peak_memory_mb
from jaxmarl_ppo.runs.manifest import Standing
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.outcome import Logged, save_run
from jaxmarl_ppo.training.snapshot_archive import SnapshotArchive
from jaxmarl_ppo.types import Population, PyTree, TrainState


@dataclass(frozen=True)
class RunClock:
    """Time of an entry or an evaluation.

    Attributes:
        iteration: iterations done.
        env_steps: environment steps of a run, done.
        wall_s: seconds of training.
        rate: environment steps of a run per second, recently.
    """

    iteration: int
    env_steps: int
    wall_s: float
    rate: float


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

    def entry(self, moment: RunClock) -> dict[str, Any]:
        """Make a log entry of the metrics since the last one."""
        ...

    def evaluate(self, moment: RunClock) -> dict[str, Any]:
        """Evaluate the newest finite players."""
        ...

    def snapshot(self, record: Mapping[str, Any], standing: Standing) -> Any:
        """Copy the content of a checkpoint."""
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
        learner: of the run.
        config: of the run.
        run_dir: its folder.
        compiled: the compiled iterations.
        no_metrics: the neutral element, on the host, where it is never donated.
        state: of training.
        metrics: of the present log interval.
        good: the newest players known to be finite, on the host.
        good_env_steps: environment steps that they were trained on.
        decisions: up to the newest entry of the log.
        evaluator: None where nothing is evaluated.
        archive: of snapshots, where they are not all on the device; else None.
    """

    learner: Learner
    config: TrainConfig
    run_dir: Path
    compiled: TrainFn
    no_metrics: Metrics
    state: TrainState
    metrics: Metrics
    good: Population
    good_env_steps: int
    decisions: int
    evaluator: MeanwhileEvaluator | None
    archive: SnapshotArchive | None

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
        env_steps = iteration * self.config.num_envs * self.config.num_steps
        check_finite(
            self.learner, population, self.metrics, env_steps, self.good_env_steps, self.run_dir
        )
        self.good, self.good_env_steps = population, env_steps
        check_fault(self.learner, jax.device_get(self.metrics.fault), self.run_dir)
        if self.archive is not None:
            self.state = self.archive.exchange(self.state, self.good, iteration)

    def entry(self, moment: RunClock) -> dict[str, Any]:
        """Make an entry of the interval, and begin the next one."""
        summary = summarise(self.learner, self.metrics)
        self.decisions += summary["decisions"]
        self.metrics = self.no_metrics
        entry = make_entry(self.learner, summary, self.decisions, moment)
        if "league" in entry and self.archive is not None:
            for policy, described in self.archive.describe().items():
                entry["league"]["pools"][policy] |= described
        return entry

    def evaluate(self, moment: RunClock) -> dict[str, Any]:
        """Evaluate the newest policies."""
        assert self.evaluator is not None
        return make_report(self.evaluator, self.good, moment)

    def snapshot(self, record: Mapping[str, Any], standing: Standing) -> CheckpointData:
        """Copy the content of a checkpoint to the host."""
        arrays = to_arrays({"state": self.state, "metrics": self.metrics})
        names = self.learner.players.names
        archive = None
        if self.archive is not None:
            self.archive.forget_lost()
            archive = self.archive.as_json()
        return CheckpointData(arrays, self.good, names, record, standing, archive)

    def forget(self) -> None:
        """Remove snapshots that no checkpoint needs any more."""
        if self.archive is not None:
            self.archive.remove_unused()

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder; this run has no members."""
        self.run_dir = folder
        if self.archive is not None:
            self.archive.run_dir = folder
        return []

    def end(self, result: TrainResult, logged: Logged) -> TrainResult:
        """Save the newest finite policies, the curve and the report."""
        save_run(self.learner, self.good, logged, stopped=result.interrupted)
        return result


def check_finite(
    learner: Learner,
    population: Population,
    metrics: Metrics,
    env_steps: int,
    good_env_steps: int,
    run_dir: Path,
) -> None:
    """Raise an error if parameters, normalisers, losses or gradients are not finite.

    Call it before `check_fault`: non-finite parameters make values that look like a fault.

    Raises:
        TrainingDiverged: If they are not; the message names the cause.
    """
    found = find_divergence(learner, population, metrics)
    if found:
        reward = largest_reward(metrics)
        raise TrainingDiverged(found, reward, env_steps, good_env_steps, run_dir)


def check_fault(learner: Learner, fault: Fault, run_dir: Path) -> None:
    """Reject the values that an environment produced.

    Raises:
        EnvironmentFault: If it cannot be trained on.
    """
    if fault.found:
        env = learner.env
        agent = env.agents[int(fault.agent)]
        raise EnvironmentFault(env.name, agent, fault, learner.num_steps, run_dir)


def make_entry(
    learner: Learner, summary: Mapping[str, Any], decisions: int, moment: RunClock
) -> dict[str, Any]:
    """Make an entry of the log.

    Args:
        learner: of the run.
        summary: of the interval, from `summarise`.
        decisions: up to the end of the interval.
        moment: the end of the interval.
    """
    entry = {
        "env_steps": moment.env_steps,
        "decisions": decisions,
        "iteration": moment.iteration,
        "wall_s": moment.wall_s,
        "env_steps_per_s": moment.rate,
        "decisions_per_s": moment.rate * summary["decisions_per_step"],
        "decisions_per_step": summary["decisions_per_step"],
        "episodes": summary["episodes"],
        "all": summary["all"],
        "policies": summary["policies"],
        "agents": summary["agents"],
        "peak_memory_mb": peak_memory_mb(),
    }
    if learner.env_schedules is not None:
        # Of the last iteration, which used the values at its start.
        began = moment.env_steps - learner.num_envs * learner.num_steps
        entry["env_params"] = learner.env_schedules.values(began)
    return entry | ({"league": summary["league"]} if "league" in summary else {})


def make_report(
    evaluator: MeanwhileEvaluator,
    population: Population,
    moment: RunClock,
    env_params: PyTree | None = None,
) -> dict[str, Any]:
    """Make an entry of the evaluations.

    Args:
        evaluator: of the run.
        population: the players.
        moment: when.
        env_params: of the run; None for the learner's.
    """
    return {
        "env_steps": moment.env_steps,
        "iteration": moment.iteration,
        "wall_s": moment.wall_s,
        **evaluator.evaluate(population, moment.iteration, env_params=env_params),
    }
