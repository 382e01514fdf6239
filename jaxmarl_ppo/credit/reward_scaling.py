"""Rewards divided by the spread of the discounted returns that they add up to.

So a value function has targets of about one, whatever an environment pays (Engstrom et al. 2020).
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.types import Moments

CLIP = 10.0
# Decisions of variance 1 that a policy's returns begin with.
PRIOR_COUNT = 10.0


def return_deviation(moments: Moments) -> jax.Array:
    """Estimate the standard deviation of returns, which rewards are divided by, `[K]`.

    `sqrt((n0 + n var) / (n0 + n))` after `n` decisions: `n0 = 10` of variance 1 are taken to have
    been seen before. Rewards stay about as they are while few returns are known or none has
    differed from the others, where the plain variance is 0 and would blow up the next reward. Few
    enough are assumed that after a million decisions returns may still be as small as 0.003.
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
