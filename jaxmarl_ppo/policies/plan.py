"""The plan of a run: which policies share a policy group, and the players in their order.

Policies go into one group when their networks are alike in all that is compiled: module, actions,
inputs, normalisers, and the form of their update. A second group takes as long to compile as the
first. So inputs whose widths differ by a few features are padded and share one; beyond that, each
network is sized for the agents that it can play.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.changing import OPTIONAL
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.policies.agent_interface import AgentInterface, make_agent_interface
from jaxmarl_ppo.policies.fusable import why_not_fused
from jaxmarl_ppo.policies.mapping import PolicyMapping, make_mapping, match_names
from jaxmarl_ppo.policies.network_check import check_network, make_network, named_network
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.policies.scripted import make_script
from jaxmarl_ppo.policies.snapshot_pools import SnapshotPool, parse_name
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.policies.tile_sizes import choose_tiles, envs_valued_at_once
from jaxmarl_ppo.types import Hyperparams, PyTree

AnySpec = PolicySpec | Snapshots | Scripted
# Inputs whose widths round up to the same multiple share a policy group, as wide as the widest of
# them. One vector instruction computes that many numbers, so the padding costs next to nothing.
INPUT_GRANULE = 16
# Fields of PPOConfig that are arguments of the compiled update, one number for each member.
OWN_NUMBERS = {field.name for field in fields(Hyperparams)} | {"initial_kl_coef"}
# The compiled update depends on all others, so policies that differ in them are kept apart. A new
# field belongs here until it becomes a number of `Hyperparams`.
UPDATE_SHAPE = tuple(field.name for field in fields(PPOConfig) if field.name not in OWN_NUMBERS)


@dataclass(frozen=True)
class Member:
    """A network policy that goes into a policy group."""

    name: str
    spec: PolicySpec
    slots: tuple[int, ...]  # that it, or a snapshot of it, can play
    pools: tuple[str, ...]  # policies that are snapshots of it


@dataclass
class PolicyGroupPlan:
    """Policies of one group, trainable ones first, and their common properties."""

    key: tuple[Any, ...]
    members: list[Member]

    @property
    def num_trainable(self) -> int:
        """Number of members that are trained."""
        return sum(member.spec.trainable for member in self.members)


def plan_players(
    env: MultiAgentEnv, env_params: PyTree, config: TrainConfig, envs_per_device: int
) -> tuple[Players, list[PolicyGroupPlan]]:
    """Stack the policies of a configuration in policy groups, and number the players.

    Args:
        env: the environment.
        env_params: its parameters.
        config: the run.
        envs_per_device: number of environments in parallel.

    Returns:
        The players, and the policies of each of their policy groups.

    Raises:
        ValueError: If the arguments are inconsistent.
    """
    mapping = make_mapping(config.mapping, env.agents)
    specs = policy_specs(config, mapping)
    has_pools = any(isinstance(spec, Snapshots) for spec in specs.values())
    # A pool is one policy but several players: even a fixed mapping draws among its entries.
    is_fixed = mapping.is_fixed and not has_pools
    plans = _plan_groups(env, env_params, config, mapping, specs)
    groups: list[PolicyGroup] = []
    pools: list[SnapshotPool] = []
    names: list[str] = []
    for index, plan in enumerate(plans):
        first_player = len(names)
        own_pools = _place_pools(plan, specs, mapping, index, first_player)
        pools += own_pools
        names += [member.name for member in plan.members]
        names += [
            f"{mapping.names[pool.policy]}@{entry}"
            for pool in own_pools
            for entry in range(pool.spec.num_places)
        ]
        interface = _make_interface(env, env_params, plan)
        network = _stack_network(
            *(env, plan, interface, len(names) - first_player),
            *(envs_per_device, config.matmul_precision),
        )
        if config.fused_acting and why_not_fused(network) is None:
            # Pallas takes a while to import, and few runs use it.
            from jaxmarl_ppo.policies import fused_network

            network = replace(network, fused_forward=fused_network.forward)
        groups.append(
            PolicyGroup(
                network=network,
                interface=interface,
                first_player=first_player,
                num_trainable=plan.num_trainable,
                num_active_rows=_num_active_rows(env, interface),
                fixed_members=_fixed_members(plan, interface.slots) if is_fixed else None,
                candidates=_candidates(plan, own_pools, interface.slots, mapping),
                **_imitation(env, env_params, plan),
            )
        )
    scripted = {name: spec for name, spec in specs.items() if isinstance(spec, Scripted)}
    _check_names([*names, *scripted], [mapping.names[pool.policy] for pool in pools])
    names += scripted  # last, so that all players from the first of them on are scripted
    policy_of = _policies_of_players(names, pools, mapping)
    players = Players(
        mapping=mapping,
        policy_groups=tuple(groups),
        pools=tuple(pools),
        scripts=tuple(make_script(spec, env, env_params) for spec in scripted.values()),
        names=tuple(names),
        policy_of=policy_of,
        layout=env.action_layout(env_params),
        first_player_of=tuple(policy_of.index(policy) for policy in range(len(mapping.names))),
    )
    return players, plans


def _check_names(names: list[str], pools: list[str]) -> None:
    """Reject two players of one name, as a policy `past@0` or `past@it9` beside a pool `past`."""
    for name in names:
        parsed = parse_name(name)
        if names.count(name) > 1 or (parsed is not None and parsed[0] in pools):
            raise ValueError(
                f"two players are called {name!r}: a policy, and an entry of the pool "
                f"{name.rpartition('@')[0]!r}; give the policy another name"
            )


def _place_pools(
    plan: PolicyGroupPlan,
    specs: dict[str, AnySpec],
    mapping: PolicyMapping,
    group: int,
    first_player: int,
) -> list[SnapshotPool]:
    """Assign snapshots of a group's policies their places in it, after the policies themselves.

    They have the form of their origins, and so belong to the same policy group.
    """
    pools: list[SnapshotPool] = []
    first_index = len(plan.members)
    for origin, member in enumerate(plan.members):
        for name in member.pools:
            spec = specs[name]
            assert isinstance(spec, Snapshots)
            pools.append(
                SnapshotPool(
                    spec=spec,
                    policy=mapping.names.index(name),
                    origin=first_player + origin,
                    policy_group=group,
                    origin_index=origin,
                    first_index=first_index,
                    first_player=first_player + first_index,
                )
            )
            first_index += spec.num_places
    return pools


def _policies_of_players(
    names: list[str], pools: list[SnapshotPool], mapping: PolicyMapping
) -> tuple[int, ...]:
    """Look up which policy every player belongs to: a snapshot to that of its pool."""
    owner = {
        pool.first_player + entry: pool.policy
        for pool in pools
        for entry in range(pool.spec.num_places)
    }
    return tuple(
        owner[player] if player in owner else mapping.names.index(name)
        for player, name in enumerate(names)
    )


def _stack_network(
    env: MultiAgentEnv,
    plan: PolicyGroupPlan,
    interface: AgentInterface,
    num_members: int,
    envs_per_device: int,
    matmul_precision: str,
) -> StackedNetwork:
    """Build the network of a plan's policy group, snapshots included among its members."""
    spec = plan.members[0].spec  # all members agree in the fields read here, see `_group_key`
    num_rows = envs_per_device * _num_active_rows(env, interface)
    valued_rows = envs_valued_at_once(envs_per_device) * len(interface.slots)
    tile_rows, tiles_at_once = choose_tiles(num_rows, valued_rows, num_members)
    network = StackedNetwork(
        module=make_network(spec.network, interface, spec.central_critic, matmul_precision),
        distribution=interface.distribution,
        input_shape=interface.input_shape,
        num_members=num_members,
        matmul_precision=matmul_precision,
        normalise_observations=spec.normalise_observations,
        normalise_rewards=spec.normalise_rewards,
        tile_rows=tile_rows,
        tiles_at_once=tiles_at_once,
    )
    try:
        check_network(network)
    except ValueError as error:
        # The check knows only the module, but the user configured policies.
        names = ", ".join(member.name for member in plan.members)
        agents = ", ".join(env.agents[slot] for slot in interface.slots)
        raise ValueError(f"policy {names}, which plays {agents}: {error}") from error
    return network


