"""Selection of rows from one of two pytrees."""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.types import PyTree


def where_rows(mask: jax.Array, on_true: PyTree, on_false: PyTree) -> PyTree:
    """Choose each row from one of two pytrees; `mask` covers the leading axes of every leaf."""

    def choose(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)

    return jax.tree.map(choose, on_true, on_false)
