"""Stacked policies act and evaluate as each would alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_ppo.machine.tuning import CPU
from jaxmarl_ppo.networks.actor_critic import LSTM
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.policies.tile_sizes import (
    MAX_TILE_ROWS,
    MIN_TILE_ROWS,
    choose_tiles,
)

K, TILE = 3, 4


def make_network(num_members=K):
    return StackedNetwork(
        LSTM(num_outputs=3, hidden_sizes=(4,), lstm_size=5),
        MaskedCategorical(3),
        (2,),
        num_members=num_members,
        normalise_observations=True,
        tile_rows=TILE,
    )


@pytest.fixture(scope="module")
def network_and_stack():
    network = make_network()
    stack = quick_jit(network.init)(jax.random.key(0))
    moments = stack.obs_moments
    mean = jnp.arange(3.0)[:, None] + moments.mean
    return network, stack.replace(obs_moments=moments.replace(mean=mean, var=moments.var * 4.0))


def random_rows(network, rng, shape, wanted_share):
    """Memory, inputs, and who decides first in a life and is wanted."""
    inputs = rng.normal(size=(*shape, 2)).astype(np.float32)
    hidden = jax.tree.map(
        lambda h: rng.normal(size=h.shape).astype(np.float32), network.initial_hidden(shape)
    )
    is_first, wanted = rng.random(shape) < 0.3, rng.random(shape) < wanted_share
    inputs[~wanted] = np.nan  # what is not wanted may be anything
    return hidden, inputs, is_first, wanted


def test_policies_start_out_different(network_and_stack):
    network, stack = network_and_stack
    kernel = stack.params["policy_head"]["kernel"]
    assert kernel.shape[0] == network.num_members == 3
    assert (kernel[0] != kernel[1]).any()
    assert (kernel[1] != kernel[2]).any()


@pytest.mark.parametrize(
    ("wanted_share", "weights"),
    [(0.5, (1, 1, 1)), (1.0, (1, 1, 1)), (1.0, (1, 0, 0)), (0.3, (0, 5, 1)), (0.0, (1, 1, 1))],
)
@pytest.mark.parametrize("together", [1, 3])
def test_every_wanted_row_is_played_by_its_own_policy(
    network_and_stack, wanted_share, weights, together
):
    network, stack = network_and_stack
    network = dataclasses.replace(network, tiles_at_once=together)
    rng = np.random.default_rng(0)
    shape = (7, 3)
    hidden, inputs, is_first, wanted = random_rows(network, rng, shape, wanted_share)
    policy = rng.choice(K, shape, p=np.array(weights) / sum(weights)).astype(np.int32)
    held, start, outputs, value = quick_jit(network.forward)(
        stack, policy, hidden, inputs, is_first, wanted
    )
    for at in np.ndindex(shape):
        old = jax.tree.map(lambda h, at=at: h[at], hidden)
        now, began = (jax.tree.map(lambda h, at=at: h[at], tree) for tree in (held, start))
        if not wanted[at]:
            jax.tree.map(np.testing.assert_array_equal, now, old)
            assert value[at] == 0.0
            np.testing.assert_array_equal(outputs[at], 0.0)
            continue
        k = policy[at]
        begin = jax.tree.map(np.zeros_like, old) if is_first[at] else old
        params = network.select(stack, k).params
        x = (inputs[at] - k) / 2.0
        moved, expected, expected_value = network.module.apply({"params": params}, begin, x)
        np.testing.assert_allclose(outputs[at], expected, atol=1e-5)
        np.testing.assert_allclose(value[at], expected_value, atol=1e-5)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), now, moved)
        jax.tree.map(np.testing.assert_array_equal, began, begin)


@pytest.mark.parametrize(
    "candidates",
    [
        # Whose policy is known, ...
        ((1,), (0,), (1,)),
        ((2,), (2,), (2,)),
        ((1,), (2,), (0,)),
        ((2,), (0,)),
        ((2,), (1,), (2,), (0,)),
        # ... one of several, and of none.
        ((0, 2), (1, 2)),
        ((0, 1, 2), (1,), (0, 2)),
        ((0, 1), (), (2,)),
    ],
)
def test_candidates_play_slots_as_if_these_were_sorted(network_and_stack, candidates):
    network, stack = network_and_stack
    rng = np.random.default_rng(1)
    shape = (5, len(candidates))
    hidden, inputs, is_first, wanted = random_rows(network, rng, shape, 0.6)
    wanted &= np.array([len(own) > 0 for own in candidates])
    policy = np.stack([rng.choice(own or (0,), 5) for own in candidates], 1).astype(np.int32)
    forward = quick_jit(network.forward, static_argnames="candidates")
    arguments = (stack, policy, hidden, inputs, is_first, wanted)
    held, start, outputs, value = forward(*arguments, candidates=candidates)
    held_, start_, outputs_, value_ = forward(*arguments)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)  # noqa: E731
    jax.tree.map(close, (held, outputs, value), (held_, outputs_, value_))
    jax.tree.map(lambda x, y: close(x[wanted], y[wanted]), start, start_)


def test_memory_is_told_from_no_memory(network_and_stack):
    network, _ = network_and_stack
    assert network.is_recurrent
    shapes = {h.shape for h in jax.tree.leaves(network.initial_hidden((2, 3)))}
    assert shapes == {(2, 3, 5)}
    assert all((h == 0).all() for h in jax.tree.leaves(network.initial_hidden((2, 3))))


@pytest.mark.parametrize(("num_rows", "num_members"), [(384, 9), (1536, 6), (384, 30), (1, 2)])
def test_tiles_hold_the_rows_of_their_policies_without_much_room(num_rows, num_members):
    size, at_once = choose_tiles(num_rows, max(num_rows // 16, 1), num_members)
    assert MIN_TILE_ROWS <= size <= MAX_TILE_ROWS
    assert size & (size - 1) == 0
    assert 1 <= at_once <= CPU.max_pass_rows // size
    if num_rows > num_members:
        rng = np.random.default_rng(1)
        counts = rng.multinomial(num_rows, np.full(num_members, 1 / num_members), 100)
        passes = -(-(-(-counts // size)).sum(1) // at_once)
        assert (passes * at_once * size).mean() < 2.0 * num_rows


def test_all_policies_take_one_pass_where_each_has_a_few_rows():
    assert choose_tiles(384, 24, 9) == (64, 9)


def test_an_accelerator_computes_all_tiles_at_once(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    size, at_once = choose_tiles(36 * 64, 24, 9)
    # A quarter of each policy's share, so that hardly any place is empty.
    assert size == 64
    assert size * at_once > 36 * 64 + 9 * size
    assert choose_tiles(9, 9, 9)[0] == MIN_TILE_ROWS
