"""The loop around compiled iterations: slices, entries, evaluations, checkpoints, the end."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compilation import TrainFn
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.learner.summary import find_divergence, summarise
from jaxmarl_ppo.machine.interruption import Interruption, wait_until_ready
from jaxmarl_ppo.runs.callbacks import Callbacks
from jaxmarl_ppo.runs.checkpoints import Snapshot, Standing, to_arrays
from jaxmarl_ppo.training.entries import log_entry
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.objective import Objective
from jaxmarl_ppo.training.progress import Progress
from jaxmarl_ppo.training.saving import Saver
from jaxmarl_ppo.training.snapshot_archive import SnapshotArchive
from jaxmarl_ppo.training.until import Until
from jaxmarl_ppo.types import Population, TrainState

# A slice of compiled iterations is to last about this long, so that Ctrl-C is soon heard.
SLICE_S = 0.5
# Without a log interval of its own a run has an entry at least this often.
LOG_EVERY_S = 5.0
# The next slice may have at most this many times the iterations of the last one.
SLICE_GROWTH = 8


@dataclass(frozen=True)
class Surroundings:
    """Holds what a loop works with and does not change.

    Attributes:
        learner: of the run.
        config: of the run.
        train: the compiled iterations.
        no_metrics: the neutral element, on the host, where no donation uses it up.
        record: the content of `config.json`.
        run_dir: the folder of the run.
        log_interval: iterations for each entry of the log.
        callbacks: who is told.
        progress: what is shown.
        interruption: whether a signal asks for the end.
        saver: of checkpoints.
        objective: what is to be reached.
        until: what else ends the run.
        evaluator: None where nothing is evaluated.
        archive: of snapshots that do not all lie on the device; None where they do.
    """

    learner: Learner
    config: TrainConfig
    train: TrainFn
    no_metrics: Metrics
    record: Mapping[str, Any]
    run_dir: Path
    log_interval: int
    callbacks: Callbacks
    progress: Progress
    interruption: Interruption
    saver: Saver
    objective: Objective
    until: Until
    evaluator: MeanwhileEvaluator | None
    archive: SnapshotArchive | None


@dataclass
class Loop:
    """Trains a run to its end or until something stops it.

    Attributes:
        around: what it works with.
        state: of training.
        metrics: of the interval of the log that has begun.
        good: the newest players that are known to be finite, on the host.
        began: when this process began the run, by `time.perf_counter`, compilation included.
        iteration: iterations done.
        logged_iteration: those up to the newest entry of the log.
        decisions: up to the newest entry.
        earlier_s: seconds of training before this process.
        history: entries of the log.
        evaluations: evaluations.
    """

    around: Surroundings
    state: TrainState
    metrics: Metrics
    good: Population
    began: float
    iteration: int = 0
    logged_iteration: int = 0
    decisions: int = 0
    earlier_s: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slice_iterations = 1
        # Of the newest checkpoint; a run that begins has none.
        self._saved_iteration = self.iteration or None
        self.good_env_steps = self.env_steps(self.iteration)
        every = self.around.config.evaluation.every_env_steps
        self._every_evaluation = None if every is None else -(-every // self.env_steps(1))
        # From where and when on rates are measured: the newest entry, or the start.
        self._measured_from = (self.iteration, time.perf_counter())

    def run(self) -> None:
        """Train.

        Raises:
            EnvironmentFault: the environment gave what cannot be trained on.
            TrainingDiverged: parameters are not finite any more.
            CallbackError: a callback failed.
            ValueError: the objective's measure is not among the numbers of an entry.
        """
        around, total = self.around, self.around.config.num_iterations
        while self.iteration < total and self.stopped_by is None:
            self._advance(self._next_target())
            self._check()
            if around.archive is not None:
                self.state = around.archive.exchange(self.state, self.good, self.iteration)
            is_best = False
            if self._falls_on(around.log_interval) or self._is_entry_late:
                is_best = self._log()
            if self._every_evaluation is not None and self._falls_on(self._every_evaluation):
                is_best = self._evaluate() or is_best
            if is_best or self.iteration == total or around.saver.is_due(self.iteration):
                self._save("end" if self.iteration == total else "interval", is_best)
            self._tell_checkpoint(around.saver.poll())

    def leave(self) -> None:
        """Save where the run stands, and log the interval that was cut short."""
        if self.iteration != self._saved_iteration:
            # Without the entry below: a run that goes on makes a whole one of the interval.
            self._save(self.stopped_by or "error", is_best=False)
        if self.iteration > self.logged_iteration:
            self._log()

    def finish_saving(self) -> None:
        """Wait for the newest checkpoint."""
        self._tell_checkpoint(self.around.saver.finish())

    @property
    def stopped_by(self) -> str | None:
        """What asks for the end: a signal's name, or a sentence; None for nothing."""
        around, limit = self.around, self.around.config.max_minutes
        if around.interruption.requested is not None:
            return around.interruption.requested.name
        if limit is not None and time.perf_counter() - self.began >= 60.0 * limit:
            return f"max_minutes={limit:g} are over"
        return around.callbacks.stopped_by or around.objective.stopped_by or around.until.stopped_by

    def env_steps(self, num_iterations: int) -> int:
        """Count the environment steps of so many iterations."""
        config = self.around.config
        return num_iterations * config.num_envs * config.num_steps

    def _falls_on(self, interval: int) -> bool:
        """Tell whether the present iteration ends an interval, or the run."""
        return self.iteration % interval == 0 or self._is_at_end

    @property
    def _is_at_end(self) -> bool:
        return self.iteration == self.around.config.num_iterations

    @property
    def _is_entry_late(self) -> bool:
        """Whether the newest entry is so old that people would take the run for dead."""
        if self.around.config.log_interval is not None or self.iteration == self.logged_iteration:
            return False
        return time.perf_counter() - self._measured_from[1] >= LOG_EVERY_S

    def _next_target(self) -> int:
        """Find the iteration up to which there is nothing to do but train."""
        around = self.around
        intervals = [around.log_interval, self._every_evaluation, around.saver.every_iterations]
        if around.archive is not None:
            intervals += around.archive.intervals
        ends = [(self.iteration // every + 1) * every for every in intervals if every]
        return min(around.config.num_iterations, *ends)

    def _advance(self, target: int) -> None:
        """Train up to iteration `target`, in slices, unless something else is due before.

        A slice adds its iterations to the metrics one by one, so how many there are to a slice
        changes no bit of them.
        """
        around = self.around
        while self.iteration < target and self.stopped_by is None:
            count = min(self._slice_iterations, target - self.iteration)
            started = time.perf_counter()
            self.state, self.metrics = around.train(self.state, np.int32(count), self.metrics)
            wait_until_ready(self.metrics.sums.ticks)
            seconds = time.perf_counter() - started
            wanted = int(SLICE_S * count / seconds)
            self._slice_iterations = max(1, min(wanted, SLICE_GROWTH * self._slice_iterations))
            self.iteration = int(self.state.iteration)
            around.progress.advance(self.env_steps(self.iteration), self._rate())
            due = around.saver.is_due(self.iteration) or self._is_entry_late
            if self.metrics.fault.found or due:
                return

    def _rate(self) -> float:
        """Measure environment steps per second since the newest entry, or the start."""
        iteration, moment = self._measured_from
        return self.env_steps(self.iteration - iteration) / (time.perf_counter() - moment)

    def _check(self) -> None:
        """Take the players as the ones to save, unless something is wrong with them."""
        # Copied, since on a CPU what comes may be the device's own memory, which training reuses.
        population = jax.tree.map(np.array, jax.device_get(self.state.population))
        env_steps = self.env_steps(self.iteration)
        # Looked at first: parameters that are not finite make values that look like a fault.
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(population)):
            causes = find_divergence(self.around.learner, population, self.metrics)
            raise TrainingDiverged(causes, env_steps, self.good_env_steps, self.around.run_dir)
        self.good, self.good_env_steps = population, env_steps
        if self.metrics.fault.found:
            fault = jax.device_get(self.metrics.fault)
            env, config = self.around.learner.env, self.around.config
            agent = env.agents[int(fault.agent)]
            raise EnvironmentFault(env.name, agent, fault, config.num_steps, self.around.run_dir)

    def _log(self) -> bool:
        """Make an entry of the interval; return whether the objective is at its best."""
        around = self.around
        summary = summarise(around.learner, self.metrics)
        self.decisions += summary["decisions"]
        entry = log_entry(
            summary,
            self.iteration,
            self.env_steps(self.iteration),
            self.decisions,
            self._wall_s,
            self._rate(),
        )
        if around.archive is not None and "league" in entry:
            for policy, described in around.archive.describe().items():
                entry["league"]["pools"][policy] |= described
        self.metrics, self.logged_iteration = around.no_metrics, self.iteration
        self._measured_from = (self.iteration, time.perf_counter())
        self.history.append(entry)
        around.progress.show_entry(entry)
        around.callbacks.tell("on_log", entry)
        around.until.see_entry(entry)
        return around.objective.see_entry(entry) is not None

    def _evaluate(self) -> bool:
        """Evaluate what was learnt; return whether the objective is at its best."""
        around = self.around
        assert around.evaluator is not None
        around.progress.set_phase("evaluating")
        began = time.perf_counter()
        report = {
            "env_steps": self.env_steps(self.iteration),
            "iteration": self.iteration,
            "wall_s": self._wall_s,
            **around.evaluator.evaluate(self.good, self.iteration),
        }
        # Not a part of training's rate.
        iteration, moment = self._measured_from
        self._measured_from = (iteration, moment + time.perf_counter() - began)
        self.evaluations.append(report)
        around.progress.show_evaluation(report)
        around.progress.set_phase("training")
        around.callbacks.tell("on_evaluation", report)
        around.until.see_evaluation(report)
        return around.objective.see_evaluation(report) is not None

    def _save(self, saved_by: str, is_best: bool) -> None:
        """Have a checkpoint written of where the run stands."""
        around = self.around
        if not around.saver.saves:
            return
        self.finish_saving()
        standing = Standing(
            iteration=self.iteration,
            logged_iteration=self.logged_iteration,
            env_steps=self.env_steps(self.iteration),
            decisions=self.decisions,
            num_entries=len(self.history),
            num_evaluations=len(self.evaluations),
            log_interval=around.log_interval,
            wall_s=self._wall_s,
            objective=around.objective.best if is_best else None,
            best=around.objective.best,
            num_worse=around.objective.num_worse,
            saved_by=saved_by,
        )
        arrays = to_arrays({"state": self.state, "metrics": self.metrics})
        names = around.learner.players.names
        archive = None if around.archive is None else around.archive.as_json()
        around.saver.begin(Snapshot(arrays, self.good, names, around.record, standing, archive))
        # Of the newest checkpoint; a run that begins has none.
        self._saved_iteration = self.iteration or None

    def _tell_checkpoint(self, path: Path | None) -> None:
        if path is not None:
            self.around.progress.show_checkpoint()
            if self.around.archive is not None:
                self.around.archive.remove_unused()
            self.around.callbacks.tell("on_checkpoint", path)

    @property
    def _wall_s(self) -> float:
        return self.earlier_s + time.perf_counter() - self.began
