"""Decisions that a rollout leaves open, carried to the front of the next one.

An agent that waits when a rollout ends has a last decision whose outcome is not known yet. That row
trains nothing now; it moves on with what it has earned so far, so every decision is trained exactly
once, on its true outcome, however short the rollouts are.
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.advantages import Estimates, Timeline
from jaxmarl_ppo.lanes import Rows
from jaxmarl_ppo.types import Outcomes, Pending


def make_timeline(
    pending: Pending,
    acted: jax.Array,
    value: jax.Array,
    outcomes: Outcomes,
    reward_scale: jax.Array,
    gamma: jax.Array,
    gae_lambda: jax.Array,
) -> Timeline:
    """What the advantages are computed from, `[1 + T, E, A]`.

    Args:
        pending: of the rollout before.
        acted: `[1 + T, E, A]` bool, where a decision was made.
        value: `[1 + T, E, A]`, V there.
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
        acted=acted,
        value=value,
        terminated=_prepend(no_edge, outcomes.terminated),
        truncated=_prepend(no_edge, outcomes.truncated),
        final_value=_prepend(jnp.zeros_like(pending.reward), outcomes.final_value),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )


def open_decisions(rows: Rows, estimates: Estimates) -> Pending:
    """Each slot's last decision where its outcome is still unknown; `estimates` are a table."""
    open_rows = rows.table(rows.decisions.acted) & ~estimates.closed
    # At most one row of a slot is open: the agent's next decision would have closed it.
    index = jnp.argmax(open_rows, axis=0)
    is_open = open_rows.any(0)

    def held(table: jax.Array) -> jax.Array:
        return jnp.where(is_open, jnp.take_along_axis(table, index[None], axis=0)[0], 0)

    return Pending(
        decisions=rows.entry(index).replace(acted=is_open),
        reward=held(estimates.reward),
        reward_sum=held(estimates.reward_sum),
        ticks=held(estimates.ticks),
    )


def _prepend(first: jax.Array, rest: jax.Array) -> jax.Array:
    return jnp.concatenate([first[None], rest])
