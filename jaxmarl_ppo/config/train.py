"""`TrainConfig`, the configuration of a run, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from jaxmarl_ppo.config.annotations import Field
from jaxmarl_ppo.config.changing import check_own_ppo, check_present, is_env_param
from jaxmarl_ppo.config.checks import (
    MAX_INT,
    Count,
    Positive,
    Seed,
    StepCount,
    check_fields,
    check_name,
    check_number,
    check_policy_name,
    check_seed,
    show,
)
from jaxmarl_ppo.config.conditions import Conditions, parse_condition
from jaxmarl_ppo.config.curriculum import Stage, check_curriculum, paths_of
from jaxmarl_ppo.config.mapping import MappingSpec, check_mapping
from jaxmarl_ppo.config.paths import split_path, value_at, with_values
from jaxmarl_ppo.config.pbt import RIVALS, PbtConfig
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import PRUNED, CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.schedules import Linear, ScheduleRule, ScheduleSpec
from jaxmarl_ppo.networks.precision import MatmulPrecision

AnyPolicy = PolicySpec | Snapshots | Scripted
# Why fields cannot be searched, and what a search has instead.
_NOT_LEARNT = "it changes nothing that is learnt"
_EQUALLY_LONG = "trials are equally long"
_ALONE = "members of a group learn from each other, trials do not"


def _check_policies(name: str, policies: Any) -> dict[str, AnyPolicy]:
    if not isinstance(policies, Mapping):
        raise ValueError(
            f"{name} must be a table from policy to what it is, got {show(policies)}; "
            "which policy plays which agent is said by mapping="
        )
    for policy, spec in policies.items():
        check_policy_name(f"a policy in {name}", policy)
        if not isinstance(spec, AnyPolicy):
            raise ValueError(
                f"{name}[{policy!r}] must be a PolicySpec, Snapshots or Scripted, got {show(spec)}"
            )
    pools = [policy for policy, spec in policies.items() if isinstance(spec, Snapshots)]
    for index, pool in enumerate(pools):
        if pool.casefold() in map(str.casefold, pools[:index]):
            raise ValueError(
                f"{name} has the snapshots {pool!r} and others whose name differs in capitals "
                "alone, which would be one folder on some systems; give them another name"
            )
    return dict(policies)


def _check_env_schedules(name: str, schedules: Any) -> dict[str, ScheduleSpec]:
    if not isinstance(schedules, Mapping):
        raise ValueError(
            f"{name} must be a table from a parameter of the environment to its schedule, got "
            f"{show(schedules)}"
        )
    rule = ScheduleRule(check_number)
    for parameter in schedules:
        check_name(f"a parameter in {name}", parameter)
    return {key: rule(f"{name}[{key!r}]", spec) for key, spec in schedules.items()}


@dataclass(frozen=True)
class TrainConfig:
    """Configuration of a training run.

    Attributes:
        total_env_steps: steps summed over environments; rounded up to whole iterations of `num_envs
            * num_steps`. With a number that is never reached, such as 1e15, only `until`,
            `max_minutes` or a signal ends the run.
        num_envs: environments that are stepped in parallel.
        num_steps: environment steps per rollout.
        seed: seed of all random numbers.
        num_seeds: number of runs to train side by side, with the seeds `seed`, `seed + 1` and so
            on. `num_devices` is then the number of devices of all runs together. Where there are
            twice as many as runs or more, each run is spread over several. Each is bit-for-bit
            the run that it would be alone on as many. See docs/scale.md.
        mapping: which policy controls which agent: `"shared"`, `"per_agent"`, `"ensemble:3"`, a
            table from agent to policy, `Ensemble`, `Matchups` or `MappingFunction`; see
            `jaxmarl_ppo.policies.mapping.make_mapping`.
        policies: configurations of individual policies, by name or by a pattern such as `alice_*`:
            a `PolicySpec`, `Snapshots` of another policy, or a `Scripted` policy.
        default_policy: configuration of every policy that `policies` does not list.
        default_ppo: hyper-parameters of policies that have none of their own.
        env_schedules: schedules of numeric parameters of the environment, by name, such as
            `{"shaped_reward": Linear(1, 0)}`; a parameter within another one is named
            `outer.inner`. A rollout uses the values at its beginning. Evaluations use the
            environment's original parameters. See docs/policies.md.
        curriculum: stages of training, each with values of its own for hyper-parameters and
            parameters of the environment, and conditions on metrics that end it. Evaluations use
            the environment's original parameters. See docs/policies.md.
        stagger_starts: begin the first episodes at different phases; None to do so where the length
            of an episode is known, from its horizon or from trying out the environment.
        micro_batch_rows: rows whose gradient is computed at once; None chooses by backend.
        matmul_precision: precision of matrix products in networks, in rollouts and updates:
            "float32", "tf32" (on GPUs), or "bfloat16", which rounds the operands and sums in
            float32. Everything else is float32. See docs/accelerators.md.
        fused_gradients: on a GPU, compute each gradient of small MLPs as one kernel, which keeps
            activations on the chip. Other networks are trained as without it. It has not run on a
            GPU yet. See docs/accelerators.md.
        fused_acting: likewise compute the layers of small MLPs as one kernel where they act and
            value; others act as without it.
        rollout_unroll: steps of a rollout that are written out in each iteration of its compiled
            loop, a divisor of `num_steps`. With more of them a GPU launches fewer kernels, and
            compilation takes longer. See docs/accelerators.md.
        num_devices: devices that environments are spread over, a divisor of `num_envs`; None for
            the largest number that leaves at least 8 environments on each. With a different number
            of devices, a run draws different random numbers, as with a different seed.
        skip_nonfinite_updates: skip an optimiser step of a policy whose loss or gradient is not
            finite, and count it in the log, instead of ending the run.
        log_interval: iterations per entry of the log; None for about a hundred entries, and at
            least one every five seconds.
        max_minutes: time limit in minutes, at which the run stops as at a signal and can be
            resumed; None for no limit.
        until: conditions that end the run, on metrics from the log or from evaluations, such as
            `"shared.return_mean > 20"`. The first one that holds ends the run.
        checkpoints: when the state of training is saved.
        evaluation: when and how the policies are evaluated during training.
        objective: metric that selects the best checkpoint, and when it ends the run.
        pbt: population-based training: the runs of `num_seeds` also differ in hyper-parameters and
            learn from each other; None to train them independently. See docs/scale.md.
    """

    total_env_steps: Annotated[StepCount, Field(resumable=True, not_searched=_EQUALLY_LONG)] = (
        1_000_000
    )
    num_envs: Count = 256
    num_steps: Count = 128
    seed: Annotated[
        Seed, Field(not_searched="search.num_seeds says how many seeds a trial trains")
    ] = 0
    num_seeds: Count = 1
    mapping: Annotated[MappingSpec, check_mapping] = "shared"
    policies: Annotated[Mapping[str, AnyPolicy], _check_policies] = field(default_factory=dict)
    default_policy: PolicySpec = field(default_factory=PolicySpec)
    default_ppo: PPOConfig = field(default_factory=PPOConfig)
    env_schedules: Annotated[Mapping[str, ScheduleSpec], _check_env_schedules] = field(
        default_factory=dict
    )
    curriculum: Annotated[
        tuple[Stage, ...],
        check_curriculum,
        Field(
            not_searched="its stages are the same for all trials",
            in_search="only runs of `jaxmarl-ppo train` have stages",
        ),
    ] = ()
    stagger_starts: bool | None = None
    micro_batch_rows: Annotated[Count | None, Field(not_searched=_NOT_LEARNT)] = None
    matmul_precision: MatmulPrecision = "float32"
    fused_gradients: Annotated[bool, Field(resumable=True, not_searched=_NOT_LEARNT)] = False
    fused_acting: Annotated[bool, Field(resumable=True, not_searched=_NOT_LEARNT)] = False
    rollout_unroll: Annotated[Count, Field(resumable=True, not_searched=_NOT_LEARNT)] = 1
    num_devices: Annotated[Count | None, Field(resumable=True, not_searched=_NOT_LEARNT)] = None
    skip_nonfinite_updates: bool = False
    log_interval: Annotated[
        Count | None, Field(resumable=True, compares_members=True, not_searched=_NOT_LEARNT)
    ] = None
    max_minutes: Annotated[
        Positive | None,
        Field(resumable=True, not_searched=_EQUALLY_LONG, in_search="see search.max_minutes"),
    ] = None
    until: Annotated[
        Conditions,
        Field(resumable=True, not_searched=_EQUALLY_LONG, in_search=PRUNED),
    ] = ()
    checkpoints: Annotated[
        CheckpointConfig,
        Field(
            resumable=True,
            not_searched=_NOT_LEARNT,
            in_search="a trial that was not finished is run again",
        ),
    ] = field(default_factory=CheckpointConfig)
    evaluation: Annotated[
        EvaluationConfig,
        Field(
            resumable=True,
            compares_members=True,
            not_searched="trials are compared by the same evaluations",
        ),
    ] = field(default_factory=EvaluationConfig)
    objective: Annotated[
        ObjectiveConfig,
        Field(
            resumable=True,
            compares_members=True,
            not_searched="trials are compared by the same objective",
        ),
    ] = field(default_factory=ObjectiveConfig)
    pbt: Annotated[
        PbtConfig | None,
        Field(not_searched=_ALONE, in_search=f"{_ALONE}; see `jaxmarl-ppo train`"),
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed("the last of the seeds, seed + num_seeds - 1,", self.seed + self.num_seeds - 1)
        if self.num_steps % self.rollout_unroll:
            valid = [n for n in range(1, self.num_steps + 1) if self.num_steps % n == 0]
            raise ValueError(
                f"rollout_unroll={self.rollout_unroll} does not divide num_steps="
                f"{self.num_steps}; valid: {', '.join(map(str, valid))}"
            )
        measure = self.objective.measure or ""
        if measure.startswith("evaluation/") and self.evaluation.every_env_steps is None:
            raise ValueError(
                f"objective.measure={measure!r} needs evaluations while training; set "
                "evaluation.every_env_steps"
            )
        conditions = [("until", text) for text in self.until]
        for index, stage in enumerate(self.curriculum):
            named = stage.conditions.items()
            conditions += [(f"curriculum[{index}].{name}", text) for name, text in named]
        for name, text in conditions:
            if (
                parse_condition(text).name.startswith("evaluation")
                and self.evaluation.every_env_steps is None
            ):
                raise ValueError(
                    f"{name}={text!r} needs evaluations while training; set "
                    "evaluation.every_env_steps"
                )
        if self.pbt is not None:
            _check_pbt(self)
        if self.curriculum:
            _check_curriculum(self)

    @property
    def num_iterations(self) -> int:
        """Count the iterations that reach `total_env_steps`, or that can be counted at all."""
        return min(MAX_INT, -(-self.total_env_steps // self.env_steps(1)))

    def env_steps(self, iterations: int) -> int:
        """Count the environment steps of so many iterations."""
        return iterations * self.num_envs * self.num_steps


def _check_curriculum(config: TrainConfig) -> None:
    """Reject stages with numbers that the run does not have, cannot have, or changes otherwise."""
    if config.log_interval is None:
        raise ValueError(
            "curriculum needs log_interval, since its conditions are checked at entries of the "
            "log, which otherwise depend on the clock; set it to a number of iterations"
        )
    paths, measure = paths_of(config.curriculum), config.objective.measure
    for path in paths:
        check_changes("curriculum", path, config)
    if (
        any(is_env_param(split_path(path)) for path in paths)
        and measure is not None
        and not measure.startswith("evaluation/")
    ):
        raise ValueError(
            f"objective.measure={measure!r} would compare stages with different parameters of the "
            "environment; choose a metric from evaluations, such as evaluation/all/return_mean, "
            "which all have the configured parameters"
        )
    for index, stage in enumerate(config.curriculum):
        if stage.min_env_steps >= config.total_env_steps:
            raise ValueError(
                f"curriculum[{index}].min_env_steps={stage.min_env_steps} is not reached within "
                f"total_env_steps={config.total_env_steps}"
            )
    for index, stage in enumerate(config.curriculum):
        try:
            with_ppo_values(config, stage.values)
        except ValueError as error:
            raise ValueError(f"curriculum[{index}]: {error}") from error


def check_changes(name: str, path: str, config: TrainConfig) -> None:
    """Check that nothing else changes a number that is to change during a run.

    Args:
        name: of what changes it, for messages.
        path: a full one of the number.
        config: of the run.

    Raises:
        ValueError: If it follows a schedule, belongs to no policy, or is copied between members.
    """
    parts = split_path(path)
    if is_env_param(parts):
        parameter = ".".join(parts[2:])
        if parameter in config.env_schedules:
            raise ValueError(f"{name} has {path}, which has a schedule in env_schedules; drop one")
        return
    check_own_ppo(name, parts, config.policies)
    if config.pbt is not None:
        raise ValueError(
            f"{name} has {path}, but with pbt members copy each other's hyper-parameters; "
            "valid: env.params.NAME"
        )
    configured = value_at(config, parts)
    if isinstance(configured, Linear | tuple):
        raise ValueError(f"{name} has {path}, which has a schedule; set a number, or drop one")
    check_present(name, parts, configured)


def with_ppo_values(config: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Copy a configuration with other hyper-parameters, for some of the values of a stage.

    Args:
        config: of the run.
        values: by full path; those of the environment's parameters are left out.

    Raises:
        ValueError: For a value that the configuration cannot have.
    """
    own = {path: x for path, x in values.items() if not is_env_param(split_path(path))}
    # Without the stages, which would be checked again.
    return with_values(replace(config, curriculum=()), own)


def _check_pbt(config: TrainConfig) -> None:
    """Reject a run whose members have nothing to learn from each other, or no way to."""
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
    interval = comparison_interval(config)
    if pbt.fraction and interval >= config.num_iterations:
        steps = config.env_steps(interval)
        raise ValueError(
            f"pbt has no effect: members are compared every {steps:,} environment steps, and the "
            f"run has {config.total_env_steps:,}; compare them more often"
        )


def comparison_interval(config: TrainConfig) -> int:
    """Count the iterations from one comparison of members to the next.

    Raises:
        ValueError: If nothing would be measured.
    """
    pbt, measure = config.pbt, config.objective.measure or ""
    assert pbt is not None
    per_iteration = config.env_steps(1)
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
