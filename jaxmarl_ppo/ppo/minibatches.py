"""Decisions of a rollout, sorted by member into blocks, and blocks drawn into minibatches.

A block holds rows of one member. For a network without recurrent state it is a few rows that are
shuffled together; for a recurrent network it is a chunk of consecutive decisions of one slot.
Untrained rows are left out here, so the update pays for trainable decisions only.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_ppo.credit.decision_table import DecisionTable
from jaxmarl_ppo.ops.grouping import group_at, invert, rank_in_group
from jaxmarl_ppo.ops.packing import Packed, unpack
from jaxmarl_ppo.ops.pairing import pair_up
from jaxmarl_ppo.ops.rows import to_rows
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import Decisions, PyTree


class TrainingTable(NamedTuple):
    """Decisions before packing, with their training targets."""

    decisions: DecisionTable  # of R rows
    advantage: jax.Array  # [R]
    target: jax.Array  # [R]: of V
    trainable: jax.Array  # [R] bool: by a member that is trained, and with a known outcome


class Blocks(struct.PyTreeNode):
    """`C` blocks of `B` rows, one member's side by side; `decisions.acted` marks real rows."""

    decisions: Decisions  # [C, B]; `hidden` is [C, H]: where each block starts
    advantage: jax.Array  # [C, B]
    target: jax.Array  # [C, B]: of V
    resume: PyTree  # [C] int: see recurrence.unroll; () without memory
    resume_hidden: PyTree  # [C, H] leaves
    num_blocks: jax.Array  # [K] int: blocks of each member; the rest of C is empty
    # [C] int: whose they are, K if empty; None where in order.
    policy_index: jax.Array | None = None

    @property
    def contents(self) -> "Blocks":
        """Return the data of each block, which can be gathered along `C`."""
        return self.replace(num_blocks=(), policy_index=None)


class Selection(NamedTuple):
    """The blocks of one minibatch, per member a range of a shuffled order."""

    order: jax.Array  # [C] int: block indices
    start: jax.Array  # [K] int: first position in `order`
    stop: jax.Array  # [K] int


