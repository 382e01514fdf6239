"""Decisions of all slots that must act, and the actions passed to environments."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.ops.active_rows import put
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.ask import ask
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.rollout.noise import Noise
from jaxmarl_ppo.types import Decisions, PolicyStack, Population, PyTree, RolloutState


class ActOutput(NamedTuple):
    """Decisions and actions of all slots at one step."""

    hidden: tuple[PyTree, ...]  # per policy group [E, S, H] leaves: the memory to hold from here on
    decisions: tuple[Decisions, ...]  # per policy group [E, M]
    action: Any  # [E, A, ...]: as drawn
    env_action: Any  # [E, A, ...]: as the environment takes it


def act(
    players: Players,
    population: Population,
    state: RolloutState,
    env_params: PyTree,
    noise: Noise,
    greedy: bool = False,
) -> ActOutput:
    """Decide for every slot that must act; waiting slots decide nothing.

    Args:
        players: who can hold a slot.
        population: their parameters.
        state: the slots' present players, observations and memory.
        env_params: of the environment, for scripted policies that play or are imitated.
        noise: of the step.
        greedy: networks take the most likely actions instead of drawing them.
    """
    hidden, decisions = [], []
    action = state.last_action
    env_action = jax.tree.map(jnp.zeros_like, action)
    for group, stack, held, group_noise in zip(
        players.policy_groups, population.policy_groups, state.hidden, noise.actions, strict=True
    ):
        moved, own = _act_group(group, stack, held, state, group_noise, greedy)
        if noise.imitated is not None and group.imitated:
            own = own.replace(imitated=_imitated(group, own, state, env_params, noise.imitated))
        hidden.append(moved)
        decisions.append(own)
        interface = group.interface
        action = interface.spread(own.action, action, own.acted, own.slot)
        to_env = interface.env_action(own.action, own.slot)
        env_action = interface.spread(to_env, env_action, own.acted, own.slot)
    env_action = players.scripted_actions(state, env_params, noise.scripts, env_action)
    return ActOutput(tuple(hidden), tuple(decisions), action, env_action)


def _act_group(
    group: PolicyGroup,
    stack: PolicyStack,
    hidden: PyTree,
    state: RolloutState,
    noise: Any,
    greedy: bool,
) -> tuple[PyTree, Decisions]:
    """Decide for the slots that one policy group plays.

    Returns:
        The memory to hold, `[E, S, H]` leaves, and the decisions `[E, M]`.
    """
    distribution = group.network.distribution
    response = ask(
        group, stack, hidden, state, state.obs, state.obs.agent_mask, in_active_rows=True
    )
    outputs, mask = response.outputs, response.action_mask
    if greedy:
        action = distribution.mode(outputs, mask)
    else:
        action = distribution.sample(noise, outputs, mask)
    decisions = Decisions(
        inputs=response.inputs,
        action_mask=mask,
        action=action,
        log_prob=distribution.log_prob(outputs, mask, action),
        value=response.value,
        hidden=response.start,
        is_first=response.is_first,
        acted=response.asked,
        policy_index=response.policy_index,
        slot=response.slot,
    )
    return put(response.hidden, response.slot, hidden), decisions


def _imitated(
    group: PolicyGroup,
    decisions: Decisions,
    state: RolloutState,
    env_params: PyTree,
    key: jax.Array,
) -> Any:
    """Compute the actions of imitated scripted policies, as `Decisions.imitated`."""
    num_envs = state.player.shape[0]
    # It is not read for untrained members.
    script = jnp.array(group.imitated_by)[
        jnp.minimum(decisions.policy_index, group.num_trainable - 1)
    ]
    result = jax.tree.map(jnp.zeros_like, decisions.action)
    for index, fn in enumerate(group.imitated):
        keys = split(fold_in(key, index), num_envs)
        done = jax.vmap(fn, in_axes=(0, 0, None, 0))(state.env_state, state.obs, env_params, keys)
        own = group.interface.own_action(done, decisions.action_mask, decisions.slot)
        own = jax.tree.map(lambda x, y: x.astype(y.dtype), own, result)
        result = where_rows(script == index, own, result)
    return result
