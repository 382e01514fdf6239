"""Draws whose rounds are written out: the numbers of `jax.random` to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_envs.threefry import fold_in, split, unrolled

DRAWS = {
    "bits": lambda key: jax.random.bits(key, (5, 3)),
    "bits of 8": lambda key: jax.random.bits(key, (7,), jnp.uint8),
    "bits of 16": lambda key: jax.random.bits(key, (), jnp.uint16),
    "bits of 64": lambda key: jax.random.bits(key, (3,), jnp.uint64),
    "no bits": lambda key: jax.random.bits(key, (0, 2)),
    "normal": lambda key: jax.random.normal(key, (33,)),
    "gumbel": lambda key: jax.random.gumbel(key, (2, 3, 4)),
    "randint": lambda key: jax.random.randint(key, (8,), 0, 7),
    "permutation": lambda key: jax.random.permutation(key, 9),
    "split": lambda key: jax.random.key_data(jax.random.split(key, (3, 4))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 7)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_are_those_of_jax_to_the_bit(draw):
    keys = jax.random.split(jax.random.key(3), 4)
    with jax.enable_x64(draw is DRAWS["bits of 64"]):
        np.testing.assert_array_equal(draw(unrolled(keys[0])), draw(keys[0]), strict=True)
        ours = jax.jit(jax.vmap(lambda key: draw(unrolled(key))))(keys)
        np.testing.assert_array_equal(ours, jax.vmap(draw)(keys), strict=True)


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_derived_keys_are_those_of_jax_in_type_too(make):
    key = make(5)
    for ours, theirs in [
        (split(key, (2, 3)), jax.random.split(key, (2, 3))),
        (fold_in(key, 8), jax.random.fold_in(key, 8)),
    ]:
        assert ours.dtype == theirs.dtype
        assert jnp.array_equal(ours, theirs)


def test_a_draw_on_the_cpu_is_compiled_without_loops():
    def draw(key):
        return jax.random.uniform(unrolled(fold_in(split(key)[0], 3)), (9,))

    text = jax.jit(draw).lower(jax.random.key(0)).compile().as_text()
    assert jax.default_backend() != "cpu" or " while(" not in text
    with_loops = jax.jit(lambda key: jax.random.uniform(key, (9,))).lower(jax.random.key(0))
    assert jax.default_backend() != "cpu" or " while(" in with_loops.compile().as_text()


def test_other_generators_and_other_counters_are_left_alone():
    key = jax.random.key(1, impl="rbg")
    assert unrolled(key) is key
    assert jnp.array_equal(split(key), jax.random.split(key))
    key = jax.random.key(1)
    with jax.threefry_partitionable(False):
        assert unrolled(key) is key
        assert jnp.array_equal(split(key, 3), jax.random.split(key, 3))
