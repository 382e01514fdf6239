"""Run configuration: checkpoints, evaluations during training, and the objective.

Checkpoints and evaluations do not change training by themselves. The objective can end a run, and
ranks the members of population-based training.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jaxmarl_ppo.config.annotations import Field
from jaxmarl_ppo.config.checks import (
    MAX_INT,
    Count,
    Positive,
    StepCount,
    check_fields,
    check_name,
    check_number,
    different_names,
    reject_without_effect,
    whole_number,
)

EVERY_MINUTES = 5.0
# What a search has instead of ends of single runs.
PRUNED = "all trials are equally long; see search.pruner"
# Where a measure of a run is found: in the entries of its log, or in its evaluations.
MEASURE_ROOTS = ("all", "agents", "policies", "evaluation")


def _check_measure(name: str, value: Any) -> str:
    check_name(name, value)
    if value.partition("/")[0] not in MEASURE_ROOTS or not value.partition("/")[2]:
        raise ValueError(
            f"{name} must be a path that begins with one of {', '.join(MEASURE_ROOTS)}, such as "
            f"agents/x/return_mean or evaluation/exploitability/greedy, got {value!r}"
        )
    return value


@dataclass(frozen=True)
class CheckpointConfig:
    """Schedule of checkpoints: complete training states, from which a run resumes bit-for-bit.

    A run also saves one whenever it stops, and at its end. The interval that ends first counts.

    Attributes:
        every_minutes: interval between checkpoints in minutes; None for no such interval.
        every_env_steps: interval in environment steps, rounded up to whole iterations;
            None for no such interval.
        keep: number of the newest checkpoints that are kept, in addition to the best one by the
            run's objective; 0 for no checkpoints at all.
    """

    every_minutes: Positive | None = EVERY_MINUTES
    every_env_steps: StepCount | None = None
    keep: Annotated[int, whole_number(0, MAX_INT)] = 2

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.keep:
            fields = ("every_minutes", "every_env_steps")
            reject_without_effect(self, "checkpoints", fields, "with checkpoints.keep=0; raise it")


@dataclass(frozen=True)
class EvaluationConfig:
    """Schedule and settings of evaluations during training.

    Evaluations use their own random numbers, so training is bit-for-bit the same without them,
    unless the objective reads them.

    Attributes:
        every_env_steps: interval between evaluations in environment steps, rounded up to whole
            iterations; None for no evaluation.
        episodes: number of episodes; None for as many as the environment needs.
        greedy: play each policy's most likely action, instead of sampling.
        opponents: players that each agent's policy also meets, in all slots but its own: `random`,
            a scripted policy of the environment, or a player of the run.
    """

    every_env_steps: StepCount | None = None
    episodes: Count | None = None
    greedy: bool = False
    opponents: Annotated[tuple[str, ...], different_names("a sequence of names")] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.every_env_steps is None:
            fields = ("episodes", "greedy", "opponents")
            why = "without evaluation.every_env_steps; set it"
            reject_without_effect(self, "evaluation", fields, why)


@dataclass(frozen=True)
class ObjectiveConfig:
    """Objective of a run: it selects the best checkpoint, and can end the run.

    Attributes:
        measure: metric that the run is judged by, as a path in the log or in evaluations, such as
            `agents/x/return_mean` or `evaluation/exploitability/greedy`; None for no objective.
        goal: direction in which the metric improves.
        stop_at: value of the metric that ends the run; None for none.
        patience: entries or evaluations without improvement, in a row, that end the run; None for
            no limit.
    """

    measure: Annotated[str, _check_measure] | None = None
    goal: Literal["maximise", "minimise"] = "maximise"
    stop_at: Annotated[Annotated[float, check_number] | None, Field(in_search=PRUNED)] = None
    patience: Annotated[Count | None, Field(in_search=PRUNED)] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.measure is None:
            fields = ("goal", "stop_at", "patience")
            reject_without_effect(self, "objective", fields, "without objective.measure; set it")

    def is_better(self, value: float, than: float | None) -> bool:
        """Return whether a value is better than another one, or than none at all."""
        if than is None:
            return True
        return value > than if self.goal == "maximise" else value < than

    def is_reached(self, value: float) -> bool:
        """Return whether a value is as good as `stop_at` asks for."""
        if self.stop_at is None:
            return False
        return value >= self.stop_at if self.goal == "maximise" else value <= self.stop_at
