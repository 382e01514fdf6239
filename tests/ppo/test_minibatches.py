"""Packing of rows into blocks, and drawing blocks into minibatches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import TrainingRows, training_table

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.credit.decision_table import tabulate
from jaxmarl_ppo.learner import sizes
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.ops.rows import to_rows
from jaxmarl_ppo.ppo import minibatches
from jaxmarl_ppo.ppo.minibatches import TrainingTable
from jaxmarl_ppo.types import Decisions

K = 3


def make_rows(shape, policy_index, hidden=()):
    """Rows whose `target` is their own index; what is not trainable holds NaN (see `spoil`)."""
    index = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    decisions = Decisions(
        inputs=index[..., None],
        action_mask=np.ones((*shape, 2), bool),
        action=np.zeros(shape, np.int32),
        log_prob=index,
        value=index,
        hidden=hidden,
        is_first=np.zeros(shape, bool),
        acted=np.ones(shape, bool),
        policy_index=policy_index,
    )
    return TrainingRows(decisions, advantage=index, target=index)


@functools.partial(jax.jit, static_argnums=(1, 2))
def epoch(blocks, num_minibatches, size, key):
    """Row indices and policies of all micro-batches, `[minibatch, policy, micro, C * B]`."""
    noise = jax.random.uniform(key, blocks.target.shape[:1])
    order, first = minibatches.shuffle(noise, blocks)

    def one(index, k, micro):
        selection = minibatches.select_minibatch(
            order, first, blocks.num_blocks, index, jnp.full(K, num_minibatches)
        )
        taken = minibatches.take_micro_batch(blocks, selection, k, micro, size)
        return (
            jnp.where(taken.decisions.acted, taken.target, -1.0).ravel(),
            jnp.where(taken.decisions.acted, taken.decisions.policy_index, -1).ravel(),
        )

    num_micro = -(-blocks.target.shape[0] // size)
    grid = jnp.meshgrid(
        jnp.arange(num_minibatches), jnp.arange(K), jnp.arange(num_micro), indexing="ij"
    )
    one_by_one = jax.vmap(jax.vmap(jax.vmap(one)))
    return one_by_one(*grid)


def check_partition(blocks, trainable, policy_index, num_minibatches, size, key):
    """Every trainable row in exactly one minibatch, with its own policy; none else."""
    rows, policies = jax.device_get(epoch(blocks, num_minibatches, size, key))
    taken = rows[rows >= 0].astype(int)
    np.testing.assert_array_equal(np.sort(taken), np.nonzero(trainable.ravel())[0])
    for k in range(K):
        own = policies[:, k]
        assert np.isin(own, (-1, k)).all()
        np.testing.assert_array_equal(
            np.sort(rows[:, k][rows[:, k] >= 0]),
            np.nonzero(trainable.ravel() & (policy_index.ravel() == k))[0],
        )
    return rows


@pytest.mark.parametrize("block_size", [1, 4, 32])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.6, 1.0])
def test_rows_are_partitioned_every_epoch(block_size, density):
    rng = np.random.default_rng(block_size)
    shape = (50, 3)
    policy_index = rng.choice(K, shape, p=[0.7, 0.05, 0.25]).astype(np.int32)
    trainable = rng.random(shape) < density

    @jax.jit
    def pack(rows):
        return minibatches.pack_rows(training_table(rows, trainable), K, block_size)

    blocks = pack(make_rows(shape, policy_index))
    for size in (1, 5):
        seen = [
            check_partition(blocks, trainable, policy_index, 3, size, jax.random.key(seed))
            for seed in (0, 1)
        ]
        if density > 0.5 and block_size < 32:
            assert (seen[0] != seen[1]).any()


def test_minibatches_are_even():
    shape = (60, 4)
    policy_index = (np.arange(240) % 4 == 0).astype(np.int32).reshape(shape)
    table = training_table(make_rows(shape, policy_index), np.ones(shape, bool))
    blocks = minibatches.pack_rows(table, K, 2)
    rows, _ = jax.device_get(epoch(blocks, 4, 3, jax.random.key(0)))
    counts = (rows >= 0).sum((2, 3))
    assert (abs(counts[:, 0] - 45) <= 2).all()
    assert (abs(counts[:, 1] - 15) <= 2).all()
    assert (counts[:, 2] == 0).all()


@pytest.mark.parametrize("chunk_length", [1, 3, 5, 40])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_chunks_are_contiguous_decisions_of_one_stream(chunk_length, density):
    rng = np.random.default_rng(chunk_length)
    shape = (11, 9)
    policy_index = rng.choice(K, shape, p=[0.6, 0.1, 0.3]).astype(np.int32)
    trainable = rng.random(shape) < density
    index = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    hidden = (np.stack([index, index], -1),)

    @jax.jit
    def pack(rows):
        table = training_table(rows, trainable)
        return minibatches.pack_chunks(table, K, chunk_length)

    blocks = pack(make_rows(shape, policy_index, hidden))
    check_partition(blocks, trainable, policy_index, 2, 3, jax.random.key(0))

    expected = []
    for k in range(K):
        for slot in range(shape[1]):
            stream = np.nonzero(trainable[:, slot] & (policy_index[:, slot] == k))[0]
            for at in range(0, len(stream), chunk_length):
                expected.append([int(index[t, slot]) for t in stream[at : at + chunk_length]])
    acted, target = jax.device_get((blocks.decisions.acted, blocks.target))
    resume, resumed, started = jax.device_get(
        (blocks.resume, blocks.resume_hidden[0][:, 0], blocks.decisions.hidden[0][:, 0])
    )
    found = []
    for c in range(int(blocks.num_blocks.sum())):
        length = int(acted[c].sum())
        assert acted[c, :length].all()  # padding only at the tail
        rows = target[c, :length].astype(int).tolist()
        assert started[c] == rows[0]
        # Of two pieces, the second one resumes from its own recorded state.
        pieces = [rows] if rows in expected else [rows[: resume[c]], rows[resume[c] :]]
        was_open = rows[0] < shape[1]
        assert resume[c] == (1 if was_open else len(pieces[0]) if pieces[1:] else chunk_length)
        if resume[c] < length:
            assert resumed[c] == rows[resume[c]]
        assert not (was_open and pieces[1:])
        found += pieces
    assert sorted(found) == sorted(expected)
    assert not acted[int(blocks.num_blocks.sum()) :].any()


@pytest.mark.rare_cases("False")
@pytest.mark.parametrize("recurrent", [False, True])
def test_what_sleeping_rows_hold_reaches_no_minibatch(recurrent):
    rng = np.random.default_rng(0)
    shape = (8, 6)
    policy_index = rng.integers(0, K, shape).astype(np.int32)
    trainable = rng.random(shape) < 0.4
    trainable[-1, -1] = False
    hidden = (rng.normal(size=(*shape, 2)),) if recurrent else ()
    rows = make_rows(shape, policy_index, hidden)

    def spoil(x):
        if not np.issubdtype(x.dtype, np.floating):
            return x
        return np.where(trainable.reshape(shape + (1,) * (x.ndim - 2)), x, np.nan)

    rows = jax.tree.map(spoil, rows)
    table = training_table(rows, trainable)
    if recurrent:
        blocks = minibatches.pack_chunks(table, K, 3)
    else:
        blocks = minibatches.pack_rows(table, K, 4)
    selection = minibatches.Selection(
        jnp.arange(blocks.target.shape[0]),
        jnp.cumsum(blocks.num_blocks) - blocks.num_blocks,
        jnp.cumsum(blocks.num_blocks),
    )
    for k in range(K):
        taken = minibatches.take_micro_batch(blocks, selection, jnp.array(k), jnp.array(0), 50)
        # Not even behind the mask: 0 * NaN is NaN in a gradient.
        for leaf in jax.tree.leaves((taken.decisions, taken.advantage, taken.target)):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                assert jnp.isfinite(leaf).all()


@pytest.mark.parametrize("blocks_per_minibatch", [2.5, 11.0, 17.0, 33.0, 42.7, 128.0])
@pytest.mark.parametrize("spread", [0.0, 0.06, 0.2])
def test_micro_batches_are_as_large_as_is_cheapest(blocks_per_minibatch, spread):
    config = TrainConfig(micro_batch_rows=512)
    chosen = sizes.micro_batch_blocks(config, False, 32, blocks_per_minibatch, spread)
    assert 1 <= chosen <= 16
    rng = np.random.default_rng(0)
    drawn = np.ceil(blocks_per_minibatch * (1 + spread * rng.standard_normal(4000)))

    def rows(size):
        num_gradients = np.ceil(np.maximum(drawn, 0) / size).mean()
        return num_gradients * (32 * size + sizes.ROWS_PER_GRADIENT)

    assert rows(chosen) <= 1.03 * min(map(rows, range(1, 17)))


def test_draws_spread_by_the_lives_that_draw():
    env, env_params = jaxmarl_envs.make("crypto")

    def spread(num_envs, mapping):
        policy = PolicySpec(network=MLP(hidden_sizes=(8,)))
        config = TrainConfig(
            num_envs=num_envs, num_steps=25, mapping=mapping, default_policy=policy, num_devices=1
        )
        players = make_learner(env, env_params, config).players
        return sizes.spread_of_draws(
            players, players.policy_groups[0], len(players.policies), num_envs
        )

    assert spread(8, "per_agent") == 0.0
    # Of nine policies each is drawn for a ninth of 3 x 8 lives: binomial counts.
    np.testing.assert_allclose(spread(8, "ensemble:3"), np.sqrt(24 * 8 / 81) / (24 / 9))


@pytest.mark.parametrize("own_rows", [((2, 4), (0, 3)), ((0,), (1,)), ((1, 0, 2),)])
@pytest.mark.parametrize("block_size", [1, 4, 128])
def test_rows_that_stay_in_place_are_partitioned_too(monkeypatch, own_rows, block_size):
    rng = np.random.default_rng(block_size)
    num_steps, num_envs, num_slots = 6, 7, 5
    policy_index = np.full(num_slots, 2)
    for k, active_rows in enumerate(own_rows):
        policy_index[list(active_rows)] = k
    shape = (1 + num_steps, num_envs, num_slots)
    trainable = (rng.random(shape) < 0.6) & (policy_index < len(own_rows))
    # A decision was left open where nobody acts at the first step.
    trainable[0] &= ~trainable[1]
    rows = make_rows(shape, np.broadcast_to(policy_index, shape).astype(np.int32))

    def spoil(x):
        spoilt = np.array(x)
        spoilt[~trainable] = np.nan if spoilt.dtype.kind == "f" else False
        return jnp.array(spoilt)

    rows = jax.tree.map(spoil, rows)
    monkeypatch.setattr(tuning, "CPU", dataclasses.replace(tuning.CPU, rows_last=True))

    def flat(x):
        return jnp.concatenate([to_rows(x[0], 2), to_rows(x[1:], 3)])

    @jax.jit
    def pack(rows):
        opened, new = (
            jax.tree.map(cut, rows.decisions) for cut in (lambda x: x[0], lambda x: x[1:])
        )
        both = map(flat, (rows.advantage, rows.target, jnp.asarray(trainable)))
        table = TrainingTable(tabulate(opened, new), *both)
        return minibatches.pack_in_place(table, own_rows, block_size)

    blocks = pack(rows)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(blocks))
    acted, target = jax.device_get((blocks.decisions.acted, blocks.target))
    end = np.cumsum(blocks.num_blocks)
    for k in range(len(own_rows)):
        mine = slice(end[k] - blocks.num_blocks[k], end[k])
        np.testing.assert_array_equal(
            np.sort(target[mine][acted[mine]]),
            np.nonzero((trainable & (policy_index == k)).ravel())[0],
        )
    assert acted.sum() == trainable.sum()
    np.testing.assert_array_equal(blocks.decisions.inputs[..., 0], np.where(acted, target, 0))
    assert blocks.decisions.action_mask[~acted].all()
