"""Population-based training: members of a group that learn from each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from jaxmarl_ppo.config.changing import check_hyperparam, is_hyperparam
from jaxmarl_ppo.config.checks import (
    MAX_FLOAT,
    Fraction,
    StepCount,
    check_fields,
    check_name,
    check_number,
    different_names,
    number,
    reject_without_effect,
    show,
)
from jaxmarl_ppo.config.paths import full_path, join_path
from jaxmarl_ppo.config.search import Choices, Dimension, Range

# Where an evaluation tells how members do against each other's policies.
RIVALS = "rivals"


def _check_space(name: str, space: Any) -> dict[str, Dimension]:
    if not isinstance(space, Mapping) or not space:
        raise ValueError(
            f"{name} must be a table that names at least one number, such as "
            f"default_ppo.learning_rate, got {show(space)}"
        )
    found: dict[str, Dimension] = {}
    for written, dimension in space.items():
        parts = full_path(check_name(f"a path of {name}", written))
        path = join_path(parts)
        if not is_hyperparam(parts):
            raise ValueError(
                f"{name} has {path}, which population-based training cannot change: only numbers "
                "of PPO change without another compiled program, such as default_ppo.learning_rate "
                "or policies.NAME.ppo.gamma"
            )
        check_hyperparam(name, parts)
        if isinstance(dimension, Choices):
            for value in dimension.values:
                check_number(f"a choice of {name}.{path}", value)
        elif not isinstance(dimension, Range):
            raise ValueError(f"{name}[{path!r}] must be a Range or Choices, got {show(dimension)}")
        if path in found:
            raise ValueError(f"{name} has {path} twice")
        found[path] = dimension
    return found


@dataclass(frozen=True)
class PbtConfig:
    """Population-based training of the replicas of a group (Jaderberg et al. 2017).

    `TrainConfig.num_seeds` sets the number of members, which are compared by the objective.

    Attributes:
        space: hyper-parameters that differ between replicas, as `Range` or `Choices` by path, such
            as `default_ppo.learning_rate` and `policies.NAME.ppo.gamma`. Replicas start with values
            drawn from them.
        every_env_steps: environment steps of a replica between comparisons, rounded up to whole
            iterations and then to a multiple of the interval at which the objective is measured;
            None to compare whenever it is measured: at every evaluation, or at every entry of the
            log.
        fraction: share of the replicas that are replaced at a comparison: the worst become copies
            of as many of the best, at least one. 0 replaces none, which is a random search to
            compare with.
        perturb: factor by which a copy's hyper-parameters are multiplied or divided. On a range
            that is not `log` they move by `perturb - 1` times its width instead, and a choice
            becomes the next or the previous one.
        resample_probability: probability that a copy's hyper-parameter is drawn anew instead.
        rivals: agents that are controlled, in a replica's evaluation, by the policies of every
            replica in turn, its own included. The objective's measure must then be one of
            `evaluation/rivals/mean`, `evaluation/rivals/least` and `evaluation/rivals/greatest`.
    """

    space: Annotated[Mapping[str, Dimension], _check_space]
    every_env_steps: StepCount | None = None
    fraction: Annotated[
        float, number("finite and lie in [0.0, 0.5]", lambda x: 0.0 <= x <= 0.5)
    ] = 0.25
    perturb: Annotated[
        float, number("finite and greater than 1", lambda x: 1.0 < x < MAX_FLOAT)
    ] = 1.2
    resample_probability: Fraction = 0.25
    rivals: Annotated[tuple[str, ...], different_names("a sequence of agents")] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.fraction:
            fields = ("every_env_steps", "perturb", "resample_probability")
            reject_without_effect(self, "pbt", fields, "with pbt.fraction=0; raise it")
