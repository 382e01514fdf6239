"""Generalised advantage estimation on each agent's own timeline (Schulman et al. 2016).

A decision's successor is the same agent's next decision, or the end of its life, however many ticks
later. Its reward is what the agent earned until then. With every agent acting on every tick this is
textbook GAE.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.ops import running_moments as normalise
from jaxmarl_ppo.ops.lanes import put, take

# Of advantages, relative to their mean.
LEAST_DEVIATION = 1e-4


class Timeline(struct.PyTreeNode):
    """What the slots lived through in one entry, and the decisions that were made at its start.

    An entry is one tick, or the several that an open decision of an earlier rollout has waited. A
    life that ended in an entry began before it; whatever stands later belongs to another life.
    Slots and the lanes of decisions may be any leading axes; where they differ, `slot` connects
    them (see `lanes`).
    """

    reward: jax.Array  # [S]
    reward_sum: jax.Array  # [S]: undiscounted; differs from `reward` only where `ticks` > 1
    ticks: jax.Array  # [S] int: how many the entry spans
    terminated: jax.Array  # [S] bool: edge
    truncated: jax.Array  # [S] bool: edge
    final_value: jax.Array  # [S]: V(final observation) where truncated
    gamma_held: jax.Array  # [S]: of the policy that holds the slot; read by tick only
    acted: jax.Array  # [M] bool: the agent decided
    value: jax.Array  # [M]: V at the decision
    # [M]: multiplies rewards where they meet V, after which they are clipped to +-10; None for
    # rewards as they are.
    reward_scale: jax.Array | None
    gamma: jax.Array  # [M]
    gae_lambda: jax.Array  # [M]
    slot: jax.Array | None = None  # [M] int; None where every slot has a lane of its own


class Tail(NamedTuple):
    """What lies ahead of every slot until the agent's next decision or the end of its life."""

    reward: jax.Array  # [S]: discounted to here
    reward_sum: jax.Array  # [S]: undiscounted
    ticks: jax.Array  # [S] int
    value: jax.Array  # [S]: V at what follows, discounted to here
    advantage: jax.Array  # [S]: of the next decision, discounted likewise; 0 at the end of a life
    closed: jax.Array  # [S] bool: whether what follows is known


class Estimates(struct.PyTreeNode):
    """Per decision; meaningful only where the agent acted."""

    advantage: jax.Array  # [M]
    reward: jax.Array  # [M]: earned until the next decision, discounted as configured, unscaled
    reward_sum: jax.Array  # [M]: the same, undiscounted
    ticks: jax.Array  # [M] int: until the next decision
    closed: jax.Array  # [M] bool: the outcome is known; an open decision awaits the next rollout


def rollout_end(bootstrap_value: jax.Array, acts_next: jax.Array) -> Tail:
    """What lies ahead when a rollout ends.

    Args:
        bootstrap_value: `[S]`, V of the observation after the last tick.
        acts_next: `[S]` bool, whether the agent is to decide on that observation. If it is not, its
            last decision stays open.
    """
    return _next_decision(bootstrap_value, jnp.zeros_like(bootstrap_value), acts_next)


