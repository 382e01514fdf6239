"""Rows of a rollout, sorted by policy into blocks, and blocks drawn into minibatches.

A block holds rows of one policy. For a network without memory it is a handful of rows that are
shuffled together; for a recurrent one it is a chunk of consecutive decisions of one slot. Rows that
train nothing are left out here, so the update costs what the trainable decisions cost.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.ops.grouping import group_at, invert, rank_in_group
from jaxmarl_ppo.types import Decisions, PyTree


class TrainingRows(struct.PyTreeNode):
    """Decisions with what they are trained on; `[R]` or, in blocks, `[C, B]`."""

    decisions: Decisions  # in blocks, `hidden` is [C, H]: where each block starts
    advantage: jax.Array
    target: jax.Array


class Blocks(struct.PyTreeNode):
    """`C` blocks of `B` rows, one policy's side by side; `decisions.acted` marks real rows."""

    rows: TrainingRows  # [C, B]
    resume: jax.Array  # [C] bool: see recurrence.unroll
    resume_hidden: PyTree  # [C, H] leaves
    num_blocks: jax.Array  # [K] int: blocks of each policy, in order; the rest of C is empty


class Selection(NamedTuple):
    """The blocks of one minibatch, per policy a range of a shuffled order."""

    order: jax.Array  # [C] int: block indices
    start: jax.Array  # [K] int: first position in `order`
    stop: jax.Array  # [K] int


def pack_rows(
    rows: TrainingRows,
    trainable: jax.Array,
    num_policies: int,
    block_size: int,
    num_minibatches: int | jax.Array = 1,
    max_minibatches: int = 1,
) -> Blocks:
    """Pack the trainable rows of each policy tightly into blocks.

    Args:
        rows: `[R]` fields.
        trainable: `[R]` bool.
        num_policies: `K`.
        block_size: `B`. A policy with few rows fills its blocks less, so that there is one for
            every minibatch.
        num_minibatches: how many minibatches there will be, `()` or `[K]`.
        max_minibatches: the most that any policy can have.
    """
    num_rows = trainable.shape[0]
    policy = rows.decisions.policy
    rank, counts = rank_in_group(policy, trainable, num_policies)
    fill = jnp.clip(counts // num_minibatches, 1, block_size)  # [K]: rows per block
    num_blocks = -(-counts // fill)
    first_block = jnp.cumsum(num_blocks) - num_blocks
    filled = jax.lax.div(rank, fill[policy])  # cheaper than `//`; a negative rank is not wanted
    position = (first_block[policy] + filled) * block_size + rank - filled * fill[policy]
    # A policy that does not fill its blocks has fewer than 2 num_minibatches of them.
    capacity = -(-num_rows // block_size) + 2 * num_policies * max_minibatches
    order = invert(position, trainable, capacity * block_size)
    blocks = _gather(rows.replace(decisions=rows.decisions.replace(hidden=())), order, block_size)
    return Blocks(blocks, jnp.zeros(capacity, bool), (), num_blocks)


def pack_chunks(
    rows: TrainingRows,
    trainable: jax.Array,
    policy: jax.Array,
    num_policies: int,
    chunk_length: int,
    start_hidden: PyTree,
    place: jax.Array | None = None,
) -> Blocks:
    """Cut every stream, the decisions of one slot by one policy, into chunks.

    Args:
        rows: `[R]` fields; the first `S` were decided in the rollout before.
        trainable: `[1 + T, S]` bool, a table of all ticks of all `S = E * A` slots, of which row 0
            stands for the rollout before.
        policy: `[1 + T, S]` int, likewise.
        num_policies: `K`.
        chunk_length: `B`, decisions per chunk; the last of a stream is padded.
        start_hidden: `[S, H]` leaves, the memory held when the rollout began.
        place: `[R]` int, where each row stands in the flat table; None where they are in its order.
    """
    num_entries, num_slots = trainable.shape
    rank, counts = rank_in_group(policy, trainable, num_policies)
    stream_chunks = -(-counts // chunk_length)  # [S, K]
    by_policy = stream_chunks.T.ravel()
    first_chunk = (jnp.cumsum(by_policy) - by_policy).reshape(num_policies, num_slots)
    chunk = first_chunk[policy, jnp.arange(num_slots)] + rank // chunk_length
    position = chunk * chunk_length + rank % chunk_length
    # A slot with decisions of several policies pads one chunk for each.
    capacity = num_slots * (-(-num_entries // chunk_length) + num_policies - 1)
    position, wanted = position.ravel(), trainable.ravel()
    if place is not None:
        position, wanted = position[place], wanted[place]
    order = invert(position, wanted, capacity * chunk_length)
    first_row = order[::chunk_length]
    return Blocks(
        rows=_gather(rows, order, chunk_length),
        resume=first_row < num_slots,
        resume_hidden=jax.tree.map(lambda x: x[first_row % num_slots], start_hidden),
        num_blocks=stream_chunks.sum(0),
    )


def shuffle(noise: jax.Array, blocks: Blocks) -> tuple[jax.Array, jax.Array]:
    """A random order of blocks within each policy, and each policy's first position in it.

    Args:
        noise: `[C]`, uniform on [0, 1).
        blocks: what to put in order.
    """
    stop = jnp.cumsum(blocks.num_blocks)
    block_policy = group_at(jnp.arange(noise.size), stop)
    return jnp.argsort(block_policy + noise), stop - blocks.num_blocks


def select_minibatch(
    order: jax.Array,
    first: jax.Array,
    num_blocks: jax.Array,
    index: jax.Array,
    num_minibatches: jax.Array,
) -> Selection:
    """Minibatch `index` of each policy's `num_minibatches [K]`: an even share of its blocks.

    A policy that has no such minibatch gets an empty one.
    """

    def bound(index: jax.Array) -> jax.Array:
        return first + jnp.minimum(index, num_minibatches) * num_blocks // num_minibatches

    return Selection(order, bound(index), bound(index + 1))


def take_micro_batch(
    blocks: Blocks, selection: Selection, policy: jax.Array, index: jax.Array, size: int
) -> Blocks:
    """`size` blocks of one policy's share, from its `index`-th on; padded by rows not `acted`."""
    position = selection.start[policy] + index * size + jnp.arange(size)
    ids = selection.order[jnp.minimum(position, selection.order.shape[0] - 1)]
    taken = blocks.replace(num_blocks=())
    taken = jax.tree.map(lambda x: x[ids], taken)
    decisions = taken.rows.decisions
    acted = decisions.acted & (position < selection.stop[policy])[:, None]
    return taken.replace(rows=taken.rows.replace(decisions=decisions.replace(acted=acted)))


def _gather(rows: TrainingRows, order: jax.Array, block_size: int) -> TrainingRows:
    """Rows `[R]` in blocks, `[C, B]`; of memory only what each block starts from, `[C]`."""
    num_rows = rows.advantage.shape[0]
    filled = (order < num_rows).reshape(-1, block_size)
    # Padding repeats a real row: what a sleeping one holds could reach a gradient, as 0 * NaN.
    index = jnp.minimum(jnp.where(filled, order.reshape(filled.shape), order[0]), num_rows - 1)
    hidden = jax.tree.map(lambda x: x[index[:, 0]], rows.decisions.hidden)
    rows = rows.replace(decisions=rows.decisions.replace(hidden=()))
    packed = jax.tree.map(lambda x: x[index], rows)
    return packed.replace(decisions=packed.decisions.replace(hidden=hidden, acted=filled))