def _num_active_rows(env: MultiAgentEnv, interface: AgentInterface) -> int:
    """Return how many of the slots of a policy group can act at once."""
    return min(len(interface.slots), env.max_actors)


def _fixed_members(plan: PolicyGroupPlan, slots: tuple[int, ...]) -> tuple[int, ...]:
    """Return `PolicyGroup.fixed_members`: every slot has the same policy in every life."""
    index_of = {slot: index for index, member in enumerate(plan.members) for slot in member.slots}
    return tuple(index_of[slot] for slot in slots)


def _candidates(
    plan: PolicyGroupPlan, pools: list[SnapshotPool], slots: tuple[int, ...], mapping: PolicyMapping
) -> tuple[tuple[int, ...], ...]:
    """Return `PolicyGroup.candidates`: policies and snapshots that each slot may be given."""
    places = {mapping.names.index(own.name): range(i, i + 1) for i, own in enumerate(plan.members)}
    for pool in pools:
        places[pool.policy] = range(pool.first_index, pool.first_index + pool.spec.num_places)
    return tuple(
        tuple(sorted(k for policy in mapping.candidates[slot] for k in places.get(policy, ())))
        for slot in slots
    )


def _imitation(env: MultiAgentEnv, env_params: PyTree, plan: PolicyGroupPlan) -> dict[str, Any]:
    """Return `PolicyGroup.imitated` and `imitated_by`: the trained members all imitate, or none."""
    named = [member.spec.imitate for member in plan.members[: plan.num_trainable]]
    distinct = list(dict.fromkeys(script for script in named if script is not None))
    scripts = tuple(make_script(Scripted(script), env, env_params) for script in distinct)
    by = tuple(distinct.index(script) for script in named if script is not None)
    return {"imitated": scripts, "imitated_by": by}


