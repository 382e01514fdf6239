"""From a configuration to a learner: where everything that depends on both is checked."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import ScheduleSpec, schedule_points
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.effects import check_effects
from jaxmarl_ppo.learner.learner import Learner, LoadedPlayer
from jaxmarl_ppo.machine.cores import choose_num_devices
from jaxmarl_ppo.policies.plan import AnySpec, BankPlan, make_roster
from jaxmarl_ppo.policies.players import BankSeats, Players
from jaxmarl_ppo.policies.population_file import POLICIES_FILE, load_player
from jaxmarl_ppo.ppo.bank_learner import BankLearner
from jaxmarl_ppo.ppo.update import UpdateShape
from jaxmarl_ppo.types import Hyperparams, PyTree, Schedule

DEFAULT_BPTT_LENGTH = 16
DEFAULT_KL_COEF = 0.2
# Rows that a gradient is computed over at once. On a CPU, so few that they stay in a core's cache
# and are not worth sharing out between cores; an accelerator wants few large kernels.
MICRO_BATCH_ROWS = {"cpu": 512}
RECURRENT_MICRO_BATCH_ROWS = {"cpu": 1024}
MICRO_BATCH_ROWS_ELSEWHERE = 65536
# Rows that are shuffled together, and how many such blocks a minibatch should at least have.
MAX_BLOCK_ROWS = 32
MIN_BLOCKS_PER_MINIBATCH = 32
# What every gradient costs, in rows: some forty small operations.
ROWS_PER_GRADIENT = 40


def make_learner(
    env: MultiAgentEnv, env_params: PyTree, config: TrainConfig, *, strict: bool = True
) -> Learner:
    """Build the pure training functions of a run.

    Args:
        env: the environment.
        env_params: its parameters.
        config: the run.
        strict: whether to refuse options without effect; a recorded run may have some.

    Raises:
        ValueError: what does not fit together, before anything is compiled.
    """
    check_arguments(env, env_params, config)
    if strict:
        check_effects(env, env_params, config)
    num_devices = choose_num_devices(config.num_envs, config.num_devices, env.steps_on_host)
    envs_per_device = config.num_envs // num_devices
    players, plans = make_roster(env, env_params, config, envs_per_device)
    if not any(plan.num_trainable for plan in plans):
        raise ValueError(
            f"none of the policies {', '.join(players.policies)} is trainable; there is nothing to "
            "train"
        )
    num_episodes = _episodes_per_rollout(env, env_params, envs_per_device, config.num_steps)
    return Learner(
        loaded=_load_players(players, plans),
        env=env,
        env_params=env_params,
        players=players,
        banks=tuple(
            _bank_learner(config, players, seats, plan, envs_per_device, num_episodes)
            if plan.num_trainable
            else None
            for seats, plan in zip(players.banks, plans, strict=True)
        ),
        num_envs=config.num_envs,
        num_devices=num_devices,
        num_steps=config.num_steps,
        stagger_starts=config.stagger_starts is not False,
        rated=bool(players.pools or players.scripts),
    )


def check_arguments(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> None:
    """Refuse what is easily mixed up.

    Raises:
        ValueError: no environment, parameters of another one, or no configuration.
    """
    if not isinstance(env, MultiAgentEnv):
        raise ValueError(f"env must be a MultiAgentEnv, such as make(name)[0], got {show(env)}")
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


def to_evaluate(config: TrainConfig) -> TrainConfig:
    """Give all policies fresh parameters to start from, and the run one device."""

    def fresh(spec: AnySpec) -> AnySpec:
        return dataclasses.replace(spec, load=None) if isinstance(spec, PolicySpec) else spec

    specs = {name: fresh(spec) for name, spec in config.policies.items()}
    policy = dataclasses.replace(config.default_policy, load=None)
    return dataclasses.replace(config, default_policy=policy, policies=specs, num_devices=1)


def _load_players(players: Players, plans: list[BankPlan]) -> tuple[LoadedPlayer, ...]:
    """What policies start from instead of fresh parameters."""
    loaded = []
    for index, (seats, plan) in enumerate(zip(players.banks, plans, strict=True)):
        for row, member in enumerate(plan.members):
            if member.spec.load is None:
                continue
            run_dir, colon, name = member.spec.load.rpartition(":")
            if not colon:
                run_dir, name = member.spec.load, member.name
            expected = jax.eval_shape(lambda seats=seats: seats.bank.init(jax.random.key(0)))
            one = jax.eval_shape(lambda stack, seats=seats: seats.bank.select(stack, 0), expected)
            path = Path(run_dir) / POLICIES_FILE
            loaded.append(LoadedPlayer(index, row, load_player(path, name, one)))
    return tuple(loaded)


def _bank_learner(
    config: TrainConfig,
    players: Players,
    seats: BankSeats,
    plan: BankPlan,
    envs_per_device: int,
    num_episodes: float,
) -> BankLearner:
    configs = [
        member.spec.ppo or config.default_ppo for member in plan.members if member.spec.trainable
    ]
    first = configs[0]  # what shapes the update is the same for all policies of a bank
    num_rows = envs_per_device * config.num_steps * seats.num_lanes
    num_minibatches = max(ppo.num_minibatches for ppo in configs)
    for member, ppo in zip(plan.members, configs, strict=False):
        _check_minibatches(config, ppo, seats, len(member.slots))
    block_size = _block_size(first, seats, num_rows, num_minibatches)
    return BankLearner(
        seats=seats,
        policies=tuple(
            players.policies.index(member.name) for member in plan.members if member.spec.trainable
        ),
        hyperparams=make_hyperparams(configs, config.total_env_steps),
        update_shape=UpdateShape(
            num_epochs=max(ppo.num_epochs for ppo in configs),
            num_minibatches=num_minibatches,
            micro_batch_blocks=_micro_batch_blocks(
                config,
                seats.bank.is_recurrent,
                block_size,
                num_rows / (len(configs) * num_minibatches * block_size),
                _spread_of_draws(players, seats, len(configs), num_episodes),
            ),
            value_clip=first.value_clip,
            kl_control=first.kl_control,
            adam_eps=first.adam_eps,
        ),
        block_size=block_size,
        discount_by_tick=first.discount_by == "tick",
        normalise_advantages=first.normalise_advantages,
        kl_coef=tuple(
            DEFAULT_KL_COEF if ppo.initial_kl_coef is None else ppo.initial_kl_coef
            for ppo in configs
        ),
    )


def make_hyperparams(configs: list[PPOConfig], total_env_steps: int) -> Hyperparams:
    """Numeric hyper-parameters of `K` policies, `[K]` leaves."""

    def numbers(get: Callable[[PPOConfig], float | None], absent: float = 0.0) -> jax.Array:
        values = [get(ppo) for ppo in configs]
        return jnp.array([absent if value is None else value for value in values], jnp.float32)

    def schedules(get: Callable[[PPOConfig], ScheduleSpec]) -> Schedule:
        points = [list(schedule_points(get(ppo), total_env_steps)) for ppo in configs]
        longest = max(len(p) for p in points)
        for p in points:
            while len(p) < longest:
                p.append((p[-1][0] + 1.0, p[-1][1]))
        table = jnp.array(points, jnp.float32)
        return Schedule(steps=table[..., 0], values=table[..., 1])

    return Hyperparams(
        learning_rate=schedules(lambda ppo: ppo.learning_rate),
        entropy_coef=schedules(lambda ppo: ppo.entropy_coef),
        gamma=numbers(lambda ppo: ppo.gamma),
        gae_lambda=numbers(lambda ppo: ppo.gae_lambda),
        clip_eps=numbers(lambda ppo: ppo.clip_eps),
        value_clip=numbers(lambda ppo: ppo.value_clip_eps),
        value_coef=numbers(lambda ppo: ppo.value_coef),
        max_grad_norm=numbers(lambda ppo: ppo.max_grad_norm, absent=jnp.inf),
        target_kl=numbers(lambda ppo: ppo.target_kl),
        num_epochs=jnp.array([ppo.num_epochs for ppo in configs], jnp.int32),
        num_minibatches=jnp.array([ppo.num_minibatches for ppo in configs], jnp.int32),
    )


def _check_minibatches(
    config: TrainConfig, ppo: PPOConfig, seats: BankSeats, num_slots: int
) -> None:
    """A policy can have at most so many minibatches as there are rows, or chunks of rows."""
    if seats.bank.is_recurrent:
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
            "use network 'lstm' or drop bptt_length"
        )
    num_rows = config.num_envs * config.num_steps * num_slots
    if ppo.num_minibatches > num_rows:
        raise ValueError(
            f"num_minibatches={ppo.num_minibatches} exceeds the {num_rows} rows of a rollout "
            f"(num_envs * num_steps * agents); set num_minibatches to at most {num_rows}"
        )


def _block_size(ppo: PPOConfig, seats: BankSeats, num_rows: int, num_minibatches: int) -> int:
    if seats.bank.is_recurrent:
        return ppo.bptt_length or DEFAULT_BPTT_LENGTH
    shares = seats.num_trainable * num_minibatches * MIN_BLOCKS_PER_MINIBATCH
    return max(1, min(MAX_BLOCK_ROWS, num_rows // shares))


def _spread_of_draws(
    players: Players, seats: BankSeats, num_policies: int, episodes_per_rollout: float
) -> float:
    """Standard deviation of a policy's rows, relative to its share of them.

    It is that of a count of lives, each of which draws one of the policies.
    """
    if players.is_fixed:
        return 0.0
    lives_of_each = episodes_per_rollout * seats.num_lanes / num_policies
    return math.sqrt((1.0 - 1.0 / num_policies) / lives_of_each)


def _episodes_per_rollout(
    env: MultiAgentEnv, env_params: PyTree, num_envs: int, num_steps: int
) -> float:
    """At least so many, as far as is known here."""
    horizon = env.horizon(env_params)
    if horizon is None or isinstance(horizon, Tracer):
        return num_envs
    return num_envs * max(1.0, num_steps / max(1, int(horizon)))


def _micro_batch_blocks(
    config: TrainConfig,
    is_recurrent: bool,
    block_size: int,
    blocks_per_minibatch: float,
    spread: float,
) -> int:
    """Blocks per gradient, at most the wanted rows, so that a minibatch costs least on average.

    Larger ones are fewer, smaller ones are filled better. `spread` is the standard deviation of a
    policy's blocks, relative to `blocks_per_minibatch`.
    """
    default = RECURRENT_MICRO_BATCH_ROWS if is_recurrent else MICRO_BATCH_ROWS
    wanted = config.micro_batch_rows or default.get(
        jax.default_backend(), MICRO_BATCH_ROWS_ELSEWHERE
    )
    most = max(1, min(wanted // block_size, math.ceil(blocks_per_minibatch * (1 + 3 * spread))))
    size = np.arange(1, most + 1)
    share = 1.0 + spread * np.array(NormalDist().quantiles(32))
    num_blocks = np.ceil(blocks_per_minibatch * share)
    num_gradients = np.ceil(num_blocks[:, None] / size).mean(axis=0)
    return int(size[np.argmin(num_gradients * (size * block_size + ROWS_PER_GRADIENT))])
