"""Exploit and explore: which member copies which, and with which hyper-parameters.

Truncation selection of Jaderberg et al. (2017), "Population Based Training of Neural Networks".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxmarl_ppo.config.pbt import PbtConfig
from jaxmarl_ppo.config.search import Choices, Dimension, Range
from jaxmarl_ppo.runs.lineage import Values


@dataclass(frozen=True)
class Copy:
    """Records that a member becomes a copy of another one.

    Attributes:
        member: its index.
        parent: index of the member that is copied.
        values: its new numbers, by path.
    """

    member: int
    parent: int
    values: Values


def first_values(pbt: PbtConfig, seed: int, member: int) -> dict[str, float]:
    """Draw the initial numbers of a member.

    Args:
        pbt: the search space.
        seed: of the group.
        member: its index.
    """
    rng = np.random.default_rng((seed, member))
    return {path: _draw(dimension, rng) for path, dimension in pbt.space.items()}


def exchange(
    scores: Sequence[float | None],
    values: Sequence[Values],
    pbt: PbtConfig,
    rng: np.random.Generator,
) -> list[Copy]:
    """Choose which members copy which, and explore around the numbers of the parents.

    Args:
        scores: of each member, the larger the better; None for one that cannot continue. All such
            members become copies.
        values: of each member, its numbers by path.
        pbt: the configuration.
        rng: the only source of chance.

    Returns:
        A copy for each of the worst members, unless the best ones score no higher. No parent
        becomes a copy itself, so all copies can be made at once.
    """
    scored = [index for index, score in enumerate(scores) if score is not None]
    ranked = sorted(scored, key=lambda index: (-(scores[index] or 0.0), index))
    absent = [index for index, score in enumerate(scores) if score is None]
    count = max(1, int(pbt.fraction * len(scores)))
    best = ranked[:count]
    worst = [*ranked[count:], *absent][-max(count, len(absent)) :]
    copies = []
    for member in sorted(worst) if best else ():
        parent = best[int(rng.integers(len(best)))]
        explored = {
            path: _explore(dimension, values[parent][path], pbt, rng)
            for path, dimension in pbt.space.items()
        }
        own, others = scores[member], scores[parent]
        if own is None or own < (others or 0.0):
            copies.append(Copy(member, parent, explored))
    return copies


def _draw(dimension: Dimension, rng: np.random.Generator) -> float:
    """Draw a number uniformly."""
    if isinstance(dimension, Choices):
        return dimension.values[int(rng.integers(len(dimension.values)))]
    if dimension.log:
        return _within(
            dimension, math.exp(rng.uniform(math.log(dimension.low), math.log(dimension.high)))
        )
    step = _step(dimension)
    if step:
        return _within(
            dimension, dimension.low + step * int(rng.integers(1 + _last(dimension, step)))
        )
    return _within(dimension, rng.uniform(dimension.low, dimension.high))


def _explore(dimension: Dimension, value: float, pbt: PbtConfig, rng: np.random.Generator) -> float:
    """Perturb a number by a step, or resample it."""
    # Always drawn, so that one number's choice does not affect the next one's.
    anew, up = rng.random() < pbt.resample_probability, rng.random() < 0.5
    other = _draw(dimension, rng)
    if anew:
        return other
    if isinstance(dimension, Choices):
        place = dimension.values.index(value) + (1 if up else -1)
        return dimension.values[min(max(place, 0), len(dimension.values) - 1)]
    if dimension.log:
        return _within(dimension, value * pbt.perturb if up else value / pbt.perturb)
    move = max((pbt.perturb - 1.0) * (dimension.high - dimension.low), _step(dimension))
    return _within(dimension, value + move if up else value - move)


def _within(dimension: Range, value: float) -> float:
    """Round to the nearest number of a range."""
    step = _step(dimension)
    if step:
        place = round((float(value) - dimension.low) / step)
        value = dimension.low + step * min(max(place, 0), _last(dimension, step))
    return min(max(value, dimension.low), dimension.high)


def _step(dimension: Range) -> float:
    """Return the spacing of a range's numbers; 0 for a continuous range."""
    return dimension.step or (1 if dimension.is_whole else 0)


def _last(dimension: Range, step: float) -> int:
    """Count the steps from the least number of a range to the greatest."""
    # Slightly more than the quotient, which may have been rounded down.
    return int((dimension.high - dimension.low) / step * (1 + 1e-12))
