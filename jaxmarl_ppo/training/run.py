"""Host side of one run: checks, log entries, evaluations, the newest finite players."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.learner.summary import find_divergence, largest_reward, summarise
from jaxmarl_ppo.runs.log import peak_memory_mb
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.types import Population, PyTree


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


@dataclass(eq=False)
class Run:
    """What the host keeps of a run, alone or one of several, and what it makes of its numbers.

    Attributes:
        learner: of the run, or of all that share its program.
        config: of the run, with its own seed.
        run_dir: its folder.
        evaluator: None where nothing is evaluated.
        last_finite: the newest players known to be finite, on the host.
        last_finite_env_steps: environment steps that they were trained on.
        decisions: up to the newest entry of the log.
    """

    learner: Learner
    config: TrainConfig
    run_dir: Path
    evaluator: MeanwhileEvaluator | None
    last_finite: Population
    last_finite_env_steps: int
    decisions: int

    def check(self, population: Population, metrics: Metrics, iteration: int) -> None:
        """Mark the players as the ones to save, unless they or the environment are at fault.

        Args:
            population: the players, on the host.
            metrics: of the present log interval.
            iteration: iterations done.

        Raises:
            EnvironmentFault: If the environment returned values that cannot be trained on.
            TrainingDiverged: If parameters, normalisers, losses or gradients are not finite.
        """
        env_steps = self.config.env_steps(iteration)
        # First, since parameters that are not finite make values that look like a fault.
        if found := find_divergence(self.learner, population, metrics):
            reward = largest_reward(metrics)
            raise TrainingDiverged(
                found, reward, env_steps, self.last_finite_env_steps, self.run_dir
            )
        self.last_finite, self.last_finite_env_steps = population, env_steps
        fault = jax.device_get(metrics.fault)
        if fault.found:
            env = self.learner.env
            slot = int(fault.agent)
            num_choices = len(self.learner.players.layout.factors[slot].counts)
            where = env.name, env.agents[slot], fault, self.learner.num_steps, self.run_dir
            raise EnvironmentFault(*where, num_choices)

    def entry(self, metrics: Metrics, clock: RunClock) -> dict[str, Any]:
        """Make an entry of the log.

        Args:
            metrics: of the interval.
            clock: its end.
        """
        summary = summarise(self.learner, metrics)
        self.decisions += summary["decisions"]
        entry = {
            "env_steps": clock.env_steps,
            "decisions": self.decisions,
            "iteration": clock.iteration,
            "wall_s": clock.wall_s,
            "env_steps_per_s": clock.rate,
            "decisions_per_s": clock.rate * summary["decisions_per_step"],
            "decisions_per_step": summary["decisions_per_step"],
            "episodes": summary["episodes"],
            "all": summary["all"],
            "policies": summary["policies"],
            "agents": summary["agents"],
            "peak_memory_mb": peak_memory_mb(),
        }
        if self.learner.env_schedules is not None:
            # Of the last iteration, which had the values of its beginning.
            began = clock.env_steps - self.config.env_steps(1)
            entry["env_params"] = self.learner.env_schedules.values(began)
        return entry | ({"league": summary["league"]} if "league" in summary else {})

    def report(self, clock: RunClock, env_params: PyTree | None = None) -> dict[str, Any]:
        """Evaluate the newest finite players, and make an entry of the evaluations.

        Args:
            clock: when.
            env_params: of the run; None for the learner's.
        """
        assert self.evaluator is not None
        return {
            "env_steps": clock.env_steps,
            "iteration": clock.iteration,
            "wall_s": clock.wall_s,
            **self.evaluator.evaluate(self.last_finite, clock.iteration, env_params=env_params),
        }
