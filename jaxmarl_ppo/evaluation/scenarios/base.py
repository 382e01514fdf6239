"""What reports on scenarios share: the episodes that they go by, and means with their errors."""

from dataclasses import dataclass
from typing import Any, TypedDict

import jax
import numpy as np
from numpy.typing import ArrayLike

from jaxmarl_ppo.evaluation.episodes import EpisodeTotals
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population, PyTree

Report = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """What a report function has to go by."""

    learner: Learner
    env_params: PyTree
    population: Population
    totals: EpisodeTotals  # [episodes, A] each: the episodes played already
    greedy: bool  # how they were played
    key: jax.Array  # for what the function plays itself

    @property
    def num_episodes(self) -> int:
        """Episodes played already, and to be played again wherever a comparison needs it."""
        return len(self.totals.finished)


class MeanAndSE(TypedDict):
    """Mean and standard error."""

    mean: float
    se: float | None  # one value alone has none


def mean_and_se(values: ArrayLike) -> MeanAndSE:
    """Of `[n]` independent values."""
    values = np.asarray(values, np.float64)
    se = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None
    return {"mean": float(values.mean()), "se": se}


def plus_minus(mean: float, se: float | None, digits: int) -> str:
    """`25.1 ± 0.2`."""
    return f"{mean:.{digits}f}" + ("" if se is None else f" ± {se:.{digits}f}")
