"""Generalised advantage estimation on each agent's own timeline (Schulman et al. 2016).

A decision's successor is the same agent's next decision, or the end of its life, however many ticks
later. Its reward is what the agent earned until then. With every agent acting on every tick this is
textbook GAE.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo import normalise


class Timeline(struct.PyTreeNode):
    """One slot's ticks, oldest first. The first may stand for several ticks of an earlier rollout.

    A life that ended on a tick began before it; whatever stands later belongs to another life.
    """

    reward: jax.Array  # [T]
    reward_sum: jax.Array  # [T]: undiscounted; differs from `reward` only where `ticks` > 1
    reward_scale: jax.Array  # [T]: multiplies rewards where they meet V
    ticks: jax.Array  # [T] int: how many ticks an entry spans; 1 but for the first
    acted: jax.Array  # [T] bool: the agent decided at the start of this entry
    value: jax.Array  # [T]: V at the decision
    terminated: jax.Array  # [T] bool: edge
    truncated: jax.Array  # [T] bool: edge
    final_value: jax.Array  # [T]: V(final observation) where truncated
    gamma: jax.Array  # [T]
    gae_lambda: jax.Array  # [T]


class Tail(NamedTuple):
    """What lies ahead of a tick until the agent's next decision or the end of its life."""

    reward: jax.Array  # discounted to the tick
    reward_sum: jax.Array  # undiscounted
    ticks: jax.Array  # int
    value: jax.Array  # V at what follows, discounted to the tick
    advantage: jax.Array  # of the next decision, discounted likewise; 0 at the end of a life
    closed: jax.Array  # bool: whether what follows is known


class Estimates(struct.PyTreeNode):
    """Per decision; meaningful only where the agent acted."""

    advantage: jax.Array  # [T]
    target: jax.Array  # [T]: advantage + value, what V is trained on
    reward: jax.Array  # [T]: earned until the next decision, discounted as configured, unscaled
    reward_sum: jax.Array  # [T]: the same, undiscounted
    ticks: jax.Array  # [T] int: until the next decision
    closed: jax.Array  # [T] bool: the outcome is known; an open decision waits for the next rollout


def own_timeline_gae(
    timeline: Timeline,
    bootstrap_value: jax.Array,
    acts_next: jax.Array,
    discount_by_tick: bool,
) -> Estimates:
    r"""Advantages of one slot's decisions.

    By decision: `delta = sum_j r_{t+j} + gamma V(next) - V` and `A = delta + gamma lambda A(next)`.
    By tick, for a next decision after `n` ticks (a semi-Markov decision process, Sutton, Precup &
    Singh 1999): `delta = sum_j gamma^{j-1} r_{t+j} + gamma^n V(next) - V` and
    `A = delta + gamma^n lambda A(next)`. V(next) is 0 where the life was terminated and
    V(final observation) where it was truncated.

    Args:
        timeline: `[T]` fields.
        bootstrap_value: `()`, V of the observation after the last tick.
        acts_next: `()` bool, whether the agent is to decide on that observation. If it is not, its
            last decision stays open.
        discount_by_tick: the second form.

    Returns:
        `[T]` fields.
    """

    def backward(tail: Tail, tick: Timeline) -> tuple[Tail, Estimates]:
        ended = tick.terminated | tick.truncated
        tail = jax.tree.map(lambda x, y: jnp.where(ended, x, y), _life_end(tick), tail)
        discount = tick.gamma**tick.ticks if discount_by_tick else jnp.ones_like(tick.gamma)
        tail = Tail(
            reward=tick.reward + discount * tail.reward,
            reward_sum=tick.reward_sum + tail.reward_sum,
            ticks=tick.ticks + tail.ticks,
            value=discount * tail.value,
            advantage=discount * tail.advantage,
            closed=tail.closed,
        )
        gamma = jnp.ones_like(tick.gamma) if discount_by_tick else tick.gamma
        delta = tick.reward_scale * tail.reward + gamma * tail.value - tick.value
        advantage = delta + gamma * tick.gae_lambda * tail.advantage
        estimates = Estimates(
            advantage=advantage,
            target=advantage + tick.value,
            reward=tail.reward,
            reward_sum=tail.reward_sum,
            ticks=tail.ticks,
            closed=tail.closed,
        )
        # An open decision has no advantage yet: the trace of the one before it ends here.
        decided = _next_decision(
            tick.value, jnp.where(tail.closed, advantage, 0.0), jnp.ones_like(tail.closed)
        )
        return jax.tree.map(lambda x, y: jnp.where(tick.acted, x, y), decided, tail), estimates

    end = _next_decision(bootstrap_value, jnp.zeros_like(bootstrap_value), acts_next)
    return jax.lax.scan(backward, end, timeline, reverse=True)[1]


def slotwise_gae(
    timeline: Timeline,
    bootstrap_value: jax.Array,
    acts_next: jax.Array,
    discount_by_tick: bool,
) -> Estimates:
    """`own_timeline_gae` of every slot: `[T, E, A]` and `[E, A]` in, `[T, E, A]` out."""
    over_agents = jax.vmap(own_timeline_gae, in_axes=(1, 0, 0, None), out_axes=1)
    over_envs = jax.vmap(over_agents, in_axes=(1, 0, 0, None), out_axes=1)
    return over_envs(timeline, bootstrap_value, acts_next, discount_by_tick)


def standardise_own(
    advantage: jax.Array,
    trainable: jax.Array,
    policy: jax.Array,
    num_policies: int,
    axis_name: str | None = None,
) -> jax.Array:
    """Zero mean and unit variance over each policy's trainable rows; all arrays `[R]`."""

    def moments(k: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = (trainable & (policy == k)).astype(jnp.float32)
        _, mean, var = normalise.masked_moments(advantage, weight, axis_name)
        return mean, jnp.sqrt(var)

    mean, std = jax.vmap(moments)(jnp.arange(num_policies))
    policy = jnp.minimum(policy, num_policies - 1)  # rows of frozen policies are not trainable
    return (advantage - mean[policy]) / (std[policy] + normalise.EPSILON)


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


def _life_end(tick: Timeline) -> Tail:
    value = jnp.where(tick.terminated, 0.0, tick.final_value)
    return _next_decision(value, jnp.zeros_like(value), jnp.ones_like(tick.terminated))


def _next_decision(value: jax.Array, advantage: jax.Array, closed: jax.Array) -> Tail:
    zero = jnp.zeros_like(value)
    return Tail(zero, zero, jnp.zeros_like(value, dtype=jnp.int32), value, advantage, closed)
