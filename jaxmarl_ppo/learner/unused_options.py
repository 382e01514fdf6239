"""Checks that reject options without effect."""

from collections.abc import Iterator, Mapping
from typing import Any

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.mapping import MappingFunction, Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import ActorCritic
from jaxmarl_ppo.policies.mapping import PolicyMapping, make_mapping, match_names
from jaxmarl_ppo.policies.network_check import named_network
from jaxmarl_ppo.policies.plan import AnySpec, policy_specs, slots_of
from jaxmarl_ppo.types import PyTree


def check_effects(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> None:
    """Reject options that have no effect on this environment or are overridden.

    Raises:
        ValueError: For the first of them.
    """
    mapping = make_mapping(config.mapping, env.agents)
    specs = policy_specs(config, mapping)
    _check_tables(config, env.agents)
    _check_defaults(config, mapping, specs)
    _check_agent_ids(config, env.agents, mapping, specs)
    _check_unimix(config, env.action_layout(env_params), mapping, specs)
    _check_log_barrier(config, env.action_layout(env_params), mapping, specs)
    _check_times(config, specs)
    # None staggers wherever a length is known; only an explicit True can be without effect.
    if config.stagger_starts and env.phase_length(env_params) is None:
        raise ValueError(
            f"stagger_starts=True has no effect on environment {env.name!r}, which has no horizon; "
            "drop it"
        )


def _check_tables(config: TrainConfig, agents: tuple[str, ...]) -> None:
    """Reject entries of a mapping that apply to no agent."""
    for table in _tables(config.mapping):
        taken = set(match_names(table, agents).values())
        for pattern in table:
            if pattern not in taken:
                raise ValueError(
                    f"the policy mapping's entry {pattern!r} has no effect: every agent that it "
                    "matches has an entry before it, or of its own; drop it"
                )


def _tables(mapping: Any) -> Iterator[Mapping[str, Any]]:
    # Other mappings have no entries by agent, so none can be without effect.
    if isinstance(mapping, Mapping):
        yield mapping
    elif isinstance(mapping, Matchups):
        yield from mapping.tables
    elif isinstance(mapping, MappingFunction) and mapping.candidates is not None:
        yield mapping.candidates


def _check_defaults(config: TrainConfig, mapping: PolicyMapping, specs: dict[str, AnySpec]) -> None:
    """Reject defaults that every policy overrides."""
    has_own = all(match_names(config.policies, mapping.names).values())
    # A default that equals the built-in one may not have been given explicitly.
    if has_own and config.default_policy != PolicySpec():
        raise ValueError(
            "default_policy has no effect: policies says of every policy what it is "
            f"({', '.join(mapping.names)}); drop it"
        )
    trained = [spec for spec in specs.values() if isinstance(spec, PolicySpec) and spec.trainable]
    if config.default_ppo != PPOConfig() and all(spec.ppo is not None for spec in trained):
        why = "every policy that is trained has a ppo of its own" if trained else "none is trained"
        raise ValueError(f"default_ppo has no effect: {why}; drop it")


def _check_agent_ids(
    config: TrainConfig,
    agents: tuple[str, ...],
    mapping: PolicyMapping,
    specs: dict[str, AnySpec],
) -> None:
    """Reject `append_agent_id` where every policy that has it plays a single agent."""
    for key, names in _followers(config, mapping).items():
        slots = {
            name: slots_of(name, mapping, specs)
            for name in names
            if isinstance(spec := specs[name], PolicySpec) and spec.append_agent_id
        }
        # One entry may match many policies; one of them that plays several agents justifies it.
        if slots and all(len(of_one) == 1 for of_one in slots.values()):
            where = "default_policy" if key is None else f"policies[{key!r}]"
            players = (f"{name} plays {agents[of_one[0]]} alone" for name, of_one in slots.items())
            raise ValueError(
                f"append_agent_id of {where} has no effect: {', '.join(players)}; drop it"
            )


def _check_unimix(
    config: TrainConfig,
    layout: ActionLayout,
    mapping: PolicyMapping,
    specs: dict[str, AnySpec],
) -> None:
    """Reject `unimix` where no policy that has it has a choice."""
    for key, names in _followers(config, mapping).items():
        shares = {name: share for name in names if (share := _unimix(specs[name]))}
        slots = {slot for name in shares for slot in slots_of(name, mapping, specs)}
        if shares and not any(layout.factors[slot].counts for slot in slots):
            where = "default_policy" if key is None else f"policies[{key!r}]"
            raise ValueError(
                f"unimix={max(shares.values())} of {where} has no effect on continuous actions, "
                f"and {', '.join(shares)} has no others; drop it, or make the actions discrete"
            )


def _check_log_barrier(
    config: TrainConfig,
    layout: ActionLayout,
    mapping: PolicyMapping,
    specs: dict[str, AnySpec],
) -> None:
    """Reject a log barrier where no policy that has it has a choice."""
    by_place: dict[str, list[str]] = {}
    coefs: dict[str, Any] = {}
    for key, names in _followers(config, mapping).items():
        place = "default_policy" if key is None else f"policies[{key!r}]"
        for name in names:
            spec = specs[name]
            if isinstance(spec, PolicySpec) and spec.trainable:
                where = "default_ppo" if spec.ppo is None else f"{place}.ppo"
                by_place.setdefault(where, []).append(name)
                coefs[where] = (spec.ppo or config.default_ppo).log_barrier_coef
    for where, names in by_place.items():
        coef = coefs[where]
        slots = {slot for name in names for slot in slots_of(name, mapping, specs)}
        if coef is not None and not any(layout.factors[slot].counts for slot in slots):
            raise ValueError(
                f"log_barrier_coef={show(coef)} of {where} has no effect on continuous actions, "
                f"and {', '.join(names)} has no others; drop it, or make the actions discrete"
            )


def _followers(config: TrainConfig, mapping: PolicyMapping) -> dict[str | None, list[str]]:
    """List the policies of every entry of `policies`; of None those of `default_policy`."""
    keys = match_names(config.policies, mapping.names)
    return {
        entry: [name for name, key in keys.items() if key == entry]
        for entry in (*config.policies, None)
    }


def _unimix(spec: AnySpec) -> float:
    module = named_network(spec.network) if isinstance(spec, PolicySpec) else None
    return module.unimix if isinstance(module, ActorCritic) else 0.0


def _check_times(config: TrainConfig, specs: dict[str, AnySpec]) -> None:
    """Reject schedules and snapshots that would begin after the run's end."""
    given: dict[str, Any] = {"default_ppo": config.default_ppo}
    policies = {f"policies[{key!r}]": spec for key, spec in config.policies.items()}
    for where, spec in {"default_policy": config.default_policy, **policies}.items():
        if isinstance(spec, PolicySpec):
            given |= {where: spec, f"{where}.ppo": spec.ppo}
    schedules = {
        f"{name} of {where}": value
        for where, values in given.items()
        for name, value in (() if values is None else vars(values).items())
    }
    schedules |= {f"{name} of env_schedules": spec for name, spec in config.env_schedules.items()}
    for what, points in schedules.items():
        # Only schedules of points can be too late: numbers and single points never change, and
        # `Linear` spans the run.
        if isinstance(points, tuple) and len(points) > 1:
            _check_begin(what, points[0][0], config.total_env_steps)
    for name, spec in specs.items():
        if isinstance(spec, Snapshots) and (spec.add_every or 0) > config.num_iterations:
            raise ValueError(
                f"policy {name!r} takes its first snapshot after {spec.add_every} iterations "
                f"(add_every), but the run has {config.num_iterations}; lower add_every or raise "
                "total_env_steps"
            )


def _check_begin(what: str, first_step: float, total_env_steps: int) -> None:
    if first_step >= total_env_steps:
        raise ValueError(
            f"the schedule {what} begins to change at environment step {first_step:g}, but the run "
            f"has {total_env_steps}; give a number, or earlier steps"
        )