def policy_specs(config: TrainConfig, mapping: PolicyMapping) -> dict[str, AnySpec]:
    """Look up the specification of every policy of the mapping.

    Raises:
        ValueError: For an entry of `policies` that no policy matches, or snapshots of nothing
            trainable.
    """
    keys = match_names(config.policies, mapping.names)
    for key in config.policies:
        if key not in keys.values():
            raise ValueError(
                f"policies names the unknown policy {key!r}; "
                f"those of the mapping are {', '.join(mapping.names)}"
            )
    specs = {
        name: config.default_policy if key is None else config.policies[key]
        for name, key in keys.items()
    }
    for name, spec in specs.items():
        if not isinstance(spec, Snapshots):
            continue
        origin = specs.get(spec.of)
        if not isinstance(origin, PolicySpec) or not origin.trainable:
            trainable = [
                other
                for other, spec in specs.items()
                if isinstance(spec, PolicySpec) and spec.trainable
            ]
            raise ValueError(
                f"policy {name!r} is to be snapshots of {spec.of!r}, which is no trainable policy; "
                f"valid: {', '.join(trainable) or 'none'}"
            )
    return specs


def pools_of(name: str, specs: dict[str, AnySpec]) -> tuple[str, ...]:
    """List the policies that are snapshots of a policy."""
    return tuple(
        other for other, pool in specs.items() if isinstance(pool, Snapshots) and pool.of == name
    )


def slots_of(name: str, mapping: PolicyMapping, specs: dict[str, AnySpec]) -> tuple[int, ...]:
    """List the slots that a policy, or a snapshot of it, can play."""
    played = {mapping.names.index(policy) for policy in (name, *pools_of(name, specs))}
    return tuple(slot for slot, policies in enumerate(mapping.candidates) if played & set(policies))


def _plan_groups(
    env: MultiAgentEnv,
    env_params: PyTree,
    config: TrainConfig,
    mapping: PolicyMapping,
    specs: dict[str, AnySpec],
) -> list[PolicyGroupPlan]:
    plans: list[PolicyGroupPlan] = []
    has_numbers: dict[str | None, int] = {}
    for name, spec in specs.items():
        if not isinstance(spec, PolicySpec):
            continue
        pools = pools_of(name, specs)
        slots = slots_of(name, mapping, specs)
        if not slots:
            raise ValueError(f"no agent can be played by policy {name!r}; drop it")
        interface = _member_interface(env, env_params, spec, slots)
        ppo = (spec.ppo or config.default_ppo) if spec.trainable else None
        key = _group_key(interface, spec, ppo)
        plan = next((plan for plan in plans if _same_group(plan.key, key)), None)
        if plan is None:
            plan = PolicyGroupPlan(key, [])
            plans.append(plan)
        elif ppo is not None:
            plan.key = key  # which a frozen policy before it left open in its last part
        plan.members.append(Member(name, spec, slots, pools))
        has_numbers[spec.continuous] = has_numbers.get(spec.continuous) or interface.num_numbers
    for continuous, used in has_numbers.items():
        if continuous is not None and not used:
            raise ValueError(
                f"continuous={continuous!r} has no effect: no agent with such a policy has numbers "
                "to choose; drop it"
            )
    # What is trained is then a slice of the stack.
    for plan in plans:
        plan.members.sort(key=lambda member: not member.spec.trainable)
    return plans


def _group_key(
    interface: AgentInterface, spec: PolicySpec, ppo: PPOConfig | None
) -> tuple[Any, ...]:
    features: tuple[int, ...] = interface.feature_shape
    if len(features) == 1:
        features = (-(-features[0] // INPUT_GRANULE),)
    inputs = (spec.prev_action, spec.prev_reward, spec.append_agent_id, spec.central_critic)
    normalisers = (spec.normalise_observations, spec.normalise_rewards)
    update = None
    if ppo is not None:
        update = (
            *(getattr(ppo, name) for name in UPDATE_SHAPE),
            spec.imitate is not None,
            *(getattr(ppo, name) is None for name in OPTIONAL),
        )
    module = named_network(spec.network)
    actions = (interface.counts, interface.numbers)
    return (module, features, actions, *inputs, *normalisers, update)


def _same_group(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Return whether two keys share a group; frozen policies (update None) fit any update."""
    *alike, update = first
    *other, other_update = second
    return alike == other and (update == other_update or None in (update, other_update))


def _member_interface(
    env: MultiAgentEnv, env_params: PyTree, spec: PolicySpec, slots: tuple[int, ...]
) -> AgentInterface:
    return make_agent_interface(
        env,
        env_params,
        slots,
        spec.prev_action,
        spec.prev_reward,
        spec.append_agent_id,
        spec.central_critic,
        spec.continuous,
    )


def _make_interface(
    env: MultiAgentEnv, env_params: PyTree, plan: PolicyGroupPlan
) -> AgentInterface:
    slots = sorted({slot for member in plan.members for slot in member.slots})
    return _member_interface(env, env_params, plan.members[0].spec, tuple(slots))
