"""Decisions that a rollout leaves open, carried to the front of the next one.

An agent that waits when a rollout ends has a last decision whose outcome is not known yet. That row
trains nothing now; it moves on with what it has earned so far, so every decision is trained exactly
once, on its true outcome, however short the rollouts are.
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.advantages import Estimates, Timeline
from jaxmarl_ppo.types import Decisions, Outcomes, Pending


def with_pending(pending: Decisions, decisions: Decisions) -> Decisions:
    """The rollout's decisions `[T, E, A]` behind the open ones `[E, A]`: `[1 + T, E, A]`."""
    return jax.tree.map(_prepend, pending, decisions)


def make_timeline(
    pending: Pending,
    rows: Decisions,
    outcomes: Outcomes,
    reward_scale: jax.Array,
    gamma: jax.Array,
    gae_lambda: jax.Array,
) -> Timeline:
    """What the advantages are computed from, `[1 + T, E, A]`.

    Args:
        pending: of the rollout before.
        rows: from `with_pending`.
        outcomes: of this rollout, `[T, E, A]`.
        reward_scale: `[1 + T, E, A]`.
        gamma: `[1 + T, E, A]`.
        gae_lambda: `[1 + T, E, A]`.
    """
    no_edge = jnp.zeros_like(pending.decisions.acted)
    return Timeline(
        reward=_prepend(pending.reward, outcomes.reward),
        reward_sum=_prepend(pending.reward_sum, outcomes.reward),
        reward_scale=reward_scale,
        ticks=_prepend(pending.ticks, jnp.ones(outcomes.reward.shape, jnp.int32)),
        acted=rows.acted,
        value=rows.value,
        terminated=_prepend(no_edge, outcomes.terminated),
        truncated=_prepend(no_edge, outcomes.truncated),
        final_value=_prepend(jnp.zeros_like(pending.reward), outcomes.final_value),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )


def open_decisions(rows: Decisions, estimates: Estimates) -> Pending:
    """Each slot's last decision where its outcome is still unknown, from `[1 + T, E, A]` rows."""
    open_rows = rows.acted & ~estimates.closed
    # At most one row of a slot is open: the agent's next decision would have closed it.
    index = jnp.argmax(open_rows, axis=0)

    def at_index(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, index.reshape(1, *index.shape, *[1] * (x.ndim - 3)), axis=0)[
            0
        ]

    is_open = open_rows.any(0)
    return Pending(
        decisions=jax.tree.map(at_index, rows).replace(acted=is_open),
        reward=jnp.where(is_open, at_index(estimates.reward), 0.0),
        reward_sum=jnp.where(is_open, at_index(estimates.reward_sum), 0.0),
        ticks=jnp.where(is_open, at_index(estimates.ticks), 0),
    )


def _prepend(first: jax.Array, rest: jax.Array) -> jax.Array:
    return jnp.concatenate([first[None], rest])
