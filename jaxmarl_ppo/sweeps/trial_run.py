"""One run of a trial: its next look, entries and objective."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.learner.summary import summarise
from jaxmarl_ppo.sweeps.workers import Saved
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.objective import Measure
from jaxmarl_ppo.training.one_run import (
    RunClock,
    check_fault,
    check_finite,
    make_entry,
    make_report,
)
from jaxmarl_ppo.types import Population, PyTree

# Default number of looks at a run without evaluations.
LOOKS = 20


@dataclass(frozen=True)
class IntermediateResult:
    """Holds the result of a look at a run.

    Attributes:
        value: of the objective; None where it is missing.
        entry: of the log.
        report: of the evaluation; None where nothing is evaluated.
    """

    value: float | None
    entry: dict[str, Any]
    report: dict[str, Any] | None


class TrialRun:
    """A run that trains side by side with others.

    Args:
        learner: of the program that trains it.
        config: of the run, with its own seed.
        env_params: of the run.
        folder: of its record, for messages.
        evaluator: of the program; None where nothing is evaluated.
        saved: state to resume from; None for a new run.

    Attributes:
        good: the newest players known to be finite, on the host; None before the first look.
    """

    def __init__(
        self,
        learner: Learner,
        config: TrainConfig,
        env_params: PyTree,
        folder: Path,
        evaluator: MeanwhileEvaluator | None,
        saved: Saved | None = None,
    ) -> None:
        self.config, self.env_params, self.folder = config, env_params, folder
        self.iteration = 0 if saved is None else saved.iteration
        self.good: Population | None = None
        self.decisions = 0 if saved is None else saved.decisions
        self._learner = learner
        self._evaluator = None if evaluator is None else evaluator.for_seed(config.seed)
        self._measure = Measure(config.objective.measure, learner)
        self._env_steps_of_good = self.env_steps
        self._next_look = self._look_after(self.iteration)
        self._looked_at = time.perf_counter()
        self._began = self._looked_at - (0.0 if saved is None else saved.wall_s)

    @property
    def num_left(self) -> int:
        """Iterations until the next look; 0 where it is due now."""
        return self._next_look - self.iteration

    @property
    def is_over(self) -> bool:
        """Return whether the run has trained to its end."""
        return self.iteration == self.config.num_iterations

    @property
    def env_steps(self) -> int:
        """Environment steps done."""
        return self.iteration * self.config.num_envs * self.config.num_steps

    @property
    def wall_s(self) -> float:
        """Seconds of training, including those of previous workers."""
        return time.perf_counter() - self._began

    def look(self, population: Population, metrics: Metrics) -> IntermediateResult:
        """Measure its objective, with an evaluation where configured.

        Args:
            population: its players.
            metrics: since the previous look.

        Raises:
            EnvironmentFault: If the environment produced values that cannot be trained on.
            TrainingDiverged: If parameters are no longer finite.
            ValueError: If the objective's measure is not among the numbers that there are.
        """
        self._check(population, metrics)
        entry = self._entry(metrics)
        value = self._measure.of_entry(entry)
        self._next_look = self._look_after(self.iteration)
        if self._evaluator is None:
            return IntermediateResult(value, entry, None)
        report = make_report(self._evaluator, population, self._moment(0.0), self.env_params)
        # Excluded from the training rate.
        self._looked_at = time.perf_counter()
        evaluated = self._measure.of_evaluation(report)
        return IntermediateResult(evaluated if value is None else value, entry, report)

    def _look_after(self, iteration: int) -> int:
        return min(iteration + look_interval(self.config), self.config.num_iterations)

    def _check(self, population: Population, metrics: Metrics) -> None:
        """Mark the players as the ones to save, unless something is wrong with them."""
        saved = self._env_steps_of_good
        check_finite(self._learner, population, metrics, self.env_steps, saved, self.folder)
        self.good, self._env_steps_of_good = population, self.env_steps
        check_fault(self._learner, metrics.fault, self.folder)

    def _entry(self, metrics: Metrics) -> dict[str, Any]:
        summary = summarise(self._learner, metrics)
        self.decisions += summary["decisions"]
        now = time.perf_counter()
        rate = summary["env_steps"] / (now - self._looked_at)
        self._looked_at = now
        return make_entry(self._learner, summary, self.decisions, self._moment(rate))

    def _moment(self, rate: float) -> RunClock:
        return RunClock(self.iteration, self.env_steps, self.wall_s, rate)


def look_interval(config: TrainConfig) -> int:
    """Count the iterations between looks at a run, when it is compared."""
    every = config.evaluation.every_env_steps
    if every is not None:
        return -(-every // (config.num_envs * config.num_steps))
    return config.log_interval or max(1, config.num_iterations // LOOKS)
