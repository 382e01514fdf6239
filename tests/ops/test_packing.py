"""What is laid side by side comes apart again to the bit, and a scan is the same either way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.ops.packing import pack, unpack
from jaxmarl_ppo.ops.steps import MAX_WIDTH, scan_steps

N = 5


def tree(shape=(N,)):
    """Leaves of all types, among them NaN, -0.0 and what is not of one or four bytes."""
    rng = np.random.default_rng(0)
    odd = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    return {
        "floats": jnp.asarray(rng.choice(odd, (*shape, 3, 2))),
        "ints": jnp.asarray(rng.integers(-9, 9, shape, np.int32)),
        "bools": jnp.asarray(rng.random((*shape, 4)) < 0.5),
        "codes": jnp.asarray(rng.integers(0, 255, (*shape, 2), np.uint8)),
        "halves": jnp.asarray(rng.random((*shape, 2)), jnp.bfloat16),
        "wide": jnp.asarray(rng.random((*shape, MAX_WIDTH + 1)), jnp.float32),
        "nothing": (),
    }


def assert_same(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_what_is_packed_comes_apart_again():
    packed = pack(tree(), MAX_WIDTH)
    assert packed.words.shape == (N, 3 * 2 + 1)
    assert packed.bytes.shape == (N, 4 + 2)
    assert [x.shape[1:] for x in packed.others] == [(2,), (MAX_WIDTH + 1,)]
    assert_same(unpack(packed), tree())
    assert pack(tree()).words.shape == (N, 3 * 2 + 1 + MAX_WIDTH + 1)


def test_what_is_taken_of_all_is_taken_of_each():
    ids = jnp.array([[3, 0, 3]])
    taken = unpack(jax.tree.map(lambda x: x[ids], pack(tree())))
    assert_same(taken, jax.tree.map(lambda x: x[ids], tree()))


def test_an_axis_that_is_moved_comes_back():
    several = tree((N, 7))
    packed = pack(several, moved=True)
    ints = packed.words[:, 3 * 2 * 7 :][:, :7]
    np.testing.assert_array_equal(ints, np.asarray(several["ints"]).view(np.uint32))
    floats = packed.words[:, :7]  # the first feature of all seven
    np.testing.assert_array_equal(floats, np.asarray(several["floats"])[..., 0, 0].view(np.uint32))
    assert_same(unpack(packed), several)
    ids = jnp.array([[3, 0, 3]])
    taken = unpack(jax.tree.map(lambda x: x[ids], packed))
    assert_same(taken, jax.tree.map(lambda x: x[ids], several))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_the_same_either_way(monkeypatch, reverse):
    def body(carry, entry):
        carry = jax.tree.map(lambda x, y: x + y, carry, {"sum": entry["floats"][..., 0]})
        return carry, {"seen": entry, "sum": carry["sum"]}

    carry, entries = {"sum": jnp.zeros((N, 3))}, tree((7, N))
    results = []
    for packs in (False, True):
        chosen = dataclasses.replace(tuning.CPU, packs=packs)
        monkeypatch.setattr(tuning, "CPU", chosen)
        scan = jax.jit(lambda *args: scan_steps(body, *args, reverse=reverse))
        results.append(scan(carry, entries))
    assert_same(results[1], results[0])