def pack_rows(
    table: TrainingTable,
    num_members: int,
    block_size: int,
    num_minibatches: int | jax.Array = 1,
    max_minibatches: int = 1,
) -> Blocks:
    """Pack the trainable rows of each member tightly into blocks.

    Args:
        table: `R` rows.
        num_members: `K`.
        block_size: `B`. A member with few rows fills its blocks less, so that every minibatch gets
            one.
        num_minibatches: how many minibatches there will be, `()` or `[K]`.
        max_minibatches: the most that any member can have.
    """
    trainable = table.trainable
    num_rows = trainable.shape[0]
    policy_index = table.decisions.column("policy_index")
    rank, counts = rank_in_group(policy_index, trainable, num_members)
    fill = jnp.clip(counts // num_minibatches, 1, block_size)  # [K]: rows per block
    num_blocks = -(-counts // fill)
    first_block = jnp.cumsum(num_blocks) - num_blocks
    # Cheaper than `//`; a negative rank is not wanted.
    filled = jax.lax.div(rank, fill[policy_index])
    position = (
        (first_block[policy_index] + filled) * block_size + rank - filled * fill[policy_index]
    )
    # A member that does not fill its blocks has fewer than 2 num_minibatches of them.
    capacity = -(-num_rows // block_size) + 2 * num_members * max_minibatches
    order = invert(position, trainable, capacity * block_size)
    return Blocks(
        *_gather(table, order, block_size, with_memory=False),
        resume=(),
        resume_hidden=(),
        num_blocks=num_blocks,
    )


def pack_in_place(
    table: TrainingTable, own_rows: tuple[tuple[int, ...], ...], block_size: int
) -> Blocks:
    """Cut the rows of each member into blocks in place; untrained rows stay, masked.

    This moves no row, and leaves blocks partly empty where slots wait.

    Args:
        table: `R` rows.
        own_rows: `[K, n]`, the active rows of each member; where there are fewer than slots, of a
            single one.
        block_size: `B`.
    """
    active_rows = np.concatenate(own_rows)
    rows, trained = rows_by_active_row(table, active_rows)

    def in_blocks(x: jax.Array) -> jax.Array:
        x = x.reshape(len(own_rows), -1, *x.shape[2:])
        missing = -x.shape[1] % block_size
        x = jnp.pad(x, [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)])
        return x.reshape(-1, block_size, *x.shape[2:])

    trained = in_blocks(trained)
    # Values of a masked row could reach a gradient as 0 * NaN.
    decisions, advantage, target = jax.tree.map(
        lambda x: where_rows(trained, in_blocks(x), jnp.zeros((), x.dtype)), rows
    )
    return Blocks(
        decisions.replace(acted=trained, action_mask=decisions.action_mask | ~trained[..., None]),
        advantage,
        target,
        resume=(),
        resume_hidden=(),
        num_blocks=jnp.full(len(own_rows), trained.shape[0] // len(own_rows), jnp.int32),
    )


def rows_by_active_row(
    table: TrainingTable, active_rows: np.ndarray | None = None
) -> tuple[tuple[Decisions, jax.Array, jax.Array], jax.Array]:
    """Lay the rows out by active row, in their order.

    Args:
        table: `R` rows.
        active_rows: `[L]`, indices in order; None for all. A single one where there are fewer than
            slots.

    Returns:
        Decisions without memory and `acted`, advantages and targets, `[L, ...]`; and whether they
        are trained, `[L, ...]` bool.
    """
    decisions = table.decisions
    acted, _ = both = decisions.split(table.trainable)
    num_active_rows = both[1].shape[2]
    in_order = active_rows is None or np.array_equal(active_rows, range(num_active_rows))

    def own(first: jax.Array, rest: jax.Array) -> jax.Array:
        if decisions.slot is not None:
            return jnp.concatenate([to_rows(first, 2), to_rows(rest, 3)])[None]
        # A slot with an open decision waits at the first step, so its row there is free.
        rest = rest.at[0].set(where_rows(acted, first, rest[0]))
        rest = jnp.moveaxis(rest, 2, 0)  # [M, T, E, ...]
        rest = rest if in_order else rest[active_rows]
        return rest.reshape(rest.shape[0], -1, *rest.shape[3:])

    every = decisions.open.replace(hidden=(), acted=()), decisions.new.replace(hidden=(), acted=())
    found = jax.tree.map(lambda first, rest: own(*decisions.give_axes(first, rest)), *every)
    advantage, target = (own(*decisions.split(x)) for x in (table.advantage, table.target))
    return (found, advantage, target), own(*both)


def pack_chunks(table: TrainingTable, num_members: int, chunk_length: int) -> Blocks:
    """Cut every stream, the decisions of one slot by one member, into chunks.

    The last pieces of two streams share a chunk if they fit, and the second one resumes there.

    Args:
        table: `R` rows; open ones were decided in the previous rollout.
        num_members: `K`.
        chunk_length: `B`, decisions per chunk.
    """
    decisions = table.decisions
    num_entries = decisions.grid_shape[0]
    trainable = decisions.to_grid(table.trainable).reshape(num_entries, -1)  # [1 + T, E * S]
    policy_index = decisions.to_grid(decisions.column("policy_index")).reshape(num_entries, -1)
    num_slots = trainable.shape[1]  # of all environments
    rank, counts = rank_in_group(policy_index, trainable, num_members)  # counts [E * S, K]
    # A slot with decisions of several members has a last piece for each.
    capacity = num_slots * (-(-num_entries // chunk_length) + num_members - 1)
    was_open = trainable[0, :, None] & (policy_index[0, :, None] == jnp.arange(num_members))
    streams = _place_streams(counts, was_open, chunk_length)

    def of_stream(x: jax.Array) -> jax.Array:
        return x[jnp.arange(num_slots), policy_index]

    chunk = rank // chunk_length
    is_last = chunk == of_stream(streams.num_full)
    chunk = jnp.where(is_last, of_stream(streams.last), of_stream(streams.first) + chunk)
    position = chunk * chunk_length + rank % chunk_length
    position += jnp.where(is_last, of_stream(streams.offset), 0)
    position, wanted = position.ravel(), trainable.ravel()
    if decisions.place is not None:
        position, wanted = position[decisions.place], wanted[decisions.place]
    order = invert(position, wanted, capacity * chunk_length)
    is_second = streams.offset > 0
    resume = jnp.full(capacity, chunk_length).at[jnp.where(is_second, streams.last, capacity)]
    resume = resume.set(streams.offset, mode="drop")
    # A first decision that was open ends there: its successor started from a recorded state.
    resume = jnp.where(order[::chunk_length] < num_slots, 1, resume)
    resumed = order[jnp.minimum(chunk_length * jnp.arange(capacity) + resume, order.size - 1)]
    # As in `_gather`, padding repeats a real row.
    resumed = jnp.minimum(jnp.where(resumed < wanted.size, resumed, order[0]), wanted.size - 1)
    return Blocks(
        *_gather(table, order, chunk_length),
        resume=resume,
        resume_hidden=decisions.gather_hidden(resumed),
        num_blocks=streams.num_chunks,
    )


class Streams(NamedTuple):
    """Where streams lie in chunks; those of a member are side by side."""

    num_full: jax.Array  # [E * S, K] int: full chunks
    first: jax.Array  # [E * S, K] int: the first of these
    last: jax.Array  # [E * S, K] int: the chunk of the remaining decisions
    offset: jax.Array  # [E * S, K] int: where they begin in it
    num_chunks: jax.Array  # [K] int


def _place_streams(counts: jax.Array, was_open: jax.Array, chunk_length: int) -> Streams:
    """Find chunks for streams of `counts [E * S, K]` decisions, the first perhaps `was_open`."""
    num_full, remaining = counts // chunk_length, counts % chunk_length
    # A chunk resumes in one place only.
    alone = was_open & (num_full == 0) & (remaining > 0)
    length = jnp.where(alone, chunk_length, remaining)
    pairs = jax.vmap(lambda length: pair_up(length, chunk_length))(length.T)
    num_chunks = num_full.sum(0) + pairs.num_groups
    of_member = jnp.cumsum(num_chunks) - num_chunks
    return Streams(
        num_full,
        first=of_member + jnp.cumsum(num_full, axis=0) - num_full,
        last=of_member + num_full.sum(0) + pairs.group.T,
        offset=pairs.offset.T,
        num_chunks=num_chunks,
    )


def shuffle(noise: jax.Array, blocks: Blocks) -> tuple[jax.Array, jax.Array]:
    """Draw an order of blocks: shuffled, but with each member's blocks together.

    Args:
        noise: `[C]`, uniform on [0, 1).
        blocks: to order.

    Returns:
        The order, `[C]` int, and each member's first position in it, `[K]` int.
    """
    stop = jnp.cumsum(blocks.num_blocks)
    policy_of_block = blocks.policy_index
    if policy_of_block is None:
        policy_of_block = group_at(jnp.arange(noise.size), stop)
    return jnp.argsort(policy_of_block + noise), stop - blocks.num_blocks


def select_minibatch(
    order: jax.Array,
    first: jax.Array,
    num_blocks: jax.Array,
    index: jax.Array,
    num_minibatches: jax.Array,
) -> Selection:
    """Select minibatch `index` of each member's `num_minibatches [K]`: an even share of its blocks.

    A member without such a minibatch gets an empty one.
    """

    def bound(index: jax.Array) -> jax.Array:
        return first + jnp.minimum(index, num_minibatches) * num_blocks // num_minibatches

    return Selection(order, bound(index), bound(index + 1))


def take_micro_batch(
    blocks: Blocks | Packed,
    selection: Selection,
    policy_index: jax.Array,
    index: jax.Array,
    size: int,
) -> Blocks:
    """Take `size` blocks of one member's share, micro-batch `index`; padding has not `acted`."""
    position = selection.start[policy_index] + index * size + jnp.arange(size)
    ids = selection.order[jnp.minimum(position, selection.order.shape[0] - 1)]
    if isinstance(blocks, Packed):
        taken = unpack(jax.tree.map(lambda x: x[ids], blocks))
    else:
        taken = jax.tree.map(lambda x: x[ids], blocks.contents)
    acted = taken.decisions.acted & (position < selection.stop[policy_index])[:, None]
    return taken.replace(decisions=taken.decisions.replace(acted=acted))


def _gather(
    table: TrainingTable, order: jax.Array, block_size: int, with_memory: bool = True
) -> tuple[Decisions, jax.Array, jax.Array]:
    """Lay decisions, advantages and targets out in blocks `[C, B]`.

    Memory is kept only at the start of each block, `[C, H]` leaves.
    """
    num_rows = table.advantage.shape[0]
    filled = (order < num_rows).reshape(-1, block_size)
    # Padding repeats a real row: values of a masked row could reach a gradient as 0 * NaN.
    index = jnp.minimum(jnp.where(filled, order.reshape(filled.shape), order[0]), num_rows - 1)
    hidden = table.decisions.gather_hidden(index[:, 0]) if with_memory else ()
    decisions = table.decisions.take(index).replace(hidden=hidden, acted=filled)
    return decisions, table.advantage[index], table.target[index]
