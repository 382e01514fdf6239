"""A compiled program and the runs that it trains side by side, each as a replica."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns, hyperparams_of
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.interruption import wait_until_ready
from jaxmarl_ppo.runs.checkpoint_arrays import from_arrays, to_arrays
from jaxmarl_ppo.sweeps.trial_run import Measurement, TrialRun
from jaxmarl_ppo.sweeps.workers import Saved
from jaxmarl_ppo.training.changing import with_hyperparams
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.slicing import Slices
from jaxmarl_ppo.types import PyTree, TrainState


class Program:
    """Trains runs whose learners have one key.

    Args:
        learner: of the first of them; the others differ from it only in numbers.
        config: of the first.
        num_replicas: how many train side by side.
    """

    def __init__(self, learner: Learner, config: TrainConfig, num_replicas: int) -> None:
        self.learner = learner
        self.evaluator = (
            None
            if config.evaluation.every_env_steps is None
            else MeanwhileEvaluator(learner, config)
        )
        self._compiled = CompiledRuns(learner, num_replicas)
        self._runs: dict[int, TrialRun] = {}  # by replica
        self._states: Any = None
        self._metrics: Any = None
        self._slices = Slices()

    @property
    def is_idle(self) -> bool:
        """Return whether there is nothing to train."""
        return not self._runs

    def compile(self) -> None:
        """Compile training and initialisation."""
        self._compiled.compile()

    def admit(
        self,
        config: TrainConfig,
        learner: Learner,
        env_params: PyTree,
        folder: Path,
        saved: Saved | None = None,
    ) -> TrialRun:
        """Begin a run as a replica that is free, or go on with one.

        Args:
            config: of the run, with its own seed.
            learner: of the run, for its hyper-parameters.
            env_params: of the run.
            folder: of its record, for messages.
            saved: where it stood; None for a run that begins.

        Raises:
            ValueError: If the saved state is of another run.
        """
        compiled = self._compiled
        replica = choose_replica(self._runs, compiled.num_runs, compiled.replicas_per_row)
        one = compiled.begin(jax.random.key(config.seed), hyperparams_of(learner), env_params)
        if saved is not None:
            one = restored(saved, one, folder)
        if self._states is None:
            # Free replicas hold the same state, and never train.
            self._states = compiled.fill(one)
            self._metrics = compiled.fill(compiled.no_metrics)
        else:
            self._states = compiled.write(self._states, replica, one)
            self._metrics = compiled.write(self._metrics, replica, compiled.no_metrics)
        last_finite = jax.tree.map(np.array, jax.device_get(learner.averaged(one)))
        run = TrialRun(self.learner, config, env_params, folder, self.evaluator, last_finite, saved)
        self._runs[replica] = run
        return run

    def dismiss(self, run: TrialRun) -> None:
        """Free the replica of a run."""
        del self._runs[self._replica_of(run)]

    def free_memory(self) -> None:
        """Free the memory of all replicas if none is in use."""
        if self.is_idle:
            self._states = self._metrics = None

    def train(self) -> list[TrialRun]:
        """Train all runs for a slice, each at most to its next measurement; return those due."""
        compiled = self._compiled
        counts = np.zeros(compiled.num_replicas, np.int32)
        for replica, run in self._runs.items():
            counts[replica] = min(run.num_left, self._slices.num_iterations)
        began = time.perf_counter()
        self._states, self._metrics = compiled.train(self._states, counts, self._metrics)
        wait_until_ready(self._metrics.sums.env_steps)
        self._slices.adapt(int(counts.max()), time.perf_counter() - began)
        iterations = compiled.on_host(self._states.iteration)
        faults = compiled.on_host(self._metrics.fault.found)
        for replica, run in self._runs.items():
            run.iteration = int(iterations[replica])
        return [run for replica, run in self._runs.items() if run.num_left == 0 or faults[replica]]

    def save(self, run: TrialRun) -> Saved:
        """Copy a run's state to the host, just after a measurement."""
        state = self._compiled.run(self._states, self._replica_of(run))
        return Saved(to_arrays({"state": state}), run.iteration, run.decisions, run.wall_s)

    def measure(self, run: TrialRun) -> Measurement:
        """Measure a run's objective; see `TrialRun.measure`."""
        replica, compiled = self._replica_of(run), self._compiled
        population = compiled.run(compiled.averaged(self._states), replica)
        found = jax.device_get((population, compiled.run(self._metrics, replica)))
        self._metrics = compiled.write(self._metrics, replica, compiled.no_metrics)
        # Copied, since on a CPU this may be the device's own memory, which training reuses.
        return run.measure(*jax.tree.map(np.array, found))

    def _replica_of(self, run: TrialRun) -> int:
        return next(replica for replica, other in self._runs.items() if other is run)


def restored(saved: Saved, begun: TrainState, where: Path) -> TrainState:
    """Make the state that a run resumes from.

    Args:
        saved: its saved state.
        begun: its initial state, or that of a run with other numbers that will resume from there.
            Hyper-parameters and environment parameters are taken from it.
        where: the folder of the run, for messages.

    Raises:
        ValueError: If the saved state is of a run of another kind.
    """
    state: TrainState = from_arrays(saved.arrays, {"state": begun}, where)["state"]
    own = tuple(jax.device_get(group.hyperparams) for group in begun.training)
    training = with_hyperparams(state.training, own)
    return state.replace(training=training, env_params=begun.env_params)


def choose_replica(taken: Collection[int], num_members: int, replicas_per_row: int) -> int:
    """Choose a free replica on the row of devices with the fewest runs."""
    busy = [replica // replicas_per_row for replica in taken]
    free = [replica for replica in range(num_members) if replica not in taken]
    return min(free, key=lambda replica: busy.count(replica // replicas_per_row))
