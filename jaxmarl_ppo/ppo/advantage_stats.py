"""Statistics of advantages over each member's rows: standardisation and explained variance."""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops import running_moments
from jaxmarl_ppo.ops.rows import look_up

EPSILON = 1e-8
# Least standard deviation of advantages, relative to their mean.
LEAST_DEVIATION = 1e-4


def standardise_own(
    advantage: jax.Array,
    trainable: jax.Array,
    policy_index: jax.Array,
    num_members: int,
    axis_name: str | None = None,
) -> jax.Array:
    """Standardise advantages over each member's trainable rows; all arrays `[R]`.

    A deviation below `1e-4` of the mean is raised to it: smaller differences are rounding.
    """

    def moments(k: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = (trainable & (policy_index == k)).astype(jnp.float32)
        _, mean, var = running_moments.masked_moments(advantage, weight, axis_name)
        return mean, jnp.sqrt(var)

    mean, std = jax.vmap(moments)(jnp.arange(num_members))
    # Rows of frozen members are not trainable.
    policy_index = jnp.minimum(policy_index, num_members - 1)
    std = jnp.maximum(std + EPSILON, LEAST_DEVIATION * jnp.abs(mean))
    return (advantage - look_up(mean, policy_index)) / look_up(std, policy_index)


def explained_variance(
    target: jax.Array, error: jax.Array, own: jax.Array, axis_name: str | None = None
) -> jax.Array:
    """Compute `1 - Var(error) / Var(target)` of every member, `[K]`; 0 where nothing varies.

    Args:
        target: `[R]`, what V is trained on.
        error: `[R]`, that minus V.
        own: `[R, K]` bool, the rows of each member.
        axis_name: of the devices that rows are spread over.
    """

    def of_one(weight: jax.Array) -> jax.Array:
        _, _, target_var = running_moments.masked_moments(target, weight, axis_name)
        _, _, error_var = running_moments.masked_moments(error, weight, axis_name)
        varies = target_var > 1e-12
        return jnp.where(varies, 1.0 - error_var / jnp.where(varies, target_var, 1.0), 0.0)

    return jax.vmap(of_one, in_axes=1)(own.astype(jnp.float32))
