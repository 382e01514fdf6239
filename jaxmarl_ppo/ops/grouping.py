"""Rows sorted by group without a sort: a cumulative count and a scatter."""

import jax
import jax.numpy as jnp


def rank_in_group(
    group: jax.Array, wanted: jax.Array, num_groups: int
) -> tuple[jax.Array, jax.Array]:
    """Count the wanted rows of its own group before each row, along the leading axis.

    Args:
        group: `[R, ...]` int, below `num_groups` wherever a row is wanted.
        wanted: `[R, ...]` bool.
        num_groups: `G`.

    Returns:
        The ranks `[R, ...]` and the wanted rows of each group `[..., G]`.
    """
    mine = wanted[..., None] & (group[..., None] == jnp.arange(num_groups))
    count = jnp.cumsum(mine, axis=0)
    # Rows that are not wanted may be of no group at all.
    own = jnp.minimum(group, num_groups - 1)[..., None]
    # Less the row itself, which the sum includes.
    rank = jnp.take_along_axis(count, own, axis=-1)[..., 0] - 1
    return rank, count[-1]


def group_at(position: jax.Array, end: jax.Array) -> jax.Array:
    """Find the group that each position falls into, where groups follow each other.

    Args:
        position: `[...]` int.
        end: `[G]` int, ascending: one past the last position of each group.

    Returns:
        `[...]` int, `G` past the last group.
    """
    # By comparing with all, since there are few groups and a binary search would be a loop.
    return jnp.searchsorted(end, position, side="right", method="compare_all")


def invert(position: jax.Array, wanted: jax.Array, size: int) -> jax.Array:
    """Find the row at each of `size` positions, or one past the last row where there is none.

    Args:
        position: `[R]` int, distinct wherever a row is wanted.
        wanted: `[R]` bool.
        size: number of positions.

    Returns:
        `[size]` int.
    """
    num_rows = position.shape[0]
    # One past the last position, where the scatter drops it.
    target = jnp.where(wanted, position, size)
    empty = jnp.full(size, num_rows, jnp.int32)
    return empty.at[target].set(jnp.arange(num_rows, dtype=jnp.int32), mode="drop")
