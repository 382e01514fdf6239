"""Credit: generalised advantage estimation on each agent's own timeline (Schulman et al. 2016).

A decision's successor is the same agent's next decision, or the end of its life, any number of
steps later. Its reward is the agent's reward until then. If every agent acts at every step, this is
textbook GAE.
"""

import math
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.credit.reward_scaling import scale_rewards
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.active_rows import put, take
from jaxmarl_ppo.ops.rows import from_rows, look_up, to_rows
from jaxmarl_ppo.ops.steps import scan_steps
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.types import Decisions, Outcomes, Pending


class TimelineEntry(struct.PyTreeNode):
    """One entry of the slots' timelines, and the decisions that were made at its start.

    An entry is one step, or the steps that an open decision of an earlier rollout has waited. A
    life that ended in an entry began before it; later entries belong to another life. Slots and the
    active rows of decisions may be any leading axes; where they differ, `slot` connects them (see
    `ops.active_rows`).
    """

    reward: jax.Array  # [..., S]
    reward_sum: jax.Array  # [..., S]: undiscounted; differs from `reward` only where `steps` > 1
    steps: jax.Array  # [..., S] int: how many the entry spans
    terminated: jax.Array  # [..., S] bool: edge
    truncated: jax.Array  # [..., S] bool: edge
    final_value: jax.Array  # [..., S]: V(final observation) where truncated
    gamma_held: jax.Array  # [..., S]: of the policy that holds the slot; read by step only
    acted: jax.Array  # [..., M] bool: the agent decided
    value: jax.Array  # [..., M]: V at the decision
    # [..., M]: multiplies rewards where they meet V, after which they are clipped to +-10; None for
    # rewards as they are.
    reward_scale: jax.Array | None
    gamma: jax.Array  # [..., M]
    gae_lambda: jax.Array  # [..., M]
    slot: jax.Array | None = (
        None  # [..., M] int; None where every slot has an active row of its own
    )


class Successor(NamedTuple):
    """Sums ahead of every slot, to the agent's next decision or its life's end."""

    reward: jax.Array  # [..., S]: discounted to here
    reward_sum: jax.Array  # [..., S]: undiscounted
    steps: jax.Array  # [..., S] int
    value: jax.Array  # [..., S]: V at what follows, discounted to here
    advantage: jax.Array  # [..., S]: of the next decision, discounted alike; 0 at the end of a life
    closed: jax.Array  # [..., S] bool: whether what follows is known


class Credit(struct.PyTreeNode):
    """Rewards and advantages of transitions; meaningful only where the agent acted."""

    advantage: jax.Array  # [...]
    reward: jax.Array  # [...]: earned until the next decision, discounted as configured, unscaled
    reward_sum: jax.Array  # [...]: the same, undiscounted
    steps: jax.Array  # [...] int: until the next decision
    closed: jax.Array  # [...] bool: the outcome is known; an open decision awaits the next rollout


class CreditParams(NamedTuple):
    """Discounts and reward scales of a policy group's members."""

    gamma: jax.Array  # [K]
    gae_lambda: jax.Array  # [K]
    reward_scale: jax.Array | None  # [K]; None for rewards as they are

    def of(self, policy_index: jax.Array) -> "CreditParams":
        """Look up the numbers of each `policy_index [...]`; arbitrary ones where not trained."""
        return jax.tree.map(lambda x: _look_up(x, policy_index), self)


def rollout_end(bootstrap_value: jax.Array, acts_next: jax.Array) -> Successor:
    """Make the successor of every slot's last entry, at the end of a rollout.

    Args:
        bootstrap_value: `[..., S]`, V of the observation after the last step.
        acts_next: `[..., S]` bool, whether the agent decides on that observation. If not, its last
            decision stays open.
    """
    return _next_decision(bootstrap_value, jnp.zeros_like(bootstrap_value), acts_next)


def own_timeline_gae(
    successor: Successor, entry: TimelineEntry, discount_by_step: bool
) -> tuple[Successor, Credit]:
    """Estimate the credit of one entry of all timelines; the step of a scan from last to first.

    By decision (the default), with r the sum of rewards until the next decision: `delta = r + gamma
    V(next) - V` and `A = delta + gamma lambda A(next)`. By step, for a decision whose successor is
    n steps away (a semi-Markov decision process, Sutton, Precup & Singh 1999): `delta = sum_j
    gamma^{j-1} r_{t+j} + gamma^n V(next) - V` and `A = delta + gamma^n lambda A(next)`. V(next) is
    0 where the life was terminated and V(final observation) where it was truncated.

    Args:
        successor: what lies ahead of the entry.
        entry: of the timelines.
        discount_by_step: the second form.

    Returns:
        The successor of the previous entry, and the credit of this entry's decisions.
    """
    # In reverse the edge precedes the decision: it ends the step that the decision began.
    ended = entry.terminated | entry.truncated
    successor = jax.tree.map(lambda x, y: jnp.where(ended, x, y), _life_end(entry), successor)
    discount = entry.gamma_held**entry.steps if discount_by_step else 1.0
    successor = Successor(
        reward=entry.reward + discount * successor.reward,
        reward_sum=entry.reward_sum + successor.reward_sum,
        steps=entry.steps + successor.steps,
        value=discount * successor.value,
        advantage=discount * successor.advantage,
        closed=successor.closed,
    )
    ahead = take(successor, entry.slot)
    # By step, the successor has been discounted already.
    gamma = 1.0 if discount_by_step else entry.gamma
    reward = ahead.reward
    if entry.reward_scale is not None:
        reward = scale_rewards(reward, entry.reward_scale)
    delta = reward + gamma * ahead.value - entry.value
    advantage = delta + gamma * entry.gae_lambda * ahead.advantage
    credit = Credit(
        advantage=advantage,
        reward=ahead.reward,
        reward_sum=ahead.reward_sum,
        steps=ahead.steps,
        closed=ahead.closed,
    )
    # An open decision has no advantage yet: the previous decision's trace ends here.
    decided = _next_decision(
        entry.value, jnp.where(ahead.closed, advantage, 0.0), jnp.ones_like(ahead.closed)
    )
    return put(decided, entry.slot, successor, entry.acted), credit


