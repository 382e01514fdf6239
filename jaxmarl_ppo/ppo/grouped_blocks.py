"""Blocks of decisions, sorted by member within groups of neighbours with matrix products.

A TPU multiplies matrices fast, but reads rows of a few numbers one by one. So where policies are
drawn, rows are not gathered: a product with a matrix of zeros and ones sorts a few thousand
neighbouring decisions.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.grouping import group_at
from jaxmarl_ppo.ops.packing import pack, repack, unpack
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.ppo.minibatches import Blocks, TrainingTable, rows_by_active_row

# Blocks per member in a group: each leaves one partly empty.
BLOCKS_OF_MEMBER, MAX_BLOCKS = 5, 64
ROWS_AT_ONCE = 65536  # about so many, in whole groups
MAX_WIDTH = 256  # of an input, in numbers: wider rows are worth reading one by one


class GroupShape(NamedTuple):
    """Shape of the groups of rows."""

    num_groups: int  # of each active row; its last rows may be missing
    num_blocks: int  # that the rows of a group fill
    capacity: int  # blocks of a group, whichever members its rows belong to


def packs_in_groups(policy_group: PolicyGroup) -> bool:
    """Return whether the rows of a policy group are packed this way."""
    narrow = math.prod(policy_group.network.input_shape) <= MAX_WIDTH
    known = policy_group.own_rows is not None  # fixed members, so rows stay in place
    return (
        tuning().packs_in_place and narrow and not known and not policy_group.network.is_recurrent
    )


def group_shape(num_rows: int, block_size: int, most_members: int) -> GroupShape:
    """Choose how many rows are sorted together.

    Args:
        num_rows: of an active row.
        block_size: `B`.
        most_members: that may have rows in one active row.
    """
    blocks = -(-num_rows // block_size)
    # A power of two, as environments and steps mostly are, so that all groups are full.
    wanted = 1 << (BLOCKS_OF_MEMBER * most_members - 1).bit_length()
    size = min(MAX_BLOCKS, wanted, blocks)
    return GroupShape(-(-blocks // size), size, size + most_members - 1)


def pack_in_groups(
    table: TrainingTable, num_members: int, most_members: int, block_size: int
) -> Blocks:
    """Pack the trainable rows of each member into blocks, group by group.

    Args:
        table: `R` rows.
        num_members: `K`.
        most_members: how many of them may have rows in one active row.
        block_size: `B`.
    """
    rows, trained = rows_by_active_row(table)  # [L, T * E, ...]
    shape = group_shape(trained.shape[1], block_size, most_members)
    length = shape.num_blocks * block_size
    missing = shape.num_groups * length - trained.shape[1]

    def grouped(x: jax.Array) -> jax.Array:
        x = jax.vmap(lambda active_row: _pad(active_row, missing))(x)
        return x.reshape(-1, length, *x.shape[2:])

    rows, trained = jax.tree.map(grouped, (rows, trained))
    # As many as are sorted at once, or a multiple: a remainder would need a separate program.
    at_once = min(max(1, ROWS_AT_ONCE // length), trained.shape[0])
    rows, trained = jax.tree.map(lambda x: _pad(x, -x.shape[0] % at_once), (rows, trained))
    policy_index = rows[0].policy_index
    packed = pack((rows, trained), moved=True)
    assert not packed.others, "every field of a decision has numbers of one or four bytes"

    def sort(group: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        *bits, policy_index, trained = group
        position, owner, counts = _positions(policy_index, trained, num_members, block_size, shape)
        return *_put(bits, position, shape.capacity, block_size), owner, counts

    features = (x.reshape(x.shape[0], -1, length) for x in (packed.words, packed.bytes))
    words, small, owner, counts = jax.lax.map(
        sort, (*features, policy_index, trained), batch_size=at_once
    )
    words, small = (x.reshape(owner.size, -1) for x in (words, small))
    (decisions, advantage, target), acted = unpack(repack(packed, words, small, block_size))
    return Blocks(
        decisions.replace(acted=acted, action_mask=decisions.action_mask | ~acted[..., None]),
        advantage,
        target,
        resume=(),
        resume_hidden=(),
        num_blocks=counts.sum(0),
        policy_index=owner.ravel(),
    )


def _pad(x: jax.Array, number: int) -> jax.Array:
    """Put so many zeros behind `x`, along its first axis."""
    return jnp.pad(x, [(0, number), *[(0, 0)] * (x.ndim - 1)])


def _positions(
    policy_index: jax.Array,
    trained: jax.Array,
    num_members: int,
    block_size: int,
    shape: GroupShape,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Find the positions of the rows `[G]` of a group.

    Returns:
        The position of each, `[G]` int, -1 for none; of each block its member, `K` for none; and
        the blocks of each member, `[K]`.
    """
    mine = trained & (policy_index == jnp.arange(num_members)[:, None])  # [K, G]
    count = jnp.cumsum(mine, axis=1)
    num_blocks = -(-count[:, -1] // block_size)
    last = jnp.cumsum(num_blocks)
    first = (last - num_blocks)[:, None] * block_size
    position = jnp.where(mine, first + count, 0).sum(0) - 1  # -1 where no member has it
    return position, group_at(jnp.arange(shape.capacity), last), num_blocks


def _put(
    bits: list[jax.Array], position: jax.Array, num_blocks: int, block_size: int
) -> tuple[jax.Array, jax.Array]:
    """Put words `[F, G]` and bytes `[F, G]` at their positions, `[num_blocks, F, B]`; else 0."""
    words, small = bits
    shifts = 8 * jnp.arange(4, dtype=jnp.uint32)[:, None, None]
    parts = ((words >> shifts) & 0xFF).astype(jnp.uint8).reshape(-1, words.shape[1])
    every = jnp.concatenate([parts, small])
    places = position[:, None] == jnp.arange(num_blocks * block_size)
    # Exact: a sum of one number below 256, which bfloat16 holds.
    put = jax.lax.dot(
        every.astype(jnp.bfloat16),
        places.astype(jnp.bfloat16),
        preferred_element_type=jnp.float32,
    )
    put = jnp.moveaxis(put.reshape(-1, num_blocks, block_size), 1, 0)
    parts = put[:, : parts.shape[0]].astype(jnp.uint32)
    parts = parts.reshape(num_blocks, 4, -1, block_size) << shifts
    return parts.sum(1, dtype=jnp.uint32), put[:, 4 * words.shape[0] :].astype(jnp.uint8)
