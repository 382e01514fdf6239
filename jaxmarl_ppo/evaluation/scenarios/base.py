"""Inputs of all scenario reports: the episodes and policies that they evaluate."""

from dataclasses import dataclass
from typing import Any

import jax

from jaxmarl_ppo.evaluation.episodes import EpisodeTotals
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population, PyTree

Report = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """Holds the inputs of a report function."""

    learner: Learner
    env_params: PyTree
    population: Population
    totals: EpisodeTotals  # [episodes, A] each: the episodes played already
    greedy: bool  # how they were played
    key: jax.Array  # for games that the function plays itself

    @property
    def num_episodes(self) -> int:
        """Number of episodes played, and of any further ones for comparison."""
        return len(self.totals.finished)
