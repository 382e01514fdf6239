"""Curricula: stages of training with values of their own, and the conditions that end them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from jaxmarl_ppo.config.changing import changing_path
from jaxmarl_ppo.config.checks import (
    MAX_STEPS,
    StepCount,
    check_fields,
    check_name,
    check_number,
    check_sequence,
    plain,
    rejection,
    whole_number,
)
from jaxmarl_ppo.config.conditions import ConditionText
from jaxmarl_ppo.config.paths import join_path

Number = bool | int | float


def check_changing_value(name: str, value: Any) -> Number:
    """Return a number that a run can change to; the rule of single ones.

    Raises:
        ValueError: If it is no finite number.
    """
    value = plain(value)
    return value if isinstance(value, bool) else check_number(name, value)


def _check_values(name: str, values: Any) -> dict[str, Number]:
    if not isinstance(values, Mapping):
        raise rejection(name, "a table from path to number, such as env.params.max_steps", values)
    found: dict[str, Number] = {}
    for written, value in values.items():
        path = join_path(changing_path(name, check_name(f"a path of {name}", written)))
        if path in found:
            raise ValueError(f"{name} has {path} twice")
        found[path] = check_changing_value(f"{name}.{path}", value)
    return found


@dataclass(frozen=True)
class Stage:
    """A stage of a curriculum.

    Conditions compare metrics from the log, such as `"agent_0.return_mean > 0.9"`, or from
    evaluations, such as `"evaluation/all/return_mean > 0.9"`. They are checked at every new entry
    or evaluation. An entry counts if all of its steps are in the stage.

    Attributes:
        values: values during this stage, by path: parameters of the environment (`env.params.NAME`)
            and hyper-parameters (`default_ppo.NAME`, or `policies.POLICY.ppo.NAME`). All others
            have their configured values.
        advance_when: condition that begins the next stage.
        return_when: condition that returns to the previous stage.
        min_env_steps: environment steps before a condition can end the stage.
        max_env_steps: environment steps after which the next stage begins in any case, at the next
            log entry or evaluation; None for no limit.
    """

    values: Annotated[Mapping[str, Number], _check_values]
    advance_when: ConditionText | None = None
    return_when: ConditionText | None = None
    min_env_steps: Annotated[int, whole_number(0, MAX_STEPS)] = 0
    max_env_steps: StepCount | None = None

    def __post_init__(self) -> None:
        check_fields(self, "of a stage")
        if self.min_env_steps and not self.conditions:
            raise ValueError(
                f"min_env_steps={self.min_env_steps} of a stage has no effect without advance_when "
                "or return_when; set one or drop it"
            )
        if self.max_env_steps is not None and self.max_env_steps < self.min_env_steps:
            raise ValueError(
                f"max_env_steps={self.max_env_steps} of a stage must be at least "
                f"min_env_steps={self.min_env_steps}"
            )

    @property
    def conditions(self) -> dict[str, str]:
        """Return the conditions that end the stage, by the names of their fields."""
        both = {"advance_when": self.advance_when, "return_when": self.return_when}
        return {name: text for name, text in both.items() if text is not None}


def check_curriculum(name: str, value: Any) -> tuple[Stage, ...]:
    """Return the stages of a curriculum; the rule of a field.

    Raises:
        ValueError: If they are not at least two, or one can never end, or cannot end in this way.
    """
    stages = tuple(check_sequence(name, value, "a sequence of stages"))
    for index, stage in enumerate(stages):
        if not isinstance(stage, Stage):
            raise rejection(f"{name}[{index}]", "a Stage", stage)
    if len(stages) == 1:
        raise ValueError(
            f"{name} has one stage, which never ends; add another one, or set its values in the "
            "configuration"
        )
    for index, (stage, following) in enumerate(pairwise(stages)):
        if stage.values == following.values:
            raise ValueError(
                f"{name}[{index + 1}] has the values of the stage before it; drop one of them"
            )
        if stage.advance_when is None and stage.max_env_steps is None:
            raise ValueError(
                f"{name}[{index}] never ends; set advance_when or max_env_steps, or drop the "
                "stages after it"
            )
    if stages and stages[0].return_when is not None:
        raise ValueError(
            f"return_when={stages[0].return_when!r} has no effect in {name}[0], which has no stage "
            "before it; drop it"
        )
    for field in ("advance_when", "max_env_steps"):
        if stages and getattr(stages[-1], field) is not None:
            raise ValueError(
                f"{field}={getattr(stages[-1], field)!r} has no effect in the last stage of "
                f"{name}; drop it, or add a stage without values for the configured ones"
            )
    return stages


def paths_of(stages: Sequence[Stage]) -> tuple[str, ...]:
    """List the paths of all numbers that stages change."""
    return tuple(dict.fromkeys(path for stage in stages for path in stage.values))
