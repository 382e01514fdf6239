"""Configuration: frozen dataclasses that check every value when they are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxmarl_ppo.config.checks import check_counts
from jaxmarl_ppo.config.mapping import MappingSpec
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig


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
        check_counts(
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
