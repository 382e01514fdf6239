"""Sums, extremes and choices over the devices that environments are spread over.

Whatever is global about a training step passes through here: gradients, counts, moments, results,
metrics. Without an axis there is one device, and its own numbers are global already.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxmarl_envs.threefry import split
from jaxmarl_ppo.types import PyTree

Tree = TypeVar("Tree")


def all_sum(tree: Tree, axis_name: str | None) -> Tree:
    """Sums of float leaves, exchanged as one array."""
    if axis_name is None:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis_name))


def all_min(tree: Tree, axis_name: str | None) -> Tree:
    """Least values."""
    return tree if axis_name is None else jax.lax.pmin(tree, axis_name)


def all_max(tree: Tree, axis_name: str | None) -> Tree:
    """Greatest values."""
    return tree if axis_name is None else jax.lax.pmax(tree, axis_name)


def all_any(x: jax.Array, axis_name: str | None) -> jax.Array:
    """Whether a bool is True anywhere."""
    return x if axis_name is None else jax.lax.psum(x.astype(jnp.int32), axis_name) > 0


def first_of(rank: jax.Array, tree: PyTree, axis_name: str | None) -> PyTree:
    """The leaves of the device whose `rank ()` is least; of the first such device."""
    if axis_name is None:
        return tree
    first = jnp.argmin(jax.lax.all_gather(rank, axis_name))
    return jax.tree.map(lambda x: jax.lax.all_gather(x, axis_name)[first], tree)


def device_index(axis_name: str | None) -> jax.Array:
    """Which of the devices this is, `()` int."""
    if axis_name is None:
        return jnp.zeros((), jnp.int32)
    return jax.lax.axis_index(axis_name)


def split_key(key: jax.Array, num_own: int, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
    """A key that is the same on all devices, and `[num_own]` that no other device has.

    So no device explores what another does. All come from one split, since each is a program of its
    own to compile.
    """
    num_devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    keys = split(key, 1 + num_devices * num_own)
    return keys[0], keys[1:].reshape(num_devices, num_own)[device_index(axis_name)]
