"""One run of a trial: its measurements, entries and objective."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.sweeps.workers import Saved
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.objective import Measure
from jaxmarl_ppo.training.run import Run, RunClock
from jaxmarl_ppo.types import Population, PyTree

# Default number of measurements of a run without evaluations.
NUM_MEASUREMENTS = 20


@dataclass(frozen=True)
class Measurement:
    """Holds the result of measuring a run.

    Attributes:
        value: of the objective; None where it is missing.
        entry: of the log.
        report: of the evaluation; None where nothing is evaluated.
    """

    value: float | None
    entry: dict[str, Any]
    report: dict[str, Any] | None


class TrialRun(Run):
    """A run that trains side by side with others.

    Args:
        learner: of the program that trains it.
        config: of the run, with its own seed.
        env_params: of the run.
        folder: of its record, for messages.
        evaluator: of the program; None where nothing is evaluated.
        last_finite: the players that it begins with, on the host.
        saved: where it stood; None for a run that begins.
    """

    def __init__(
        self,
        learner: Learner,
        config: TrainConfig,
        env_params: PyTree,
        folder: Path,
        evaluator: MeanwhileEvaluator | None,
        last_finite: Population,
        saved: Saved | None = None,
    ) -> None:
        self.iteration = 0 if saved is None else saved.iteration
        super().__init__(
            learner=learner,
            config=config,
            run_dir=folder,
            evaluator=None if evaluator is None else evaluator.for_seed(config.seed),
            last_finite=last_finite,
            last_finite_env_steps=config.env_steps(self.iteration),
            decisions=0 if saved is None else saved.decisions,
        )
        self.env_params = env_params
        self._measure = Measure(config.objective.measure, learner)
        self._next_measurement = self._measurement_after(self.iteration)
        self._measured_at = (self.iteration, time.perf_counter())
        self._began = self._measured_at[1] - (0.0 if saved is None else saved.wall_s)

    @property
    def num_left(self) -> int:
        """Iterations until the next measurement; 0 where it is due now."""
        return self._next_measurement - self.iteration

    @property
    def is_over(self) -> bool:
        """Return whether the run has trained to its end."""
        return self.iteration == self.config.num_iterations

    @property
    def env_steps(self) -> int:
        """Environment steps done."""
        return self.config.env_steps(self.iteration)

    @property
    def wall_s(self) -> float:
        """Seconds of training, including those of previous workers."""
        return time.perf_counter() - self._began

    def measure(self, population: Population, metrics: Metrics) -> Measurement:
        """Measure its objective, with an evaluation where configured.

        Args:
            population: its players.
            metrics: since the previous measurement.

        Raises:
            EnvironmentFault: If the environment produced values that cannot be trained on.
            TrainingDiverged: If parameters are no longer finite.
            ValueError: If the objective's measure is not a metric of these runs.
        """
        self.check(population, metrics, self.iteration)
        iteration, moment = self._measured_at
        self._measured_at = (self.iteration, time.perf_counter())
        env_steps = self.config.env_steps(self.iteration - iteration)
        entry = self.entry(metrics, self._clock(env_steps / (self._measured_at[1] - moment)))
        value = self._measure.of_entry(entry)
        self._next_measurement = self._measurement_after(self.iteration)
        if self.evaluator is None:
            return Measurement(value, entry, None)
        report = self.report(self._clock(0.0), self.env_params)
        # Not a part of training's rate.
        self._measured_at = (self.iteration, time.perf_counter())
        evaluated = self._measure.of_evaluation(report)
        return Measurement(evaluated if value is None else value, entry, report)

    def _measurement_after(self, iteration: int) -> int:
        return min(iteration + measurement_interval(self.config), self.config.num_iterations)

    def _clock(self, rate: float) -> RunClock:
        return RunClock(self.iteration, self.env_steps, self.wall_s, rate)


def measurement_interval(config: TrainConfig) -> int:
    """Count the iterations between measurements of a run."""
    every = config.evaluation.every_env_steps
    if every is not None:
        return -(-every // config.env_steps(1))
    return config.log_interval or max(1, config.num_iterations // NUM_MEASUREMENTS)
