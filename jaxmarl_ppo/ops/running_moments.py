"""Running mean and variance by group (here by policy), each over its own rows."""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops.collectives import all_sum
from jaxmarl_ppo.types import Moments

EPSILON = 1e-8
CLIP = 10.0


def init_moments(num_policies: int, shape: tuple[int, ...]) -> Moments:
    """Return initial moments `[K, *shape]`: mean 0, variance 1."""
    return Moments(
        count=jnp.zeros(num_policies),
        mean=jnp.zeros((num_policies, *shape)),
        var=jnp.ones((num_policies, *shape)),
    )


def standardise(moments: Moments, x: jax.Array) -> jax.Array:
    """Standardise `x [..., D]` by one policy's `mean [D]` and `var [D]`, clipped to +-10."""
    return jnp.clip((x - moments.mean) * jax.lax.rsqrt(moments.var + EPSILON), -CLIP, CLIP)


def update_moments(
    moments: Moments, x: jax.Array, weight: jax.Array, axis_name: str | None = None
) -> Moments:
    """Merge rows into every policy's moments (Chan et al. 1983).

    Args:
        moments: `[K, ...]`.
        x: `[R, ...]` rows.
        weight: `[R, K]`, 1 where a row is a decision of the policy, else 0.
        axis_name: of the devices that rows are spread over.
    """

    def merge(moments: Moments, weight: jax.Array) -> Moments:
        count, mean, var = masked_moments(x, weight, axis_name)
        total = jnp.maximum(moments.count + count, 1.0)
        delta = mean - moments.mean
        merged_var = moments.var * moments.count + var * count
        merged_var += delta**2 * moments.count * count / total
        return Moments(
            count=moments.count + count,
            mean=moments.mean + delta * count / total,
            # Without new rows it must stay the same bit-for-bit, and 1 before the first.
            var=jnp.where(count > 0, merged_var / total, moments.var),
        )

    return jax.vmap(merge, in_axes=(0, 1))(moments, weight)


def masked_moments(
    x: jax.Array, weight: jax.Array, axis_name: str | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute count, mean and population variance of the rows of `x [R, ...]` of `weight [R]` 1.

    Rows of weight 0 may hold anything, NaN included. Without rows: 0, 0 and 0.
    """
    weight = weight.reshape(weight.shape + (1,) * (x.ndim - 1))
    # Selected, not multiplied by the weight: 0 times NaN is NaN.
    count, total = all_sum((weight.sum(), jnp.where(weight > 0, x, 0.0).sum(0)), axis_name)
    denominator = jnp.maximum(count, 1.0)
    mean = total / denominator
    # Around the mean, in a second pass: a mean of squares minus a squared mean would cancel.
    squares = all_sum(jnp.where(weight > 0, (x - mean) ** 2, 0.0).sum(0), axis_name)
    return count, mean, squares / denominator
