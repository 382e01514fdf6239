"""Searches over configurations: ranges, choices, and how they are searched."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jaxmarl_ppo.config.annotations import Field
from jaxmarl_ppo.config.checks import (
    MAX_INT,
    Count,
    Positive,
    Seed,
    check_fields,
    check_name,
    check_number,
    check_sequence,
    reject_repeated,
    rejection,
    whole_number,
)

Sampler = Literal["tpe", "cmaes", "random", "grid"]
Pruner = Literal["none", "asha", "hyperband"]
DEFAULT_TRIALS = 64
DEFAULT_MEMBERS = 8


@dataclass(frozen=True)
class Range:
    """A range of numbers; of integers if both bounds, and the step, are integers.

    Attributes:
        low: lower bound.
        high: upper bound.
        log: whether numbers are drawn uniformly on a logarithmic scale.
        step: difference between neighbouring numbers; None for all real numbers, or all integers,
            in the range.
    """

    low: Annotated[float, check_number]
    high: Annotated[float, check_number]
    log: bool = False
    step: Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self, "of a range")
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} of a range must be below high={self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low={self.low:g} of a range with log=True must be positive")
        if self.log and self.step is not None:
            raise ValueError(f"step={self.step:g} has no effect with log=True; drop one of them")

    @property
    def is_whole(self) -> bool:
        """Return whether the range contains only integers."""
        numbers = (self.low, self.high, 1 if self.step is None else self.step)
        return all(isinstance(number, int) for number in numbers)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the values that are checked before training: both bounds."""
        return (self.low, self.high)

    def value_of(self, label: Any) -> Any:
        """Return a number, which stands for itself."""
        return label

    label_of = value_of

    def grid(self) -> list[Any]:
        """List the numbers from step to step.

        Raises:
            ValueError: If there is no step.
        """
        step = 1 if self.step is None and self.is_whole and not self.log else self.step
        if step is None:
            raise ValueError("a grid needs a step, or choices")
        # A little more than the quotient, which rounding may have made a little less.
        count = int((self.high - self.low) / step * (1 + 1e-12)) + 1
        return [self.low + k * step for k in range(count)]


@dataclass(frozen=True)
class Choices:
    """A choice among several values, of any kind that a configuration can hold.

    Attributes:
        values: the values, as in a file: numbers, strings, lists or tables.
    """

    values: Sequence[Any]

    def __post_init__(self) -> None:
        values = check_sequence("choices", self.values, "a list of values")
        if len(values) < 2:
            raise rejection("choices", "a list of at least two values", self.values)
        object.__setattr__(self, "values", tuple(values))
        reject_repeated("choices", map(str, self.labels))

    @property
    def labels(self) -> tuple[Any, ...]:
        """Return labels of the choices: plain values as they are, lists and tables as JSON."""
        return tuple(
            value if isinstance(value, bool | int | float | str) else json.dumps(value)
            for value in self.values
        )

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return the values that are checked before training: all choices."""
        return tuple(self.values)

    def value_of(self, label: Any) -> Any:
        """Return the value that has a label."""
        return self.values[self.labels.index(label)]

    def label_of(self, value: Any) -> Any:
        """Return the label of a value."""
        return self.labels[list(self.values).index(value)]


Dimension = Range | Choices
Space = Mapping[str, Dimension]  # by path, such as `default_ppo.learning_rate`


@dataclass(frozen=True)
class SearchConfig:
    """Settings of a search: sampler, pruner, trials, runs side by side, and storage.

    Attributes:
        sampler: algorithm that chooses the next values: `"tpe"`, the tree-structured Parzen
            estimator; `"cmaes"`, covariance matrix adaptation for ranges, with choices drawn at
            random; `"random"`; or `"grid"`, every combination of choices and steps.
        pruner: algorithm that stops bad trials early: `"none"`; `"asha"`, asynchronous successive
            halving; or `"hyperband"`, several of these that begin at different times.
        reduction_factor: a pruner lets one trial in this many continue; None for 4, or 3 with
            `"hyperband"`.
        num_trials: total number of trials; None for 64, or for the complete grid.
        num_members: number of runs that train side by side.
        num_seeds: runs per trial, with consecutive seeds from that of the configuration; the
            trial's value is their mean.
        seed: seed of the sampler.
        max_minutes: time limit in minutes, at which the search stops; it continues when it is
            started again. None for no limit.
        storage: database of the trials: None for the file `study.db` in the search's folder, or
            `postgresql://USER@HOST/DATABASE`.
        study: name of the search in that database; None for the name of its folder.
    """

    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    reduction_factor: Annotated[int, whole_number(2, MAX_INT)] | None = None
    num_trials: Annotated[Count | None, Field(resumable=True)] = None
    num_members: Annotated[Count, Field(resumable=True)] = DEFAULT_MEMBERS
    num_seeds: Count = 1
    seed: Seed = 0
    max_minutes: Annotated[Positive | None, Field(resumable=True)] = None
    storage: Annotated[Annotated[str, check_name] | None, Field(resumable=True)] = None
    study: Annotated[Annotated[str, check_name] | None, Field(resumable=True)] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.reduction_factor is not None and self.pruner == "none":
            raise ValueError(
                f"reduction_factor={self.reduction_factor} has no effect with pruner='none'; set "
                "pruner or drop it"
            )
        if self.num_members % self.num_seeds:
            raise ValueError(
                f"num_members={self.num_members} must be a multiple of num_seeds="
                f"{self.num_seeds}, the runs of a trial"
            )
        if self.study is not None and self.storage is None:
            raise ValueError(
                f"study={self.study!r} has no effect without storage; set it or drop the other"
            )


def corners(ends: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """List values at the ends of a space that stand for all of it.

    Every end of every dimension comes once, beside the first ends of all others, and all last ends
    together.

    Args:
        ends: of every dimension, by path.
    """
    first = {path: each[0] for path, each in ends.items()}
    yield first
    for path, each in ends.items():
        for end in each[1:]:
            yield first | {path: end}
    yield {path: each[-1] for path, each in ends.items()}
