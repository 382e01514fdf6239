"""What a scenario report is made of: the episodes and policies that it evaluates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from jaxmarl_envs.core import MultiAgentEnv
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


class Scenario(NamedTuple):
    """Describe how an environment is evaluated."""

    env_type: type[MultiAgentEnv]
    report_fn: Callable[[Evaluation], Report]
    num_episodes: int  # unless the caller overrides it
    numbers: tuple[str, ...]  # paths that it may report; `*` is any part
    exact_fn: Callable[[Evaluation], Report] | None = None  # takes too long unless asked for
