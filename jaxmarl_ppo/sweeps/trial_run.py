"""One run of a trial: how far it trains next, what is written of it, and how good it is."""

import time
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.learner.summary import summarise
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs.callbacks import RunInfo
from jaxmarl_ppo.runs.files import CONFIG_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.log import JsonLinesLogger, TensorBoardLogger
from jaxmarl_ppo.runs.run_folder import run_record
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.objective import Measure
from jaxmarl_ppo.training.one_run import (
    Moment,
    check_fault,
    check_finite,
    make_entry,
    make_report,
)
from jaxmarl_ppo.types import Population, PyTree

# How often a run is looked at that is not evaluated meanwhile, unless it says otherwise.
LOOKS = 20


class TrialRun:
    """A run that trains side by side with others.

    Args:
        learner: of the program that trains it.
        config: of the run, with its own seed.
        env_params: of the run.
        folder: for its record, empty or absent.
        evaluator: of the program; None where nothing is evaluated.
    """

    def __init__(
        self,
        learner: Learner,
        config: TrainConfig,
        env_params: PyTree,
        folder: Path,
        evaluator: MeanwhileEvaluator | None,
    ) -> None:
        self.config, self.env_params, self.folder = config, env_params, folder
        self.iteration = 0
        self._learner = learner
        self._evaluator = None if evaluator is None else evaluator.for_seed(config.seed)
        self._measure = Measure(config.objective.measure, learner)
        self._good: Population | None = None
        self._decisions = self._env_steps_of_good = 0
        self._next_look = min(look_interval(config), config.num_iterations)
        self._began = self._looked_at = time.perf_counter()
        record = run_record(learner.env, env_params, config)
        as_json.write_json(folder / CONFIG_FILE, record)
        self._loggers = (JsonLinesLogger(), TensorBoardLogger())
        info = RunInfo(folder, config, record, learner.env.name, 0, (), ())
        for logger in self._loggers:
            logger.on_start(info)

    @property
    def num_left(self) -> int:
        """Iterations until it is looked at next; 0 where it is to be looked at now."""
        return self._next_look - self.iteration

    @property
    def is_over(self) -> bool:
        """Whether it has trained to its end."""
        return self.iteration == self.config.num_iterations

    @property
    def env_steps(self) -> int:
        """Environment steps done."""
        return self.iteration * self.config.num_envs * self.config.num_steps

    def look(self, population: Population, metrics: Metrics) -> float | None:
        """Log, and evaluate where that is wanted; return the objective, None where it is not there.

        Args:
            population: what it has learnt.
            metrics: since it was looked at last.

        Raises:
            EnvironmentFault: the environment gave what cannot be trained on.
            TrainingDiverged: parameters are not finite any more.
            ValueError: the objective's measure is not among the numbers that there are.
        """
        self._check(population, metrics)
        value = self._measure.of_entry(self._log(metrics))
        self._next_look = min(
            self.iteration + look_interval(self.config), self.config.num_iterations
        )
        if self._evaluator is None:
            return value
        evaluated = self._measure.of_evaluation(self._evaluate(self._evaluator, population))
        return evaluated if value is None else value

    def close(self) -> None:
        """Save what was learnt, and close the files."""
        if self._good is not None:
            names = self._learner.players.names
            save_population(self.folder / POLICIES_FILE, names, self._good)
        for logger in self._loggers:
            logger.close()

    def _check(self, population: Population, metrics: Metrics) -> None:
        """Take the players as the ones to save, unless something is wrong with them."""
        saved = self._env_steps_of_good
        check_finite(self._learner, population, metrics, self.env_steps, saved, self.folder)
        self._good, self._env_steps_of_good = population, self.env_steps
        check_fault(self._learner, metrics.fault, self.folder)

    def _log(self, metrics: Metrics) -> dict[str, Any]:
        summary = summarise(self._learner, metrics)
        self._decisions += summary["decisions"]
        now = time.perf_counter()
        rate = summary["env_steps"] / (now - self._looked_at)
        entry = make_entry(summary, self._decisions, self._moment(rate))
        self._looked_at = now
        for logger in self._loggers:
            logger.on_log(entry)
        return entry

    def _evaluate(self, evaluator: MeanwhileEvaluator, population: Population) -> dict[str, Any]:
        report = make_report(evaluator, population, self._moment(0.0), self.env_params)
        # Not a part of training's rate.
        self._looked_at = time.perf_counter()
        for logger in self._loggers:
            logger.on_evaluation(report)
        return report

    def _moment(self, rate: float) -> Moment:
        wall_s = time.perf_counter() - self._began
        return Moment(self.iteration, self.env_steps, wall_s, rate)


def look_interval(config: TrainConfig) -> int:
    """Count the iterations from one look at a run to the next, at which it is compared."""
    every = config.evaluation.every_env_steps
    if every is not None:
        return -(-every // (config.num_envs * config.num_steps))
    return config.log_interval or max(1, config.num_iterations // LOOKS)
