"""Decisions that a rollout leaves open, carried to the front of the next one.

An agent that waits when a rollout ends has a last decision with an unknown outcome. That row is not
trained on yet; it is carried on with its reward so far. So every decision is trained on in exactly
one iteration, with its true outcome, however short the rollouts are.
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.credit.advantages import Credit
from jaxmarl_ppo.credit.decision_table import DecisionTable
from jaxmarl_ppo.ops.rows import from_rows
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.types import Decisions, Pending, RolloutState


def nothing_pending(group: PolicyGroup, state: RolloutState) -> Pending:
    """Make a policy group's initial open decisions: none in any slot."""
    interface = group.interface
    mask = interface.action_mask(state.obs)
    shape = mask.shape[:2]
    own_action = interface.narrow(interface.own(state.last_action))
    decisions = Decisions(
        inputs=jnp.zeros((*shape, *interface.input_shape)),
        action_mask=jnp.ones_like(mask),
        action=own_action,
        log_prob=jnp.zeros(shape),
        value=jnp.zeros(shape),
        hidden=group.network.initial_hidden(shape),
        is_first=jnp.zeros(shape, bool),
        acted=jnp.zeros(shape, bool),
        policy_index=jnp.zeros(shape, jnp.int32),
        imitated=jax.tree.map(jnp.zeros_like, own_action) if group.imitated else None,
    )
    return Pending(decisions, jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape, jnp.int32))


def open_decisions(table: DecisionTable, credit: Credit, opened: jax.Array) -> Pending:
    """Collect the decisions that stay open, to be carried into the next rollout.

    For each slot, `opened [E, S]` is its row in the table; -1 where there is none.
    """
    is_open, unread = opened >= 0, from_rows(jnp.arange(opened.size), opened.shape)
    row = jnp.where(is_open, opened, unread)

    def held(x: jax.Array) -> jax.Array:
        return jnp.where(is_open, table.numbers_of_slots(x, row), 0)

    return Pending(
        decisions=table.decisions_of_slots(row).replace(acted=is_open),
        reward=held(credit.reward),
        reward_sum=held(credit.reward_sum),
        steps=held(credit.steps),
    )
