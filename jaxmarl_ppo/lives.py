"""Finished lives, counted on the device: what each agent slot and each policy lived.

Lives are followed tick by tick, and nothing of a tick is kept but sums, minima and maxima: a table
of every slot on every tick would grow with the agents, and by agent with their square.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.players import Players
from jaxmarl_ppo.types import EpisodeStats, Outcomes


class LifeSums(struct.PyTreeNode):
    """Finished lives of `G` groups: all that one agent slot, or one policy, lived."""

    lives: jax.Array  # [G]
    returns: jax.Array  # [G]
    lengths: jax.Array  # [G]: ticks
    extras: dict[str, jax.Array]  # [G] each


class Extremes(struct.PyTreeNode):
    """Least or greatest return of a finished life."""

    agents: jax.Array  # [A]
    policies: jax.Array  # [P]


class Lives(struct.PyTreeNode):
    """All finished lives of a stretch of time."""

    agents: LifeSums  # [A]
    policies: LifeSums  # [P]
    minimum: Extremes
    maximum: Extremes


def no_lives(players: Players, stats: EpisodeStats) -> Lives:
    """Nobody has lived yet.

    Args:
        players: who can play.
        stats: which of the environment's own metrics there are.
    """
    by_agent = jnp.zeros(len(players.mapping.candidates))
    by_policy = jnp.zeros(len(players.policies))

    def none(zeros: jax.Array) -> LifeSums:
        return LifeSums(zeros, zeros, zeros, dict.fromkeys(stats.extras, zeros))

    return Lives(
        agents=none(by_agent),
        policies=none(by_policy),
        minimum=Extremes(by_agent + jnp.inf, by_policy + jnp.inf),
        maximum=Extremes(by_agent - jnp.inf, by_policy - jnp.inf),
    )


def track_lives(
    players: Players, stats: EpisodeStats, outcomes: Outcomes
) -> tuple[EpisodeStats, Lives]:
    """Follow every life through a rollout.

    Args:
        players: who could play.
        stats: `[E, A]`, totals of the lives that go on when it begins.
        outcomes: `[T, E, A]`.

    Returns:
        The totals of the lives that go on when it ends, and the counted lives that ended in it.
    """

    def tick(
        carry: tuple[EpisodeStats, Lives], outcome: Outcomes
    ) -> tuple[tuple[EpisodeStats, Lives], None]:
        stats, lives = carry
        stats = stats.replace(
            returns=stats.returns + outcome.reward,
            lengths=stats.lengths + outcome.alive,
            extras=jax.tree.map(jnp.add, stats.extras, outcome.extras),
        )
        ended = outcome.terminated | outcome.truncated
        finished = ended & stats.counted
        policy = players.policies_at(outcome.player)
        lives = jax.lax.cond(
            finished.any(), lambda: _add(lives, stats, finished, policy), lambda: lives
        )
        fresh = jax.tree.map(jnp.zeros_like, stats).replace(counted=jnp.ones_like(stats.counted))
        running = jax.tree.map(lambda x, y: jnp.where(ended, x, y), fresh, stats)
        return (running, lives), None

    return jax.lax.scan(tick, (stats, no_lives(players, stats)), outcomes)[0]


def _add(lives: Lives, stats: EpisodeStats, finished: jax.Array, policy: jax.Array) -> Lives:
    """Count the lives with the totals `stats` that ended on a tick, where `finished [E, A]`."""
    num_policies = lives.minimum.policies.shape[0]
    by_policy = finished[..., None] & (policy[..., None] == jnp.arange(num_policies))
    groups = {"agents": finished, "policies": by_policy}

    def extreme(reduce: Callable[..., jax.Array], neutral: float) -> Extremes:
        return Extremes(
            **{name: _total(stats.returns, of, neutral, reduce) for name, of in groups.items()}
        )

    return Lives(
        agents=jax.tree.map(jnp.add, lives.agents, _sums(stats, finished)),
        policies=jax.tree.map(jnp.add, lives.policies, _sums(stats, by_policy)),
        minimum=jax.tree.map(jnp.minimum, lives.minimum, extreme(jnp.min, jnp.inf)),
        maximum=jax.tree.map(jnp.maximum, lives.maximum, extreme(jnp.max, -jnp.inf)),
    )


def _sums(stats: EpisodeStats, of: jax.Array) -> LifeSums:
    def total(x: jax.Array) -> jax.Array:
        return _total(x, of, 0.0, jnp.sum)

    return LifeSums(
        lives=total(jnp.ones_like(stats.returns)),
        returns=total(stats.returns),
        lengths=total(stats.lengths),
        extras=jax.tree.map(total, stats.extras),
    )


def _total(
    x: jax.Array, of: jax.Array, neutral: float, reduce: Callable[..., jax.Array]
) -> jax.Array:
    """`x [E, A]` over each group `of [E, A]`, by agent, or `of [E, A, P]`, by policy."""
    x = x.reshape(x.shape + (1,) * (of.ndim - x.ndim))
    return reduce(jnp.where(of, x, neutral), axis=tuple(range(of.ndim - 1)))
