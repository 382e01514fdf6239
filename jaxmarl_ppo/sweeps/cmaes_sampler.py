"""CMA-ES as an Optuna sampler without stored state besides the trials.

Optuna's own writes its state into the study as a pickle, and reading one can run code. Here the
state is rebuilt from the trials: generation by generation, in their order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import cmaes
import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

_GENERATION = "generation"
_POINT = "point"


class CmaEsSampler(optuna.samplers.BaseSampler):
    """Adapts a normal distribution over ranges to the trials so far (Hansen 2016).

    A generation ends once enough of its trials are complete. Trials requested before that, or after
    a failure, belong to the same generation. Choices are drawn at random.

    Args:
        space: distributions by name.
        seed: of the next draw.
    """

    def __init__(self, space: Mapping[str, BaseDistribution], seed: int) -> None:
        self._seed = seed
        self._random = optuna.samplers.RandomSampler(seed)
        self._space = {
            name: distribution
            for name, distribution in space.items()
            if not isinstance(distribution, CategoricalDistribution)
        }

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the dimensions that are drawn together."""
        return self._space

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Draw a point of the present generation."""
        optimiser = self._replay(study)
        # Each request draws another point than earlier ones with the same state.
        optimiser._rng.seed(self._seed)
        point = optimiser.ask()
        storage = study._storage
        for key, value in ((_GENERATION, optimiser.generation), (_POINT, point.tolist())):
            storage.set_trial_system_attr(trial._trial_id, key, value)
        return _untransform(point, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a choice at random."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _replay(self, study: optuna.Study) -> cmaes.CMA:
        """Update the distribution with the complete trials."""
        num_dims = len(self._space)
        bounds = np.array([[0.0, 1.0]] * num_dims)
        optimiser = cmaes.CMA(np.full(num_dims, 0.5), 1.0 / 6.0, bounds=bounds, seed=0)
        sign = 1.0 if study.direction == optuna.study.StudyDirection.MINIMIZE else -1.0
        trials: Sequence[FrozenTrial] = study.get_trials(
            deepcopy=False, states=(TrialState.COMPLETE,)
        )
        while True:
            solutions = [
                (np.array(trial.system_attrs[_POINT]), sign * float(trial.value or 0.0))
                for trial in trials
                if trial.system_attrs.get(_GENERATION) == optimiser.generation
            ]
            if len(solutions) < optimiser.population_size:
                return optimiser
            optimiser.tell(solutions[: optimiser.population_size])


def _untransform(point: np.ndarray, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Read values from a point of the unit cube `[D]`."""
    values = {}
    for x, (name, distribution) in zip(point, space.items(), strict=True):
        low, high = float(distribution.low), float(distribution.high)  # type: ignore[attr-defined]
        log, step = distribution.log, distribution.step  # type: ignore[attr-defined]
        number = low * (high / low) ** x if log else low + x * (high - low)
        if step is not None:
            number = low + step * round((number - low) / step)
        is_whole = isinstance(distribution, optuna.distributions.IntDistribution)
        number = float(np.clip(number, low, high))
        values[name] = round(number) if is_whole else number
    return values