def own_timeline_gae(tail: Tail, entry: Timeline, discount_by_tick: bool) -> tuple[Tail, Estimates]:
    """Go back over one entry of all timelines; the step of a scan from the last to the first.

    By decision (the default), with r the sum of what was earned until the next decision:
    `delta = r + gamma V(next) - V` and `A = delta + gamma lambda A(next)`.
    By tick, for a decision whose successor is n ticks away (a semi-Markov decision process, Sutton,
    Precup & Singh 1999): `delta = sum_j gamma^{j-1} r_{t+j} + gamma^n V(next) - V` and
    `A = delta + gamma^n lambda A(next)`. V(next) is 0 where the life was terminated and
    V(final observation) where it was truncated.

    Args:
        tail: what lies ahead of the entry.
        entry: of the timelines.
        discount_by_tick: the second form.

    Returns:
        What lies ahead of the entry before, and the estimates of this entry's decisions.
    """
    ended = entry.terminated | entry.truncated
    tail = jax.tree.map(lambda x, y: jnp.where(ended, x, y), _life_end(entry), tail)
    discount = entry.gamma_held**entry.ticks if discount_by_tick else 1.0
    tail = Tail(
        reward=entry.reward + discount * tail.reward,
        reward_sum=entry.reward_sum + tail.reward_sum,
        ticks=entry.ticks + tail.ticks,
        value=discount * tail.value,
        advantage=discount * tail.advantage,
        closed=tail.closed,
    )
    ahead = take(tail, entry.slot)
    gamma = 1.0 if discount_by_tick else entry.gamma
    reward = ahead.reward
    if entry.reward_scale is not None:
        reward = jnp.clip(entry.reward_scale * reward, -normalise.CLIP, normalise.CLIP)
    delta = reward + gamma * ahead.value - entry.value
    advantage = delta + gamma * entry.gae_lambda * ahead.advantage
    estimates = Estimates(
        advantage=advantage,
        reward=ahead.reward,
        reward_sum=ahead.reward_sum,
        ticks=ahead.ticks,
        closed=ahead.closed,
    )
    # An open decision has no advantage yet: the trace of the one before it ends here.
    decided = _next_decision(
        entry.value, jnp.where(ahead.closed, advantage, 0.0), jnp.ones_like(ahead.closed)
    )
    return put(decided, entry.slot, tail, entry.acted), estimates


def standardise_own(
    advantage: jax.Array,
    trainable: jax.Array,
    policy: jax.Array,
    num_policies: int,
    axis_name: str | None = None,
) -> jax.Array:
    """Zero mean and unit variance over each policy's trainable rows; all arrays `[R]`.

    A deviation below `1e-4` of the mean is taken to be that much: what differs less is rounding.
    """

    def moments(k: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = (trainable & (policy == k)).astype(jnp.float32)
        _, mean, var = normalise.masked_moments(advantage, weight, axis_name)
        return mean, jnp.sqrt(var)

    mean, std = jax.vmap(moments)(jnp.arange(num_policies))
    policy = jnp.minimum(policy, num_policies - 1)  # rows of frozen policies are not trainable
    std = jnp.maximum(std + normalise.EPSILON, LEAST_DEVIATION * jnp.abs(mean))
    return (advantage - mean[policy]) / std[policy]


def explained_variance(
    target: jax.Array, error: jax.Array, own: jax.Array, axis_name: str | None = None
) -> jax.Array:
    """`1 - Var(error) / Var(target)` of every policy, `[K]`; 0 where nothing varies.

    Args:
        target: `[R]`, what V is trained on.
        error: `[R]`, that minus V.
        own: `[R, K]` bool, the rows of each policy.
        axis_name: of the devices that rows are spread over.
    """

    def one_policy(weight: jax.Array) -> jax.Array:
        _, _, target_var = normalise.masked_moments(target, weight, axis_name)
        _, _, error_var = normalise.masked_moments(error, weight, axis_name)
        varies = target_var > 1e-12
        return jnp.where(varies, 1.0 - error_var / jnp.where(varies, target_var, 1.0), 0.0)

    return jax.vmap(one_policy, in_axes=1)(own.astype(jnp.float32))


def discounted_returns(
    trace: jax.Array,
    life_start: jax.Array,
    trained: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Discounted sums of decision rewards since the start of each life.

    Args:
        trace: `[E, A]`, the sums before the first entry, discounted to it.
        life_start: `[T, E, A]` bool.
        trained: `[T, E, A]` bool; other entries leave the sums as they are.
        reward: `[T, E, A]`, per decision.
        discount: `[T, E, A]`, from each decision to the next.

    Returns:
        The sums after the last entry, discounted to what follows, and with every entry.
    """

    def step(trace: jax.Array, row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        life_start, trained, reward, discount = row
        total = jnp.where(life_start, 0.0, trace) + reward
        return jnp.where(trained, discount * total, trace), total

    return jax.lax.scan(step, trace, (life_start, trained, reward, discount))


def _life_end(entry: Timeline) -> Tail:
    value = jnp.where(entry.terminated, 0.0, entry.final_value)
    return _next_decision(value, jnp.zeros_like(value), jnp.ones_like(entry.terminated))


def _next_decision(value: jax.Array, advantage: jax.Array, closed: jax.Array) -> Tail:
    zero = jnp.zeros_like(value)
    return Tail(zero, zero, jnp.zeros_like(value, dtype=jnp.int32), value, advantage, closed)
