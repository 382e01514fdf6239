"""Optuna samplers and pruners of a search, which choose values and end trials early."""

import math
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from jaxmarl_ppo.config.search import DEFAULT_TRIALS, Choices, Dimension, SearchConfig, Space
from jaxmarl_ppo.sweeps.cmaes_sampler import CmaEsSampler

_FACTORS = {"asha": 4, "hyperband": 3}


class _GridSampler(optuna.samplers.GridSampler):
    """Goes through a grid; the number of trials determines its end."""

    def after_trial(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing; the original stops a loop that does not exist here."""


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Describe a space to Optuna."""
    return {path: _distribution(dimension) for path, dimension in space.items()}


def count_trials(search: SearchConfig, space: Space) -> int:
    """Return the total number of trials of a search.

    Raises:
        ValueError: If the sampler cannot search this space.
    """
    ranges = [d for d in space.values() if not isinstance(d, Choices)]
    if search.sampler == "cmaes" and len(ranges) < 2:
        raise ValueError(
            f"sampler='cmaes' needs at least two ranges, and the space has {len(ranges)}; use 'tpe'"
        )
    if search.sampler != "grid":
        return search.num_trials or DEFAULT_TRIALS
    size = math.prod(len(points) for points in _grid(space).values())
    return min(size, search.num_trials or size)


def make_sampler(search: SearchConfig, space: Space, number: int) -> optuna.samplers.BaseSampler:
    """Make the sampler that chooses the values of a trial.

    Random draws depend on the number of the trial, not on the process.
    """
    if search.sampler == "grid":
        return _GridSampler(_grid(space), search.seed)
    seed = int(np.random.SeedSequence((search.seed, number)).generate_state(1)[0])
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed)
    if search.sampler == "cmaes":
        return CmaEsSampler(distributions_of(space), seed)
    # Running trials of others count as bad, so that not all try the same values.
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


def make_pruner(search: SearchConfig, first_rung: int, last_rung: int) -> optuna.pruners.BasePruner:
    """Make the pruner.

    Args:
        search: its configuration.
        first_rung: environment steps after which a trial may be ended.
        last_rung: environment steps of a trial.
    """
    if search.pruner == "none":
        return optuna.pruners.NopPruner()
    factor = search.reduction_factor or _FACTORS[search.pruner]
    if search.pruner == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=first_rung, reduction_factor=factor
        )
    return optuna.pruners.HyperbandPruner(
        min_resource=first_rung, max_resource=last_rung, reduction_factor=factor
    )


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Choices):
        return CategoricalDistribution(dimension.labels)
    low, high, log, step = dimension.low, dimension.high, dimension.log, dimension.step
    if dimension.is_whole:
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(low, high, log=log, step=step)


def _grid(space: Space) -> dict[str, list[Any]]:
    found = {}
    for path, dimension in space.items():
        try:
            is_choice = isinstance(dimension, Choices)
            found[path] = list(dimension.labels) if is_choice else dimension.grid()
        except ValueError as error:
            raise ValueError(f"space.{path}: {error}") from error
    return found
