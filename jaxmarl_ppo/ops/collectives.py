"""Sums, extremes and choices over the devices that environments are spread over.

All global quantities of a training step pass through here: gradients, counts, moments, results,
metrics. Without an axis there is one device, and its numbers are global already.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxmarl_envs.threefry import split
from jaxmarl_ppo.types import PyTree

Tree = TypeVar("Tree")


def all_sum(tree: Tree, axis_name: str | None) -> Tree:
    """Sum float leaves over all devices, exchanged as one array."""
    if axis_name is None:
        return tree
    # Leaf by leaf, each would be a separate exchange, at which devices wait for each other.
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis_name))


def all_min(tree: Tree, axis_name: str | None) -> Tree:
    """Return the least value of every entry over all devices."""
    return tree if axis_name is None else jax.lax.pmin(tree, axis_name)


def all_max(tree: Tree, axis_name: str | None) -> Tree:
    """Return the greatest value of every entry over all devices."""
    return tree if axis_name is None else jax.lax.pmax(tree, axis_name)


def all_any(x: jax.Array, axis_name: str | None) -> jax.Array:
    """Return whether a bool is True on any device, entry by entry."""
    return x if axis_name is None else jax.lax.psum(x.astype(jnp.int32), axis_name) > 0


def first_of(rank: jax.Array, tree: PyTree, axis_name: str | None) -> PyTree:
    """Return the leaves of the device whose `rank ()` is least, the first of several such."""
    if axis_name is None:
        return tree
    # argmin takes the first of equals, so all devices choose the same one.
    first = jnp.argmin(jax.lax.all_gather(rank, axis_name))
    return jax.tree.map(lambda x: jax.lax.all_gather(x, axis_name)[first], tree)


def device_index(axis_name: str | None) -> jax.Array:
    """Return the number of this device among all of them, `()` int."""
    if axis_name is None:
        return jnp.zeros((), jnp.int32)
    return jax.lax.axis_index(axis_name)


def split_key(key: jax.Array, num_own: int, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
    """Split a key into one that all devices share and `[num_own]` that no other device has.

    So devices explore differently. All come from one split, since each split is compiled
    separately.
    """
    num_devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    keys = split(key, 1 + num_devices * num_own)
    return keys[0], keys[1:].reshape(num_devices, num_own)[device_index(axis_name)]
