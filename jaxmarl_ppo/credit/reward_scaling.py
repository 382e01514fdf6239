"""Rewards divided by the standard deviation of their discounted returns.

So value targets are about one at any reward scale (Engstrom et al. 2020).
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.types import Moments

CLIP = 10.0
# Prior decisions of variance 1 in a policy's returns.
PRIOR_COUNT = 10.0


def return_deviation(moments: Moments) -> jax.Array:
    """Estimate the standard deviation of returns, the divisor of rewards, `[K]`.

    `sqrt((n0 + n var) / (n0 + n))` after `n` decisions: the prior is `n0 = 10` decisions of
    variance 1. Rewards hardly change while few returns are known or all are equal, where the plain
    variance is 0 and would blow up the next reward. The prior is small enough that after a million
    decisions returns may still be as small as 0.003.
    """
    prior = PRIOR_COUNT / (PRIOR_COUNT + moments.count)
    return jnp.sqrt(prior + (1.0 - prior) * moments.var)


def scale_rewards(reward: jax.Array, scale: jax.Array) -> jax.Array:
    """Scale rewards where they meet V, and clip them to +-10."""
    return jnp.clip(scale * reward, -CLIP, CLIP)


def discounted_returns(
    trace: jax.Array,
    is_first: jax.Array,
    trained: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Add up discounted rewards of decisions since the start of each life.

    Args:
        trace: `[E, S]`, the sums before the first entry, discounted to it.
        is_first: `[1 + T, E, S]` bool.
        trained: `[1 + T, E, S]` bool; other entries leave the sums as they are.
        reward: `[1 + T, E, S]`, per decision.
        discount: `[1 + T, E, S]`, from each decision to the next.

    Returns:
        The sums after the last entry, discounted to what follows, and with every entry.
    """

    def step(trace: jax.Array, row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        is_first, trained, reward, discount = row
        total = jnp.where(is_first, 0.0, trace) + reward
        return jnp.where(trained, discount * total, trace), total

    return jax.lax.scan(step, trace, (is_first, trained, reward, discount))
