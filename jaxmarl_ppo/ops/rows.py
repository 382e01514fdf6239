"""The order of decisions of many slots as rows `[R]`, and their fastest axis.

On a CPU or GPU rows stay in order, step after step, with an environment's slots side by side and
each row contiguous. A TPU computes on vectors of 128 numbers and pads narrower ones. So there rows
are ordered slot after slot, with environments side by side and features separate.
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.machine.tuning import tuning


def to_rows(x: jax.Array, num_axes: int) -> jax.Array:
    """Lay the leading axes of `x [..., E, S, ...]`, `num_axes` of them, out as one of rows."""
    if tuning().rows_last:
        x = jnp.moveaxis(x, num_axes - 1, 0)
    return x.reshape(-1, *x.shape[num_axes:])


def from_rows(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Undo `to_rows`: the leading axis of `x [R, ...]` becomes the axes `shape`, `(..., E, S)`.

    The last of them may be -1.
    """
    if not tuning().rows_last:
        return x.reshape(*shape, *x.shape[1:])
    x = x.reshape(shape[-1], *shape[:-1], *x.shape[1:])
    return jnp.moveaxis(x, 0, len(shape) - 1)


def look_up(x: jax.Array, index: jax.Array) -> jax.Array:
    """Look a short `x [K]` up at `index [...]`."""
    if not tuning().rows_last:
        return x[index]
    # By comparing: gathered rows would be read one by one.
    mine = index[..., None] == jnp.arange(x.size)
    return jnp.where(mine, x, jnp.zeros_like(x)).sum(-1, dtype=x.dtype)
