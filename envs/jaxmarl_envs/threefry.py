"""JAX's default random numbers, compiled on a CPU to one kernel a draw instead of a loop of many.

On CPUs JAX compiles the twenty rounds of Threefry to a loop of many kernels, which costs little for
one draw of many numbers and much where small draws are frequent. Here the rounds are written out;
the numbers are the same bit-for-bit.

>>> noise = jax.random.uniform(unrolled(key), (8,))
>>> key_first, key_second = split(key)
"""

import math
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from jaxmarl_envs.backend import backend

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_WORDS = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}


def unrolled(key: jax.Array) -> jax.Array:
    """Turn a key into one whose draws by `jax.random` have their rounds written out.

    Keys of another generator, and all keys off the CPU, come back as they are. Draw from the result
    on the spot and keep no key made from it, since its type is not that of `jax.random.key`: keys
    are made by `split` and `fold_in` below.
    """
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    if backend() != "cpu" or not partitionable:
        return key
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):  # raw words of `jax.random.PRNGKey`
        key = jax.random.wrap_key_data(key)
    if str(jax.random.key_impl(key)) != "threefry2x32":
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED)


def split(key: jax.Array, num: int | tuple[int, ...] = 2) -> jax.Array:
    """Split a key like `jax.random.split`, bit-for-bit, into keys of its type."""
    return _retyped(key, lambda key: jax.random.split(key, num))


def fold_in(key: jax.Array, data: jax.Array | int) -> jax.Array:
    """Fold data in like `jax.random.fold_in`, bit-for-bit, for a key of the type of `key`."""
    return _retyped(key, lambda key: jax.random.fold_in(key, data))


def _retyped(key: jax.Array, derive: Callable[[jax.Array], jax.Array]) -> jax.Array:
    fast = unrolled(key)
    if fast is key:
        return derive(key)
    # A barrier, lest the rounds become part of whatever draws with these keys, once for each.
    words = jax.lax.optimization_barrier(jax.random.key_data(derive(fast)))
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return words
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))


def threefry_rounds(key: tuple[Any, Any], count: tuple[Any, Any]) -> tuple[Any, Any]:
    """Hash `count` by Threefry-2x32 with 20 rounds (Salmon et al., 2011, section 3.3).

    All words are uint32, scalars or arrays that broadcast, of JAX or of NumPy.
    """
    schedule = (*key, key[0] ^ key[1] ^ _PARITY)
    left, right = count[0] + schedule[0], count[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            left = left + right
            right = (right << np.uint32(rotation)) | (right >> np.uint32(32 - rotation))
            right = right ^ left
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return left, right


_hash = jax.jit(threefry_rounds)


def _hash_places(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Hash the place of every entry of an array of `shape`, 64 bits, by `key [2]` uint32."""
    size = math.prod(shape)
    # In an exported function the size may be a symbol.
    if isinstance(size, int) and size > 2**32:
        raise ValueError(f"draws more than 2^32 numbers at once, of shape {shape}")
    low = jax.lax.iota(np.uint32, size).reshape(shape)
    return _hash((key[0], key[1]), (jnp.zeros_like(low), low))


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(_hash_places(key, shape), axis=-1)


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    high, low = _hash_places(key, shape)
    word = _WORDS[bit_width]
    if bit_width == 64:
        return (high.astype(word) << np.uint64(32)) | low.astype(word)
    return (high ^ low).astype(word)


def _fold_in(key: jax.Array, data: jax.Array | int) -> jax.Array:
    low = jnp.asarray(data, np.uint32)
    return jnp.stack(_hash((key[0], key[1]), (jnp.zeros_like(low), low)))


def _seed(seed: jax.Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


_UNROLLED: Hashable = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32_unrolled",
    tag="unrolled",
)
