"""Configuration: frozen dataclasses that check every value when they are made."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from flax import linen as nn

from jaxmarl_ppo.learner.league_results import Snapshots
from jaxmarl_ppo.policies.mapping import MappingSpec
from jaxmarl_ppo.policies.scripted import Scripted

ValueClip = Literal["off", "ppo2", "squared_error"]
KLControl = Literal["off", "early_stop", "penalty"]
DiscountBy = Literal["decision", "tick"]


@dataclass(frozen=True)
class Linear:
    """From `start` at the first environment step to `end` at the last."""

    start: float
    end: float = 0.0


# A constant, a line over the whole run, or points (environment step, value) joined by lines.
ScheduleSpec = float | Linear | tuple[tuple[float, float], ...]


def schedule_points(spec: ScheduleSpec, total_env_steps: int) -> tuple[tuple[float, float], ...]:
    """A schedule as points (environment step, value) with ascending steps."""
    if isinstance(spec, Linear):
        return ((0.0, spec.start), (float(total_env_steps), spec.end))
    if isinstance(spec, tuple):
        return spec
    return ((0.0, float(spec)),)


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters of one policy's updates.

    Attributes:
        learning_rate: of Adam; a constant, `Linear(start, end)` or `((step, value), ...)`.
        num_epochs: passes over a rollout's decisions.
        num_minibatches: optimiser steps per pass.
        gamma: discount factor, per decision or per tick (`discount_by`).
        gae_lambda: decay of the advantage trace per decision.
        clip_eps: the ratio is clipped to `1 +- clip_eps`.
        value_clip: `"off"`; `"ppo2"`, keep the value within `value_clip_eps` of the old one;
            `"squared_error"`, cap the squared error at `value_clip_eps`.
        value_clip_eps: see `value_clip`; to be given exactly if that is not `"off"`.
        value_coef: weight of the value loss (half the squared error).
        entropy_coef: weight of the entropy bonus; a schedule like `learning_rate`.
        max_grad_norm: global norm at which gradients are clipped, or None.
        kl_control: `"off"`; `"early_stop"`, a policy's steps of an iteration end when a minibatch's
            KL divergence exceeds 1.5 `target_kl`; `"penalty"`, a KL term whose weight adapts
            towards `target_kl`.
        target_kl: see `kl_control`; to be given exactly if that is not `"off"`.
        initial_kl_coef: first weight of the KL penalty.
        normalise_advantages: to zero mean and unit variance over the policy's decisions.
        discount_by: `"decision"`: one factor gamma from one decision of an agent to its next;
            `"tick"`: one per tick that passed (semi-Markov).
        bptt_length: decisions per chunk of backpropagation through time; None for 16, or for a
            network without memory.
        adam_eps: epsilon of Adam.
    """

    learning_rate: ScheduleSpec = 5e-4
    num_epochs: int = 4
    num_minibatches: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    value_clip: ValueClip = "off"
    value_clip_eps: float | None = None
    value_coef: float = 0.5
    entropy_coef: ScheduleSpec = 0.01
    max_grad_norm: float | None = 0.5
    kl_control: KLControl = "off"
    target_kl: float | None = None
    initial_kl_coef: float | None = None
    normalise_advantages: bool = True
    discount_by: DiscountBy = "decision"
    bptt_length: int | None = None
    adam_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("learning_rate", "entropy_coef"):
            object.__setattr__(self, name, _check_schedule(name, getattr(self, name)))
        _check_counts(self, "num_epochs", "num_minibatches", "bptt_length")
        _check_range(self, 0.0, 1.0, "gamma", "gae_lambda")
        _check_range(self, 0.0, np.inf, "value_coef", "initial_kl_coef")
        for name in ("clip_eps", "value_clip_eps", "max_grad_norm", "target_kl", "adam_eps"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < np.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        _check_choice("value_clip", self.value_clip, ("off", "ppo2", "squared_error"))
        _check_choice("kl_control", self.kl_control, ("off", "early_stop", "penalty"))
        _check_choice("discount_by", self.discount_by, ("decision", "tick"))
        if self.kl_control != "off" and self.num_epochs * self.num_minibatches == 1:
            raise ValueError(
                f"kl_control={self.kl_control!r} has no effect on a single step per iteration, "
                "before which the KL divergence is 0; raise num_epochs or num_minibatches"
            )
        self._check_pair("value_clip_eps", "value_clip", ("ppo2", "squared_error"))
        self._check_pair("target_kl", "kl_control", ("early_stop", "penalty"))
        if self.initial_kl_coef is not None and self.kl_control != "penalty":
            raise ValueError(
                f"initial_kl_coef={self.initial_kl_coef} has no effect with "
                f"kl_control={self.kl_control!r}; set kl_control='penalty' or drop it"
            )

    def _check_pair(self, number: str, switch: str, needs: tuple[str, ...]) -> None:
        """A number that belongs to a switch is given exactly when the switch is on."""
        value, mode = getattr(self, number), getattr(self, switch)
        if mode in needs and value is None:
            raise ValueError(f"{switch}={mode!r} needs {number}; give a positive number")
        if mode not in needs and value is not None:
            raise ValueError(
                f"{number}={value} has no effect with {switch}={mode!r}; "
                f"set {switch} to one of {', '.join(needs)}, or drop {number}"
            )


@dataclass(frozen=True)
class PolicySpec:
    """A policy that is a network: how it looks at the world and how it is trained.

    Attributes:
        network: `"mlp"`, `"lstm"`, `"cnn"`, a module of `jaxmarl_ppo.networks` with its own
            sizes, or any flax module that keeps the call of that file.
        prev_action: append the agent's previous action to its features.
        prev_reward: append what the agent earned since its previous action.
        append_agent_id: append the slot's one-hot, so that a shared policy can tell agents apart.
        normalise_observations: by running mean and variance of the policy's own decisions.
        normalise_rewards: by the running standard deviation of the discounted return.
        central_critic: the critic also sees what all agents see, or the `state` of the observation
            if the environment offers one (MAPPO, Yu et al. 2022); needs a separate critic. The
            actor does not.
        ppo: the policy's own hyper-parameters; None for those of the run.
        trainable: False for a policy that keeps the parameters it starts with.
        load: start from a finished run, `RUN_DIR:POLICY`, or `RUN_DIR` for its policy of the same
            name; None for fresh parameters.
    """

    network: str | nn.Module = "mlp"
    prev_action: bool = False
    prev_reward: bool = False
    append_agent_id: bool = False
    normalise_observations: bool = False
    normalise_rewards: bool = False
    central_critic: bool = False
    ppo: PPOConfig | None = None
    trainable: bool = True
    load: str | None = None

    def __post_init__(self) -> None:
        if self.ppo is not None and not self.trainable:
            raise ValueError("ppo has no effect on a policy with trainable=False; drop one of them")
        if isinstance(self.network, str):
            _check_choice("network", self.network, ("mlp", "lstm", "cnn"))
        elif not isinstance(self.network, nn.Module):
            raise ValueError(
                f"network must be 'mlp', 'lstm', 'cnn' or a flax.linen module, got {self.network!r}"
            )


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Attributes:
        total_env_steps: ticks summed over environments; rounded up to whole iterations of
            `num_envs * num_steps`.
        num_envs: parallel environments.
        num_steps: ticks per rollout.
        seed: of everything random.
        mapping: which policy plays which agent: `"shared"`, `"per_agent"`, `"ensemble:3"`, a table
            from agent to policy, `Ensemble`, `Matchups` or `MappingFunction`; see
            `jaxmarl_ppo.policies.mapping.make_mapping`.
        policies: what single policies are, by name or by a pattern such as `alice_*`: a
            `PolicySpec`, `Snapshots` of another policy, or a `Scripted` one.
        default_policy: what a policy is unless `policies` says otherwise.
        default_ppo: hyper-parameters of policies that have none of their own.
        stagger_starts: begin the first episodes at different phases.
        micro_batch_rows: rows whose gradient is computed at once; None chooses by backend.
        num_devices: devices that environments are spread over, which must divide `num_envs`; None
            for as many as do and leave each at least 8. A run with another number of devices is
            another random draw, as with another seed.
        log_interval: iterations per entry of the log; None for about a hundred entries.
    """

    total_env_steps: int = 1_000_000
    num_envs: int = 256
    num_steps: int = 128
    seed: int = 0
    mapping: MappingSpec = "shared"
    policies: Mapping[str, PolicySpec | Snapshots | Scripted] = field(default_factory=dict)
    default_policy: PolicySpec = field(default_factory=PolicySpec)
    default_ppo: PPOConfig = field(default_factory=PPOConfig)
    stagger_starts: bool = True
    micro_batch_rows: int | None = None
    num_devices: int | None = None
    log_interval: int | None = None

    def __post_init__(self) -> None:
        _check_counts(
            self,
            "total_env_steps",
            "num_envs",
            "num_steps",
            "micro_batch_rows",
            "num_devices",
            "log_interval",
        )
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        if isinstance(self.mapping, Mapping):
            table = {
                agent: tuple(choice) if isinstance(choice, list) else choice
                for agent, choice in self.mapping.items()
            }
            object.__setattr__(self, "mapping", table)
        if not isinstance(self.default_policy, PolicySpec):
            raise ValueError(f"default_policy must be a PolicySpec, got {self.default_policy!r}")
        if not isinstance(self.policies, Mapping):
            raise ValueError(
                f"policies must be a table from policy to what it is, got {self.policies!r}; "
                "which policy plays which agent is said by mapping="
            )
        for name, spec in self.policies.items():
            if not isinstance(spec, PolicySpec | Snapshots | Scripted):
                raise ValueError(
                    f"policies[{name!r}] must be a PolicySpec, Snapshots or Scripted, got {spec!r}"
                )

    @property
    def num_iterations(self) -> int:
        """Iterations that reach `total_env_steps`."""
        return -(-self.total_env_steps // (self.num_envs * self.num_steps))


def _check_counts(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _check_range(config: Any, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not (low <= value <= high and np.isfinite(value)):
            raise ValueError(f"{name} must be finite and lie in [{low}, {high}], got {value}")


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; valid: {', '.join(choices)}")


def _check_schedule(name: str, spec: Any) -> ScheduleSpec:
    """A valid schedule, sequences turned into tuples."""
    if isinstance(spec, Linear):
        values = [spec.start, spec.end]
    elif isinstance(spec, Sequence) and not isinstance(spec, str):
        pairs = all(isinstance(point, Sequence) and len(point) == 2 for point in spec)
        if not spec or not pairs:
            raise ValueError(f"{name} must be a list of pairs [step, value], got {spec!r}")
        spec = tuple((float(step), float(value)) for step, value in spec)
        steps, values = zip(*spec, strict=True)
        if any(b <= a for a, b in itertools.pairwise(steps)):
            raise ValueError(f"the steps of {name} must ascend, got {list(steps)}")
    elif isinstance(spec, int | float) and not isinstance(spec, bool):
        values = [spec]
    else:
        raise ValueError(
            f"{name} must be a number, Linear(start, end) or [[step, value], ...], got {spec!r}"
        )
    if not all(0.0 <= value < np.inf for value in values):
        raise ValueError(f"{name} must be finite and not negative, got {spec!r}")
    return spec
