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
    """Holds what a report function has to go by."""

    learner: Learner
    env_params: PyTree
    population: Population
    totals: EpisodeTotals  # [episodes, A] each: the episodes played already
    greedy: bool  # how they were played
    key: jax.Array  # for what the function plays itself

    @property
    def num_episodes(self) -> int:
        """Number of episodes played, and to be played again wherever a comparison needs it."""
        return len(self.totals.finished)
