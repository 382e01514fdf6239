"""Blocks that are sorted within groups: every row once, bit by bit, among its own member's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import TrainingRows, training_table

from jaxmarl_ppo.ppo import grouped_blocks, minibatches
from jaxmarl_ppo.types import Decisions

K = 3


def random_table(rng, num_rows, members):
    """Rows of `[1 + T, 1]`, each told by its `target`; some of their bits are no numbers."""
    shape = (num_rows, 1)
    number = np.arange(num_rows, dtype=np.float32)[:, None]
    bits = rng.integers(0, 2**32, (num_rows, 1, 2), dtype=np.uint32)
    decisions = Decisions(
        inputs=bits.view(np.float32),
        action_mask=rng.random((num_rows, 1, 3)) < 0.5,
        action=rng.integers(-(2**31), 2**31, shape, dtype=np.int32),
        log_prob=-number,
        value=number,
        hidden=(),
        is_first=rng.random(shape) < 0.5,
        acted=np.ones(shape, bool),
        policy_index=rng.choice(members, shape).astype(np.int32),
    )
    trainable = rng.random(shape) < 0.7
    trainable[0] = False  # its place is that of the first step
    return TrainingRows(decisions, advantage=2 * number, target=number), trainable


@pytest.mark.parametrize("members", [(0, 1, 2), (1,), (0, 2)])
@pytest.mark.parametrize(("num_rows", "block_size"), [(2, 4), (90, 1), (90, 4), (1000, 32)])
def test_every_row_is_in_one_block_of_its_member(monkeypatch, members, num_rows, block_size):
    monkeypatch.setattr(grouped_blocks, "BLOCKS_OF_MEMBER", 2)
    monkeypatch.setattr(grouped_blocks, "ROWS_AT_ONCE", 3 * block_size * 8)
    rows, trainable = random_table(np.random.default_rng(num_rows), num_rows, members)

    @jax.jit
    def pack(rows):
        table = training_table(rows, trainable)
        return grouped_blocks.pack_in_groups(table, K, len(members), block_size)

    blocks = jax.device_get(pack(rows))
    acted, target = blocks.decisions.acted, blocks.target
    for k in range(K):
        wanted = np.nonzero((trainable & (rows.decisions.policy_index == k)).ravel())[0]
        mine = blocks.policy_index == k
        np.testing.assert_array_equal(np.sort(target[mine][acted[mine]]), wanted)
        assert mine.sum() == blocks.num_blocks[k]
        # At most one of a group is partly empty, and none is quite.
        assert acted[mine].any(1).all()
    assert acted.sum() == trainable.sum()
    assert blocks.decisions.action_mask[~acted].all()
    number = target[acted].astype(int)
    for name in (
        "inputs",
        "action_mask",
        "action",
        "log_prob",
        "value",
        "is_first",
        "policy_index",
    ):
        found, sent = (getattr(x, name) for x in (blocks.decisions, rows.decisions))
        np.testing.assert_array_equal(
            found[acted].view(np.uint8), np.ascontiguousarray(sent[number, 0]).view(np.uint8)
        )
    np.testing.assert_array_equal(blocks.advantage[acted], 2.0 * number)


def test_a_shuffle_keeps_the_blocks_of_a_member_together():
    rows, trainable = random_table(np.random.default_rng(0), 300, (0, 1, 2))
    blocks = grouped_blocks.pack_in_groups(training_table(rows, trainable), K, K, 4)
    order, first = minibatches.shuffle(
        jax.random.uniform(jax.random.key(0), blocks.target.shape[:1]), blocks
    )
    for k in range(K):
        own = order[first[k] : first[k] + blocks.num_blocks[k]]
        np.testing.assert_array_equal(blocks.policy_index[own], k)
        assert (jnp.diff(own) < 0).any()


@pytest.mark.parametrize("most_members", [1, 3, 9, 100])
@pytest.mark.parametrize("num_rows", [1, 700, 1 << 20])
def test_a_group_has_room_for_whoever_its_rows_belong_to(most_members, num_rows):
    size = 128
    shape = grouped_blocks.group_shape(num_rows, size, most_members)
    assert shape.num_groups * shape.num_blocks * size >= num_rows
    rng = np.random.default_rng(0)
    for concentration in (0.01, 0.3, 10.0):
        shares = rng.dirichlet(np.full(most_members, concentration))
        counts = rng.multinomial(shape.num_blocks * size, shares)
        assert (-(-counts // size)).sum() <= shape.capacity
