"""On-device statistics of episodes, decisions and updates, per agent and per policy.

Everything is kept as sums, minima and maxima, so that iterations merge exactly and only finished
lives count. `summarise` turns them into plain numbers on the host.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.advantages import Estimates
from jaxmarl_ppo.normalise import masked_moments
from jaxmarl_ppo.ppo import Coefficients, UpdateStats
from jaxmarl_ppo.rollout import Rollout
from jaxmarl_ppo.types import EpisodeStats, Outcomes, PyTree

FAULT_FIELDS = ("features", "action_mask", "reward", "final_observation")


class LifeSums(struct.PyTreeNode):
    """Finished lives of a group: all that one agent slot, or one policy, lived."""

    lives: jax.Array  # [G]
    returns: jax.Array  # [G]
    lengths: jax.Array  # [G]: ticks
    extras: dict[str, jax.Array]  # [G] each


class Sums(struct.PyTreeNode):
    """What adds up over iterations."""

    agents: LifeSums  # [A]
    policies: LifeSums  # [K]
    update: UpdateStats  # [K]
    decisions: jax.Array  # [K]: made by each policy
    trained: jax.Array  # [K]: decisions that entered an update
    explained_variance: jax.Array  # [K]
    iterations: jax.Array  # [K]: with at least one trained decision
    reward: jax.Array  # [A]: all that the environment paid
    reward_trained: jax.Array  # [A]: of trained decisions
    reward_uncredited: jax.Array  # [A]: earned before a life's first decision
    episodes: jax.Array  # ()
    ticks: jax.Array  # (): summed over environments


class Extremes(struct.PyTreeNode):
    """Least or greatest return of a finished life."""

    agents: jax.Array  # [A]
    policies: jax.Array  # [K]


class Latest(struct.PyTreeNode):
    """Values of the newest iteration."""

    learning_rate: jax.Array  # [K]
    entropy_coef: jax.Array  # [K]
    kl_coef: jax.Array  # [K]


class Fault(struct.PyTreeNode):
    """The first thing from the environment that cannot be trained on."""

    found: jax.Array  # () bool
    iteration: jax.Array  # () int
    tick: jax.Array  # () int: within the rollout; `T` for the observation after its last tick
    env: jax.Array  # () int
    agent: jax.Array  # () int
    field: jax.Array  # () int: index into FAULT_FIELDS
    is_nan: jax.Array  # () bool: not-a-number rather than infinite


class Metrics(struct.PyTreeNode):
    """One or several iterations."""

    sums: Sums
    minimum: Extremes
    maximum: Extremes
    latest: Latest
    fault: Fault


def track_lives(
    stats: EpisodeStats, outcomes: Outcomes
) -> tuple[EpisodeStats, EpisodeStats, jax.Array]:
    """Follow every life through a rollout.

    Returns:
        `(running, lives, finished)`: the totals of lives that go on, the totals of each life on
        each tick `[T, E, A]`, and where a counted life ended `[T, E, A]`.
    """

    def tick(stats: EpisodeStats, outcome: Outcomes):
        stats = stats.replace(
            returns=stats.returns + outcome.reward,
            lengths=stats.lengths + outcome.alive,
            extras=jax.tree.map(jnp.add, stats.extras, outcome.extras),
        )
        ended = outcome.terminated | outcome.truncated
        fresh = EpisodeStats(
            returns=jnp.zeros_like(stats.returns),
            lengths=jnp.zeros_like(stats.lengths),
            extras=jax.tree.map(jnp.zeros_like, stats.extras),
            counted=jnp.ones_like(stats.counted),
            return_trace=stats.return_trace,
        )
        running = jax.tree.map(lambda x, y: jnp.where(ended, x, y), fresh, stats)
        return running, (stats, ended & stats.counted)

    running, (lives, finished) = jax.lax.scan(tick, stats, outcomes)
    return running, lives, finished


def find_fault(rollout: Rollout, iteration: jax.Array) -> Fault:
    """Look for NaN, infinity and rows without a legal action, earliest tick first."""
    decisions, outcomes = rollout.decisions, rollout.outcomes
    num_steps, num_envs, num_agents = outcomes.reward.shape
    features = decisions.inputs.reshape(num_steps, num_envs, num_agents, -1)
    bad = jnp.stack(
        [
            ~jnp.isfinite(features).all(-1),
            ~decisions.action_mask.any(-1),
            ~jnp.isfinite(outcomes.reward),
            ~jnp.isfinite(outcomes.final_value),
        ],
        axis=1,
    )  # [T, fields, E, A]
    last = jnp.zeros_like(bad[:1]).at[0, 0].set(~jnp.isfinite(rollout.bootstrap_value))
    bad = jnp.concatenate([bad, last])
    tick, field, env, agent = jnp.unravel_index(jnp.argmax(bad.ravel()), bad.shape)
    nan = jnp.stack(
        [
            jnp.isnan(features[tick, env, agent]).any(),
            jnp.zeros((), bool),
            jnp.isnan(outcomes.reward[tick, env, agent]),
            jnp.isnan(outcomes.final_value[tick, env, agent]),
        ]
    )
    is_nan = jnp.where(
        tick == num_steps, jnp.isnan(rollout.bootstrap_value[env, agent]), nan[field]
    )
    return Fault(
        found=bad.any(),
        iteration=iteration,
        tick=tick,
        env=env,
        agent=agent,
        field=field,
        is_nan=is_nan,
    )


def measure(
    rollout: Rollout,
    estimates: Estimates,
    trainable: jax.Array,
    row_policy: jax.Array,
    lives: EpisodeStats,
    finished: jax.Array,
    update: UpdateStats,
    coefs: Coefficients,
    fault: Fault,
) -> Metrics:
    """Collect one iteration.

    Args:
        rollout: the record, `[T, E, A]`.
        estimates: `[1 + T, E, A]`.
        trainable: `[1 + T, E, A]` bool, the rows that entered the update.
        row_policy: `[1 + T, E, A]` int.
        lives: from `track_lives`.
        finished: from `track_lives`.
        update: from the update.
        coefs: in force during the update.
        fault: from `find_fault`.
    """
    decisions, outcomes = rollout.decisions, rollout.outcomes
    num_policies = update.num_steps.shape[0]
    num_agents = finished.shape[-1]
    plays = decisions.policy[..., None] == jnp.arange(num_policies)  # [T, E, A, K]
    own_slot = jnp.eye(num_agents, dtype=bool)  # [A, A]
    trains = trainable[..., None] & (row_policy[..., None] == jnp.arange(num_policies))
    trained = trains.sum((0, 1, 2)).astype(jnp.float32)
    by_agent, by_policy = finished[..., None] & own_slot, finished[..., None] & plays
    rewards = jnp.where(trainable, estimates.reward_sum, 0.0)
    sums = Sums(
        agents=_life_sums(lives, by_agent),
        policies=_life_sums(lives, by_policy),
        update=update,
        decisions=(decisions.acted[..., None] & plays).sum((0, 1, 2)).astype(jnp.float32),
        trained=trained,
        explained_variance=_explained_variance(estimates, trains),
        iterations=(trained > 0).astype(jnp.float32),
        reward=outcomes.reward.sum((0, 1)),
        reward_trained=rewards.sum((0, 1)),
        reward_uncredited=jnp.where(outcomes.credited, 0.0, outcomes.reward).sum((0, 1)),
        episodes=outcomes.episode_over.sum(dtype=jnp.float32),
        ticks=jnp.asarray(outcomes.episode_over.size, jnp.float32),
    )
    returns = lives.returns[..., None]
    return Metrics(
        sums=sums,
        minimum=Extremes(
            agents=jnp.where(by_agent, returns, jnp.inf).min((0, 1, 2)),
            policies=jnp.where(by_policy, returns, jnp.inf).min((0, 1, 2)),
        ),
        maximum=Extremes(
            agents=jnp.where(by_agent, returns, -jnp.inf).max((0, 1, 2)),
            policies=jnp.where(by_policy, returns, -jnp.inf).max((0, 1, 2)),
        ),
        latest=Latest(coefs.learning_rate, coefs.entropy_coef, coefs.kl_coef),
        fault=fault,
    )


def _life_sums(lives: EpisodeStats, group: jax.Array) -> LifeSums:
    """Totals over `[T, E, A]` of each group of `group [T, E, A, G]`."""

    def total(x: jax.Array) -> jax.Array:
        return jnp.where(group, x[..., None], 0.0).sum((0, 1, 2))

    return LifeSums(
        lives=group.sum((0, 1, 2)).astype(jnp.float32),
        returns=total(lives.returns),
        lengths=total(lives.lengths),
        extras=jax.tree.map(total, lives.extras),
    )


def _explained_variance(estimates: Estimates, trains: jax.Array) -> jax.Array:
    """`1 - Var(target - V) / Var(target)` of every policy, `[K]`; 0 where nothing varies."""
    target, error = estimates.target.ravel(), estimates.advantage.ravel()

    def one_policy(weight: jax.Array) -> jax.Array:
        _, _, target_var = masked_moments(target, weight)
        _, _, error_var = masked_moments(error, weight)
        varies = target_var > 1e-12
        return jnp.where(varies, 1.0 - error_var / jnp.where(varies, target_var, 1.0), 0.0)

    flat = trains.reshape(-1, trains.shape[-1]).astype(jnp.float32)
    return jax.vmap(one_policy, in_axes=1)(flat)


def empty_like(metrics: PyTree) -> Metrics:
    """The neutral element of `merge`, from (abstract) metrics of the same shapes."""
    zeros: Metrics = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
    return zeros.replace(
        minimum=jax.tree.map(lambda x: x + jnp.inf, zeros.minimum),
        maximum=jax.tree.map(lambda x: x - jnp.inf, zeros.maximum),
    )


def merge(first: Metrics, second: Metrics) -> Metrics:
    """Metrics of both, the second being the later one."""
    update = jax.tree.map(jnp.add, first.sums.update, second.sums.update)
    update = update.replace(last_epoch_kl=second.sums.update.last_epoch_kl)
    sums: Sums = jax.tree.map(jnp.add, first.sums, second.sums)
    return Metrics(
        sums=sums.replace(update=update),
        minimum=jax.tree.map(jnp.minimum, first.minimum, second.minimum),
        maximum=jax.tree.map(jnp.maximum, first.maximum, second.maximum),
        latest=second.latest,
        fault=jax.tree.map(
            lambda x, y: jnp.where(first.fault.found, x, y), first.fault, second.fault
        ),
    )


def summarise(
    metrics: Metrics, agents: tuple[str, ...], policies: tuple[str, ...]
) -> dict[str, Any]:
    """Plain numbers for logs.

    Returns:
        `{"env_steps", "decisions", "decisions_per_tick", "episodes", "agents": {name: {...}},
        "policies": {name: {...}}}`, counts of this interval alone. A group without finished lives
        has no return, a policy without trained decisions no losses: the keys are absent.
    """
    metrics = jax.device_get(metrics)
    sums = metrics.sums
    result: dict[str, Any] = {
        "env_steps": int(sums.ticks),
        "decisions": int(sums.decisions.sum()),
        "decisions_per_tick": float(sums.decisions.sum() / sums.ticks),
        "episodes": int(sums.episodes),
        "agents": {
            name: _life_summary(sums.agents, metrics.minimum.agents, metrics.maximum.agents, i)
            for i, name in enumerate(agents)
        },
        "policies": {},
    }
    for k, name in enumerate(policies):
        lives = _life_summary(sums.policies, metrics.minimum.policies, metrics.maximum.policies, k)
        result["policies"][name] = {
            **lives,
            "decisions": int(sums.decisions[k]),
            **_update_summary(metrics, k),
        }
    return result


def _life_summary(sums: LifeSums, least: Any, greatest: Any, i: int) -> dict[str, float]:
    lives = float(sums.lives[i])
    summary: dict[str, float] = {"episodes": int(lives)}
    if lives:
        summary["return_mean"] = float(sums.returns[i]) / lives
        summary["return_min"] = float(least[i])
        summary["return_max"] = float(greatest[i])
        summary["length_mean"] = float(sums.lengths[i]) / lives
        summary |= {name: float(x[i]) / lives for name, x in sums.extras.items()}
    return summary


def _update_summary(metrics: Metrics, k: int) -> dict[str, float]:
    sums, latest = metrics.sums, metrics.latest
    losses, count = sums.update.losses, float(sums.update.losses.count[k])
    if not count:
        return {}
    return {
        "trained_decisions": int(sums.trained[k]),
        "policy_loss": float(losses.policy_loss[k]) / count,
        "value_loss": float(losses.value_loss[k]) / count,
        "entropy": float(losses.entropy[k]) / count,
        "kl": float(losses.kl[k]) / count,
        "clip_fraction": float(losses.clip_fraction[k]) / count,
        "explained_variance": float(sums.explained_variance[k] / sums.iterations[k]),
        "grad_norm": float(sums.update.grad_norm[k] / sums.update.num_steps[k]),
        "optimiser_steps": int(sums.update.num_steps[k]),
        "learning_rate": float(latest.learning_rate[k]),
        "entropy_coef": float(latest.entropy_coef[k]),
        "kl_coef": float(latest.kl_coef[k]),
    }