def estimate_credit(
    group: PolicyGroup,
    pending: Pending,
    decisions: Decisions,
    outcomes: Outcomes,
    params: CreditParams,
    end: Successor,
    discount_by_step: bool,
) -> tuple[Credit, jax.Array]:
    """Estimate advantages of a rollout's decisions and of those that were still open before it.

    Only active rows of a step are kept, so slots that wait cost next to nothing.

    Args:
        group: that made the decisions.
        pending: the open decisions of the previous rollout.
        decisions: `[T, E, M]`.
        outcomes: `[T, E, A]`.
        params: of every member.
        end: `[E, S]`, the successor of the last step.
        discount_by_step: see `own_timeline_gae`.

    Returns:
        Credit of the rows `[R]` of a `DecisionTable`, and the row that each slot leaves open,
        `[E, S]` int; -1 where there is none.
    """
    chex.assert_equal_shape([decisions.acted, decisions.value, decisions.policy_index])
    chex.assert_equal_shape([outcomes.reward, outcomes.terminated, outcomes.truncated])
    chex.assert_equal_shape_prefix([decisions.acted, outcomes.reward], 2)
    chex.assert_equal_shape([pending.reward, pending.decisions.value, end.value])
    num_pending, size = end.value.size, decisions.acted.size
    row = num_pending + from_rows(jnp.arange(size, dtype=jnp.int32), decisions.acted.shape)

    def decided(decisions: Decisions) -> dict[str, jax.Array]:
        of = params.of(decisions.policy_index)
        return {"acted": decisions.acted, "value": decisions.value, **of._asdict()}

    def go_back(carry: tuple[Successor, jax.Array], entry: TimelineEntry, row: jax.Array):
        successor, credit = own_timeline_gae(carry[0], entry, discount_by_step)
        opened = put(row, entry.slot, carry[1], entry.acted & ~credit.closed)
        return (successor, opened), credit

    def step(carry: tuple[Successor, jax.Array], x: tuple[Any, ...]):
        decisions, outcome, row = x
        own = group.interface.own
        reward, holder = own(outcome.reward), group.members(outcome.player)[0]
        entry = TimelineEntry(
            reward=reward,
            reward_sum=reward,
            steps=jnp.ones_like(holder),
            terminated=own(outcome.terminated),
            truncated=own(outcome.truncated),
            final_value=own(outcome.final_value),
            gamma_held=_look_up(params.gamma, holder),
            slot=decisions.slot,
            **decided(decisions),
        )
        return go_back(carry, entry, row)

    none = jnp.full(end.closed.shape, -1, jnp.int32)
    unroll = math.gcd(len(row), tuning().credit_unroll)
    entries = decisions, outcomes, row
    carry, credit = scan_steps(step, (end, none), entries, reverse=True, unroll=unroll)
    # An edge would have closed these decisions in their own rollout.
    no_edge = jnp.zeros_like(end.closed)
    first = TimelineEntry(
        reward=pending.reward,
        reward_sum=pending.reward_sum,
        steps=pending.steps,
        terminated=no_edge,
        truncated=no_edge,
        final_value=jnp.zeros_like(end.value),
        gamma_held=_look_up(params.gamma, pending.decisions.policy_index),
        **decided(pending.decisions),
    )
    own_row = from_rows(jnp.arange(num_pending, dtype=jnp.int32), none.shape)
    (_, opened), of_pending = go_back(carry, first, own_row)
    both = of_pending, credit
    joined = jax.tree.map(lambda x, y: jnp.concatenate([to_rows(x, 2), to_rows(y, 3)]), *both)
    return joined, opened


def _life_end(entry: TimelineEntry) -> Successor:
    value = jnp.where(entry.terminated, 0.0, entry.final_value)
    return _next_decision(value, jnp.zeros_like(value), jnp.ones_like(entry.terminated))


def _next_decision(value: jax.Array, advantage: jax.Array, closed: jax.Array) -> Successor:
    zero = jnp.zeros_like(value)
    return Successor(zero, zero, jnp.zeros_like(value, dtype=jnp.int32), value, advantage, closed)


def _look_up(x: jax.Array, policy_index: jax.Array) -> jax.Array:
    """Look `x [K]` up at `policy_index [...]`, which may be beyond the last."""
    if x.size == 1:
        return jnp.broadcast_to(x[0], policy_index.shape)
    return look_up(x, jnp.minimum(policy_index, x.size - 1))
