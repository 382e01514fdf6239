"""Answers of a policy group to observations, for all decisions and values."""

from typing import NamedTuple

import jax

from jaxmarl_envs.core import Observation
from jaxmarl_ppo.ops.active_rows import assign_rows, take
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.types import PolicyStack, PyTree, RolloutState


class Response(NamedTuple):
    """A group's answer to an observation, in active rows `[E, M]` or for all slots `[E, S]`."""

    policy_index: jax.Array  # [E, M] int: of the answering policy
    asked: jax.Array  # [E, M] bool: where it is False the other fields mean nothing
    is_first: jax.Array  # [E, M] bool
    inputs: jax.Array  # [E, M, D]: what the network was given
    action_mask: jax.Array  # [E, M, W] bool
    hidden: PyTree  # [E, M, H] leaves: the memory to hold from here on
    start: PyTree  # [E, M, H] leaves: the memory that the network started from
    outputs: jax.Array  # [E, M, ...]: parameters of the action distribution
    value: jax.Array  # [E, M]
    slot: jax.Array | None  # [E, M] int: the slots in active rows; None for all slots in order


def ask(
    group: PolicyGroup,
    stack: PolicyStack,
    hidden: PyTree,
    state: RolloutState,
    obs: Observation,
    wanted: jax.Array,
    in_active_rows: bool = False,
) -> Response:
    """Compute the answers of a policy group's members to an observation, each in its slots.

    Args:
        group: that answers.
        stack: its parameters, `[K, ...]`.
        hidden: `[E, S, H]` leaves, held.
        state: the slots' players, last actions and last rewards.
        obs: `[E, A, ...]`, not necessarily that of the state.
        wanted: `[E, A]` bool, the slots that must answer.
        in_active_rows: compute as many rows as can act at once (`ops.active_rows`) instead of all
            slots; then at most `group.num_active_rows` may be wanted.
    """
    interface = group.interface
    policy_index, plays = group.members(state.player)
    asked = plays & interface.own(wanted)
    slot = assign_rows(asked, group.num_active_rows) if in_active_rows else None
    rows = (policy_index, asked, interface.own(state.is_first), hidden)
    policy_index, asked, is_first, held = take(rows, slot)
    inputs = interface(obs, state, slot)
    moved, start, outputs, value = group.network.forward(
        stack, policy_index, held, inputs, is_first, asked, group.computed_members(in_active_rows)
    )
    mask = interface.action_mask(obs, slot)
    return Response(policy_index, asked, is_first, inputs, mask, moved, start, outputs, value, slot)
