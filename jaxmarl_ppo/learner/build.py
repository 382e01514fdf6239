"""Build a learner from a configuration and an environment, and check that they fit."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.backend import backend
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.changing import OPTIONAL
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import ScheduleSpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.env_schedules import make_env_schedules
from jaxmarl_ppo.learner.learner import Learner, LoadedPolicy
from jaxmarl_ppo.learner.schedules import make_schedule
from jaxmarl_ppo.learner.sizes import (
    DEFAULT_BPTT_LENGTH,
    MicroBatches,
    block_rows,
    episodes_per_rollout_at_least,
    fixed_micro_batches,
    micro_batch_blocks,
    spread_of_draws,
)
from jaxmarl_ppo.learner.unused_options import check_effects
from jaxmarl_ppo.machine.cores import choose_num_devices
from jaxmarl_ppo.machine.text import listed
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.networks.actor_critic import RECURRENT
from jaxmarl_ppo.networks.precision import check_precision, has_tf32
from jaxmarl_ppo.policies.fusable import why_not_fused
from jaxmarl_ppo.policies.plan import AnySpec, PolicyGroupPlan, plan_players
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.policies.population_file import load_player
from jaxmarl_ppo.policies.snapshot_files import path_of_player
from jaxmarl_ppo.ppo.group_learner import PolicyGroupLearner
from jaxmarl_ppo.ppo.loss import UpdateShape
from jaxmarl_ppo.types import Hyperparams, PyTree, Schedule

DEFAULT_KL_COEF = 0.2
# Options that compute small networks in kernels of their own.
GRADIENTS, ACTING = "fused_gradients", "fused_acting"


def make_learner(
    env: MultiAgentEnv, env_params: PyTree, config: TrainConfig, *, strict: bool = True
) -> Learner:
    """Build the pure training functions of a run.

    Args:
        env: the environment.
        env_params: its parameters.
        config: the run.
        strict: whether to reject options without effect; recorded runs may have some.

    Raises:
        ValueError: If the configuration is inconsistent; raised before compilation.
    """
    check_arguments(env, env_params, config)
    check_precision(config.matmul_precision)
    if config.num_seeds > 1:
        raise ValueError(
            f"num_seeds={config.num_seeds}, but a learner is of one run; Trainer trains several, "
            "and `jax.vmap` does"
        )
    env_schedules = make_env_schedules(env_params, config.env_schedules, config.total_env_steps)
    if strict:
        check_effects(env, env_params, config)
    num_devices = choose_num_devices(config.num_envs, config.num_devices, env.steps_on_host)
    # The compiled program is one device's part, so all sizes are of its environments alone.
    envs_per_device = config.num_envs // num_devices
    players, plans = plan_players(env, env_params, config, envs_per_device)
    if not any(plan.num_trainable for plan in plans):
        raise ValueError(
            f"none of the policies {', '.join(players.policies)} is trainable; there is nothing to "
            "train"
        )
    _check_fused(config, players)
    # Cost models use the sizes of one device, since every device packs its own decisions.
    num_episodes = episodes_per_rollout_at_least(env, env_params, envs_per_device, config.num_steps)
    return Learner(
        loaded=_load_players(players, plans),
        env=env,
        env_params=env_params,
        players=players,
        group_learners=tuple(
            _make_group_learner(config, players, index, plan, envs_per_device, num_episodes)
            for index, plan in enumerate(plans)
            if plan.num_trainable
        ),
        num_envs=config.num_envs,
        num_devices=num_devices,
        num_steps=config.num_steps,
        rollout_unroll=config.rollout_unroll,
        # None means yes here: without a horizon staggering does nothing.
        stagger_starts=config.stagger_starts is not False,
        # Results need a fixed player: where all learn, a rating soon means nothing.
        rated=bool(players.pools or players.scripts),
        env_schedules=env_schedules,
    )


def check_arguments(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> None:
    """Reject arguments of the wrong kind or in the wrong order.

    Raises:
        ValueError: If the environment or the configuration is missing, the parameters are of
            another environment, or JAX computes in 64 bits.
    """
    if jax.config.read("jax_enable_x64"):
        raise ValueError(
            "jax_enable_x64 is True, but environments and training compute in 32 bits: unset "
            'JAX_ENABLE_X64, or call jax.config.update("jax_enable_x64", False)'
        )
    if not isinstance(env, MultiAgentEnv):
        raise ValueError(
            "env must be a MultiAgentEnv, such as make(name)[0]; from_gymnasium, from_pettingzoo "
            f"and others in jaxmarl_envs make one of other libraries' environments; got {show(env)}"
        )
    if isinstance(env_params, TrainConfig):
        raise ValueError(
            "a TrainConfig stands in the place of the environment's parameters; the order is "
            "(env, env_params, config)"
        )
    default = env.default_params
    wanted = type(default)
    alike = jax.tree.structure(env_params) == jax.tree.structure(default)
    if not (alike or isinstance(env_params, wanted)):
        raise ValueError(
            f"env_params of environment {env.name!r} must be its own, a {wanted.__name__} such as "
            f"env.default_params, got {show(env_params)}"
        )
    if not isinstance(config, TrainConfig):
        raise ValueError(f"config must be a TrainConfig, got {show(config)}")


def without_loads(config: TrainConfig) -> TrainConfig:
    """Copy a configuration whose policies will be replaced: all begin with fresh parameters."""

    # Loaded policies are replaced too, and their file may be gone.
    def fresh(spec: AnySpec) -> AnySpec:
        return dataclasses.replace(spec, load=None) if isinstance(spec, PolicySpec) else spec

    specs = {name: fresh(spec) for name, spec in config.policies.items()}
    policy = dataclasses.replace(config.default_policy, load=None)
    return dataclasses.replace(config, default_policy=policy, policies=specs)


def to_evaluate(config: TrainConfig) -> TrainConfig:
    """Copy a configuration for evaluation: fresh parameters for all policies, on one device.

    Policies trained in TF32 play in float32 where TF32 is not available.
    """
    config = dataclasses.replace(
        without_loads(config),
        num_devices=1,
        num_seeds=1,
        pbt=None,
        fused_gradients=False,
        fused_acting=False,
    )
    if config.matmul_precision == "tf32" and not has_tf32():
        return dataclasses.replace(config, matmul_precision="float32")
    return config


def _check_fused(config: TrainConfig, players: Players) -> None:
    """Reject kernels of small networks where there is no GPU for them, or no small network.

    Raises:
        ValueError: For either, or a size that has no effect beside them.
    """
    # What Pallas makes for NVIDIA's GPUs needs those that have TF32.
    able = tuning().fuses_networks and (backend() != "gpu" or has_tf32())
    for name in fused_options(config):
        if not able:
            raise ValueError(
                f"{name}=True needs a GPU (NVIDIA's from Ampere on), and this is compiled for a "
                f"{backend()}; drop it"
            )
        groups = [own for own in players.policy_groups if own.num_trainable or name == ACTING]
        others = unfused(players, groups)
        if len(others) == len(groups):
            raise ValueError(f"{name}=True has no effect on {'; '.join(others)}; drop it")
        if name == GRADIENTS and config.micro_batch_rows is not None and not others:
            raise ValueError(
                f"micro_batch_rows={config.micro_batch_rows} has no effect with {name}=True, "
                "which computes all rows of a minibatch at once; drop one of them"
            )


def fused_options(config: TrainConfig) -> list[str]:
    """List the options of a run that ask for kernels of small networks."""
    return [name for name in (GRADIENTS, ACTING) if getattr(config, name)]


def unfused(players: Players, groups: Sequence[PolicyGroup]) -> list[str]:
    """Say of each policy group that has no such kernel why: `policies (reason)`."""
    found = []
    for group in groups:
        reason = why_not_fused(group.network)
        if reason is not None:
            names = dict.fromkeys(players.policies[players.policy_of[k]] for k in group.players)
            found.append(f"{listed(names)} ({reason})")
    return found


def _load_players(players: Players, plans: list[PolicyGroupPlan]) -> tuple[LoadedPolicy, ...]:
    """Load the policies that start from a finished run instead of fresh parameters."""
    loaded = []
    for index, (group, plan) in enumerate(zip(players.policy_groups, plans, strict=True)):
        for place, member in enumerate(plan.members):
            if member.spec.load is None:
                continue
            # From the right, since the path may hold colons too.
            run_dir, colon, name = member.spec.load.rpartition(":")
            if not colon or Path(member.spec.load).is_dir():
                run_dir, name = member.spec.load, member.name
            network = group.network
            # Only shapes, to check the file against: nothing is initialised for it.
            expected = jax.eval_shape(
                lambda network=network: network.select(network.init(jax.random.key(0)), 0)
            )
            path = path_of_player(Path(run_dir), name)
            loaded.append(LoadedPolicy(index, place, load_player(path, name, expected)))
    return tuple(loaded)


def _make_group_learner(
    config: TrainConfig,
    players: Players,
    index: int,
    plan: PolicyGroupPlan,
    envs_per_device: int,
    num_episodes: float,
) -> PolicyGroupLearner:
    """Make the learner of policy group `index`, which trains at least one member."""
    group = players.policy_groups[index]
    trained = [member for member in plan.members if member.spec.trainable]
    configs = [member.spec.ppo or config.default_ppo for member in trained]
    first = configs[0]  # all members of a policy group share the form of the update
    num_rows = envs_per_device * config.num_steps * group.num_active_rows
    # All members run the same loop; those with fewer minibatches have empty ones.
    num_minibatches = max(ppo.num_minibatches for ppo in configs)
    for member, ppo in zip(trained, configs, strict=True):
        _check_minibatches(config, ppo, group, len(member.slots))
    block_size = block_rows(first, group, num_rows, num_minibatches)
    if tuning().fixed_trip_counts:
        fewest = min(ppo.num_minibatches for ppo in configs)
        micro = fixed_micro_batches(config, group, block_size, envs_per_device, fewest)
    else:
        blocks = micro_batch_blocks(
            config,
            group.network.is_recurrent,
            block_size,
            # Blocks of a member's minibatch, if members share the rows out evenly.
            num_rows / (len(configs) * num_minibatches * block_size),
            spread_of_draws(players, group, len(configs), num_episodes),
        )
        micro = MicroBatches(blocks)
    return PolicyGroupLearner(
        index=index,
        policy_group=group,
        policy_ids=tuple(players.policies.index(member.name) for member in trained),
        hyperparams=make_hyperparams(
            configs,
            config.total_env_steps,
            [m.spec.imitate_coef for m in trained if m.spec.imitate_coef is not None],
        ),
        update_shape=UpdateShape(
            num_epochs=max(ppo.num_epochs for ppo in configs),
            num_minibatches=num_minibatches,
            **micro._asdict(),
            value_clip=first.value_clip,
            kl_control=first.kl_control,
            magnet=first.magnet,
            optimiser=first.optimiser,
            adam_eps=first.adam_eps,
            skips_nonfinite=config.skip_nonfinite_updates,
            fused=config.fused_gradients and why_not_fused(group.network) is None,
        ),
        block_size=block_size,
        discount_by_step=first.discount_by == "step",
        normalise_advantages=first.normalise_advantages,
    )


def make_hyperparams(
    configs: list[PPOConfig], total_env_steps: int, imitate_coefs: Sequence[ScheduleSpec] = ()
) -> Hyperparams:
    """Stack the numeric hyper-parameters of `K` members, `[K]` leaves.

    Args:
        configs: of the members.
        total_env_steps: of the run.
        imitate_coefs: of the members, where they imitate.
    """

    def of(name: str) -> list[Any]:
        return [getattr(ppo, name) for ppo in configs]

    def numbers(values: Sequence[float | None], absent: float = 0.0) -> jax.Array:
        return jnp.array([absent if value is None else value for value in values], jnp.float32)

    def schedules(values: Sequence[ScheduleSpec]) -> Schedule:
        return make_schedule(values, total_env_steps)

    def either(values: Sequence[ScheduleSpec | None]) -> jax.Array | Schedule:
        """Make plain numbers where no member has a schedule, which saves the lookup."""
        constant = all(isinstance(value, int | float | None) for value in values)
        return numbers(values) if constant else schedules(values)  # type: ignore[arg-type]

    special = {
        "learning_rate": schedules(of("learning_rate")),
        "entropy_coef": schedules(of("entropy_coef")),
        # Clipping at infinity is no clipping; such members can share a policy group with others.
        "max_grad_norm": numbers(of("max_grad_norm"), absent=jnp.inf),
        "kl_coef": numbers(of("initial_kl_coef"), absent=DEFAULT_KL_COEF),
        "num_epochs": jnp.array(of("num_epochs"), jnp.int32),
        "num_minibatches": jnp.array(of("num_minibatches"), jnp.int32),
        "imitate_coef": either(imitate_coefs) if imitate_coefs else None,
        # All members of a policy group have such a number, or none has.
        **dict.fromkeys(name for name in OPTIONAL if getattr(configs[0], name) is None),
    }
    names = {field.name for field in dataclasses.fields(Hyperparams)}
    return Hyperparams(**{name: either(of(name)) for name in names - special.keys()}, **special)


def _check_minibatches(
    config: TrainConfig, ppo: PPOConfig, group: PolicyGroup, num_slots: int
) -> None:
    """Reject more minibatches than a policy can have rows, or with memory chunks of rows."""
    if group.network.is_recurrent:
        length = ppo.bptt_length or DEFAULT_BPTT_LENGTH
        chunks = config.num_envs * num_slots * -(-config.num_steps // length)
        if ppo.num_minibatches > chunks:
            raise ValueError(
                f"num_minibatches={ppo.num_minibatches} exceeds the {chunks} chunks of "
                f"{length} decisions that a policy can have in a rollout; set num_minibatches to "
                f"at most {chunks}, or lower bptt_length"
            )
        return
    if ppo.bptt_length is not None:
        raise ValueError(
            f"bptt_length={ppo.bptt_length} has no effect on a network without memory; "
            f"use one with memory ({listed(RECURRENT)}), or drop bptt_length"
        )
    num_rows = config.num_envs * config.num_steps * num_slots
    if ppo.num_minibatches > num_rows:
        raise ValueError(
            f"num_minibatches={ppo.num_minibatches} exceeds the {num_rows} rows of a rollout "
            f"(num_envs * num_steps * agents); set num_minibatches to at most {num_rows}"
        )
