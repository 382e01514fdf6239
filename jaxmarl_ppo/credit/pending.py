"""Decisions that a rollout leaves open, carried to the front of the next one.

An agent that waits when a rollout ends has a last decision whose outcome is not known yet. That row
trains nothing now; it moves on with what it has earned so far, so every decision is trained exactly
once, on its true outcome, however short the rollouts are.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_ppo.credit.advantages import Estimates, Tail, Timeline, own_timeline_gae
from jaxmarl_ppo.ops.lanes import Rows, put
from jaxmarl_ppo.policies.players import BankSeats
from jaxmarl_ppo.types import Decisions, Outcomes, Pending


class Factors(NamedTuple):
    """What policies weigh the outcomes of their decisions by."""

    gamma: jax.Array  # [K]
    gae_lambda: jax.Array  # [K]
    reward_scale: jax.Array | None  # [K]; None for rewards as they are

    def of(self, policy: jax.Array) -> "Factors":
        """Those of each of `policy [...]`; of a policy that is not trained any."""
        return jax.tree.map(lambda x: _look_up(x, policy), self)


def estimate(
    seats: BankSeats,
    pending: Pending,
    decisions: Decisions,
    slot: jax.Array | None,
    outcomes: Outcomes,
    factors: Factors,
    end: Tail,
    discount_by_tick: bool,
) -> tuple[Estimates, jax.Array]:
    """Advantages of the rollout's decisions, and of those that the one before left open.

    Of a tick nothing is kept but its lanes, so slots that wait cost next to nothing.

    Args:
        seats: of the bank.
        pending: from the rollout before.
        decisions: `[T, E, M]`.
        slot: `[T, E, M]`, as `Rows.slot`.
        outcomes: `[T, E, A]`.
        factors: of every policy.
        end: `[E, S]`, what lies ahead of the last tick.
        discount_by_tick: see `own_timeline_gae`.

    Returns:
        Estimates of the rows `[R]` of `make_rows`, and the row that each slot leaves open, `[E, S]`
        int; -1 where there is none.
    """
    num_pending, size = end.value.size, decisions.acted.size
    row = num_pending + jnp.arange(size, dtype=jnp.int32).reshape(decisions.acted.shape)

    def decided(decisions: Decisions) -> dict[str, jax.Array]:
        of = factors.of(decisions.policy)
        return {"acted": decisions.acted, "value": decisions.value, **of._asdict()}

    def go_back(carry: tuple[Tail, jax.Array], entry: Timeline, row: jax.Array):
        tail, estimates = own_timeline_gae(carry[0], entry, discount_by_tick)
        opened = put(row, entry.slot, carry[1], entry.acted & ~estimates.closed)
        return (tail, opened), estimates

    def tick(carry: tuple[Tail, jax.Array], x: tuple[Any, ...]):
        decisions, slot, outcome, row = x
        own = seats.encoder.own
        reward, holder = own(outcome.reward), seats.rows(outcome.player)[0]
        entry = Timeline(
            reward=reward,
            reward_sum=reward,
            ticks=jnp.ones_like(holder),
            terminated=own(outcome.terminated),
            truncated=own(outcome.truncated),
            final_value=own(outcome.final_value),
            gamma_held=_look_up(factors.gamma, holder),
            slot=slot,
            **decided(decisions),
        )
        return go_back(carry, entry, row)

    none = jnp.full(end.closed.shape, -1, jnp.int32)
    carry, estimates = jax.lax.scan(
        tick, (end, none), (decisions, slot, outcomes, row), reverse=True
    )
    no_edge = jnp.zeros_like(end.closed)
    first = Timeline(
        reward=pending.reward,
        reward_sum=pending.reward_sum,
        ticks=pending.ticks,
        terminated=no_edge,
        truncated=no_edge,
        final_value=jnp.zeros_like(end.value),
        gamma_held=_look_up(factors.gamma, pending.decisions.policy),
        **decided(pending.decisions),
    )
    own_row = jnp.arange(num_pending, dtype=jnp.int32).reshape(none.shape)
    (_, opened), of_pending = go_back(carry, first, own_row)
    joined = jax.tree.map(
        lambda x, y: jnp.concatenate([x.ravel(), y.ravel()]), of_pending, estimates
    )
    return joined, opened


def open_decisions(rows: Rows, estimates: Estimates, opened: jax.Array) -> Pending:
    """What to carry on: the row `opened [E, S]` of each slot, which is -1 where there is none."""
    is_open, unread = opened >= 0, jnp.arange(opened.size).reshape(opened.shape)
    row = jnp.where(is_open, opened, unread)

    def held(x: jax.Array) -> jax.Array:
        return jnp.where(is_open, x[row], 0)

    return Pending(
        decisions=jax.tree.map(lambda x: x[row], rows.decisions).replace(acted=is_open),
        reward=held(estimates.reward),
        reward_sum=held(estimates.reward_sum),
        ticks=held(estimates.ticks),
    )


def _look_up(x: jax.Array, policy: jax.Array) -> jax.Array:
    """`x [K]` at `policy`, which may be beyond the last."""
    if x.size == 1:
        return jnp.broadcast_to(x[0], policy.shape)
    return x[jnp.minimum(policy, x.size - 1)]
