"""What a user says of population-based training: members of a group that learn from each other."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from jaxmarl_ppo.config.checks import (
    MAX_FLOAT,
    Fraction,
    StepCount,
    check_fields,
    check_name,
    check_number,
    check_sequence,
    number,
    refuse_repeated,
    show,
)
from jaxmarl_ppo.config.keys import refuse_unknown
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.search import Choices, Dimension, Range, split_path
from jaxmarl_ppo.types import Hyperparams

if TYPE_CHECKING:
    from jaxmarl_ppo.config.train import TrainConfig

# Where an evaluation tells how members do against each other's policies.
RIVALS = "rivals"
# Of what the state of training holds, what training adapts, and what shapes the compiled program.
_NOT_EXPLORED = ("kl_coef", "num_epochs", "num_minibatches")
EXPLORED = tuple(
    field.name for field in dataclasses.fields(Hyperparams) if field.name not in _NOT_EXPLORED
)
_Tree = TypeVar("_Tree")


def _check_space(name: str, space: Any) -> dict[str, Dimension]:
    if not isinstance(space, Mapping) or not space:
        raise ValueError(
            f"{name} must be a table that names at least one number, such as "
            f"default_ppo.learning_rate, got {show(space)}"
        )
    for path, dimension in space.items():
        check_name(f"a path of {name}", path)
        parts = split_path(path)
        is_own = len(parts) == 4 and (parts[0], parts[2]) == ("policies", "ppo")
        if not (is_own or (len(parts) == 2 and parts[0] == "default_ppo")):
            raise ValueError(
                f"{name} has {path}, which population-based training cannot change: only numbers "
                "of PPO change without another compiled program, such as default_ppo.learning_rate "
                "or policies.NAME.ppo.gamma"
            )
        if parts[-1] not in EXPLORED:
            raise ValueError(
                f"{name} has {path}, which is no number that can change while a run goes on; "
                f"valid: {', '.join(EXPLORED)}"
            )
        if isinstance(dimension, Choices):
            for value in dimension.values:
                check_number(f"a choice of {name}.{path}", value)
        elif not isinstance(dimension, Range):
            raise ValueError(f"{name}[{path!r}] must be a Range or Choices, got {show(dimension)}")
    return dict(space)


def _check_rivals(name: str, value: Any) -> tuple[str, ...]:
    agents = tuple(check_sequence(name, value, "a sequence of agents"))
    for agent in agents:
        check_name(f"an entry of {name}", agent)
    refuse_repeated(name, agents)
    return agents


@dataclass(frozen=True)
class PbtConfig:
    """How the members of a group learn from each other (Jaderberg et al. 2017).

    `TrainConfig.num_seeds` says how many members there are, and the objective what they are
    compared by.

    Attributes:
        space: numbers that members differ in, `Range` or `Choices` by their paths, such as
            `default_ppo.learning_rate` and `policies.NAME.ppo.gamma`; members begin with random
            ones.
        every_env_steps: environment steps of a member from one comparison to the next, rounded up
            to whole iterations; None for every evaluation, or every entry of the log, of whichever
            the objective is.
        fraction: of all members, those that do worst and are replaced by copies of as many that do
            best, one at least; 0 for none, which is a random search to compare with.
        perturb: a copy's numbers are multiplied or divided by this, or, where a range is not
            `log`, moved up or down by so much more than 1 of its width; a choice becomes the one
            beside it.
        resample_probability: that a copy's number is drawn anew instead.
        rivals: agents in whose seats members meet the policies of all other members whenever they
            are evaluated; the objective's measure is then one of `evaluation/rivals`.
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
    rivals: Annotated[tuple[str, ...], _check_rivals] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.fraction:
            return
        for field in ("every_env_steps", "perturb", "resample_probability"):
            value = getattr(self, field)
            default = next(f.default for f in dataclasses.fields(self) if f.name == field)
            if value != default:
                raise ValueError(
                    f"pbt.{field}={value!r} has no effect with pbt.fraction=0; raise it or drop "
                    "the other"
                )


def check_pbt(config: "TrainConfig") -> None:
    """Refuse a run whose members have nothing to learn from each other, or no way to.

    Raises:
        ValueError: what is missing, or would have no effect.
    """
    pbt, measure = config.pbt, config.objective.measure
    assert pbt is not None
    if config.num_seeds < 2:
        raise ValueError(
            "pbt needs members that learn from each other; set num_seeds to at least 2, got "
            f"{config.num_seeds}"
        )
    if measure is None:
        raise ValueError(
            "pbt needs an objective by which members are compared; set objective.measure, such as "
            "evaluation/all/return_mean"
        )
    if bool(pbt.rivals) != measure.startswith(f"evaluation/{RIVALS}/"):
        raise ValueError(
            f"objective.measure={measure!r} and pbt.rivals={list(pbt.rivals)} do not fit: with "
            f"rivals the measure is one of evaluation/{RIVALS}, and only then"
        )
    for path in pbt.space:
        _check_place(config, path)
    interval = comparison_interval(config)
    if pbt.fraction and interval >= config.num_iterations:
        steps = interval * config.num_envs * config.num_steps
        raise ValueError(
            f"pbt has no effect: members are compared every {steps:,} environment steps, and the "
            f"run has {config.total_env_steps:,}; compare them more often"
        )


def _check_place(config: "TrainConfig", path: str) -> None:
    """Refuse a path that the configuration does not have."""
    head, name, *_ = split_path(path)
    if head == "default_ppo":
        return
    refuse_unknown([name], config.policies, "pbt.space: policies")
    spec = config.policies[name]
    if not isinstance(spec, PolicySpec) or spec.ppo is None:
        raise ValueError(
            f"pbt.space has {path}, but policies.{name} has no ppo of its own; give it one, or use "
            "default_ppo"
        )


def comparison_interval(config: "TrainConfig") -> int:
    """Count the iterations from one comparison of members to the next.

    Raises:
        ValueError: nothing is measured then.
    """
    pbt, measure = config.pbt, config.objective.measure or ""
    assert pbt is not None
    per_iteration = config.num_envs * config.num_steps
    if measure.startswith("evaluation/"):
        assert config.evaluation.every_env_steps is not None
        measured, key = -(-config.evaluation.every_env_steps // per_iteration), "evaluations"
    elif config.log_interval is None:
        raise ValueError(
            f"pbt with objective.measure={measure!r} needs entries of the log at moments that do "
            "not depend on the clock; set log_interval, or a measure of an evaluation"
        )
    else:
        measured, key = config.log_interval, "entries of the log"
    if pbt.every_env_steps is None:
        return measured
    interval = -(-pbt.every_env_steps // per_iteration)
    if interval % measured:
        raise ValueError(
            f"pbt.every_env_steps={pbt.every_env_steps} is {interval} iterations, which must be a "
            f"multiple of the {measured} between {key}"
        )
    return interval


def with_values(config: _Tree, values: Mapping[str, float]) -> _Tree:
    """Copy a configuration with other numbers.

    Args:
        config: a `TrainConfig`.
        values: by path, such as `policies.eve.ppo.gamma`.

    Raises:
        ValueError: a number that the configuration cannot have.
    """
    for path, value in values.items():
        config = _put(config, split_path(path), value)
    return config


def _put(tree: Any, parts: tuple[str, ...], value: float) -> Any:
    head, *rest = parts
    if rest:
        child = tree[head] if isinstance(tree, Mapping) else getattr(tree, head)
        value = _put(child, tuple(rest), value)
    if isinstance(tree, Mapping):
        return {**tree, head: value}
    return dataclasses.replace(tree, **{head: value})
