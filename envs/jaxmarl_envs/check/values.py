"""Values of traced programs as NumPy arrays, keys among them.

Keys are arrays of one opaque element (`np.void`) for each key, so that all that moves elements
about moves keys too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Value = np.ndarray


def is_key(aval: Any) -> bool:
    """Return whether a traced value is an array of keys."""
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def keys_from_words(words: np.ndarray) -> Value:
    """Turn words `[..., W]` of any unsigned type into keys `[...]`."""
    words = np.asarray(words, order="C")
    dtype = np.dtype((np.void, words.dtype.itemsize * words.shape[-1]))
    return words.view(dtype)[..., 0]


def words_of_keys(keys: Value) -> np.ndarray:
    """Turn keys `[...]` into their words `[..., W]` uint32."""
    return np.asarray(keys, order="C")[..., None].view(np.uint32)
