"""Short pieces of sequences in pairs that share a chunk of fixed length, so less is padding."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops.grouping import group_at, rank_in_group


class Pairs(NamedTuple):
    """Groups of one or two pieces."""

    group: jax.Array  # [N] int: of each piece
    offset: jax.Array  # [N] int: where it begins there
    num_groups: jax.Array  # () int


def pair_up(length: jax.Array, capacity: int) -> Pairs:
    """Put pieces into groups of at most two, whose lengths add up to at most `capacity`.

    The shortest is paired with the longest of the `m` shortest pieces, the second shortest with the
    second longest, and so on. `m` is as large as any `m` pieces up to some length allow.

    Args:
        length: `[N]` int, from 0 to `capacity`; those of length 0 are in no group.
        capacity: of a group.
    """
    # Pieces of no length come last, like those that fill a group alone.
    key = jnp.where(length == 0, capacity + 1, length)
    rank, counts = rank_in_group(key, jnp.ones_like(key, bool), capacity + 2)
    end = jnp.cumsum(counts)
    place = (end - counts)[key] + rank  # in ascending order
    ascending = group_at(jnp.arange(key.size), end)

    def fit(num: jax.Array) -> jax.Array:
        at = jnp.arange(key.size)
        total = ascending + ascending[jnp.clip(num - 1 - at, 0)]
        return jnp.where(at < num, total <= capacity, True).all()

    candidates = end[capacity // 2 : capacity]
    num_paired = jnp.where(jax.vmap(fit)(candidates), candidates, 0).max(initial=0)
    partner = num_paired - 1 - place
    pairs = (num_paired + 1) // 2
    paired = place < num_paired
    return Pairs(
        group=jnp.where(paired, jnp.minimum(place, partner), pairs + place - num_paired),
        # The longer one is first.
        offset=jnp.where(paired & (place < partner), ascending[jnp.clip(partner, 0)], 0),
        num_groups=pairs + end[capacity] - num_paired,
    )
