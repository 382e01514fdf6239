"""Discounted returns of decisions, by whose spread rewards can be scaled."""

import jax
import jax.numpy as jnp


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
