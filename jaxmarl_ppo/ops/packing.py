"""Many small arrays packed into two large ones, of words and of bytes, to be moved at once."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.types import PyTree


class Packed(struct.PyTreeNode):
    """Leaves `[N, ...]` of a tree side by side; indexing `N` indexes all of them."""

    words: jax.Array  # [N, F] uint32
    bytes: jax.Array  # [N, G] uint8
    others: tuple[jax.Array, ...]  # [N, ...]: wide ones, and those of other types
    # Of the tree: its structure, of each leaf its shape without `N`, its type, and where it is; and
    # whether axes were moved.
    like: Any = struct.field(pytree_node=False)


@dataclass(frozen=True)
class Place:
    """Place of a leaf in a row of what is packed.

    Attributes:
        kind: "words" or "bytes", the array that it is in.
        begin: its first column there.
        shape: without `N`.
        dtype: its type.
    """

    kind: str
    begin: int
    shape: tuple[int, ...]
    dtype: str

    def from_bits(self, bits: jax.Array) -> jax.Array:
        """Give what was packed its type back."""
        return _from_bits(bits, self.dtype)


def pack(tree: PyTree, max_width: float = math.inf, moved: bool = False) -> Packed:
    """Lay leaves `[N, ...]` side by side, bit by bit as they are.

    Args:
        tree: at least one leaf.
        max_width: leaves with more numbers for each of `N` stay by themselves.
        moved: whether of leaves `[N, B, ...]` the axis `B` lies behind the others.
    """
    leaves, structure = jax.tree.flatten(tree)
    if moved:
        leaves = [x if x.ndim < 3 else jnp.moveaxis(x, 1, -1) for x in leaves]
    num_rows = leaves[0].shape[0]
    words, small = [jnp.zeros((num_rows, 0), jnp.uint32)], [jnp.zeros((num_rows, 0), jnp.uint8)]
    others, like = [], []
    for leaf in leaves:
        shape, dtype = leaf.shape[1:], jnp.dtype(leaf.dtype)
        kind = _kind(dtype) if math.prod(shape) <= max_width else "others"
        like.append((shape, dtype.name, kind))
        if kind == "others":
            others.append(leaf)
        else:
            bits = _as_bits(leaf).reshape(num_rows, -1)
            (words if kind == "words" else small).append(bits)
    return Packed(
        words=jnp.concatenate(words, axis=1),
        bytes=jnp.concatenate(small, axis=1),
        others=tuple(others),
        like=(structure, tuple(like), moved),
    )


def unpack(packed: Packed) -> PyTree:
    """Undo `pack`, where `N` may have become any axes `[..., N]`."""
    structure, like, moved = packed.like
    begins = {"words": 0, "bytes": 0}
    others, leaves = iter(packed.others), []
    for shape, dtype, kind in like:
        if kind == "others":
            leaf = next(others)
        else:
            begin = begins[kind]
            begins[kind] = end = begin + math.prod(shape)
            bits = getattr(packed, kind)[..., begin:end]
            leaf = _from_bits(bits.reshape(*bits.shape[:-1], *shape), dtype)
        leaves.append(jnp.moveaxis(leaf, -1, -len(shape)) if moved and len(shape) > 1 else leaf)
    return jax.tree.unflatten(structure, leaves)


def places(packed: Packed) -> PyTree:
    """Return the tree of leaves that was packed, with the `Place` of each; axes were not moved."""
    structure, like, moved = packed.like
    assert not moved, "leaves whose axes were moved have no place of their own shape"
    begins = {"words": 0, "bytes": 0}
    found = []
    for shape, dtype, kind in like:
        assert kind in begins, "leaves that lie by themselves have no place"
        found.append(Place(kind, begins[kind], shape, dtype))
        begins[kind] += math.prod(shape)
    return jax.tree.unflatten(structure, found)


def repack(packed: Packed, words: jax.Array, small: jax.Array, length: int) -> Packed:
    """Replace what was packed of leaves `[N, B, ...]`, moved, by as much of another `N` and `B`.

    Args:
        packed: of these leaves, without others.
        words: `[N, F * B]` uint32.
        small: `[N, G * B]` uint8.
        length: the new `B`.
    """
    structure, like, moved = packed.like
    like = tuple(((*shape[:-1], length), dtype, kind) for shape, dtype, kind in like)
    return packed.replace(words=words, bytes=small, like=(structure, like, moved))


def _kind(dtype: Any) -> str:
    if dtype.kind not in "biuf":
        return "others"
    return {4: "words", 1: "bytes"}.get(dtype.itemsize, "others")


def _as_bits(leaf: jax.Array) -> jax.Array:
    if leaf.dtype == bool:
        return leaf.astype(jnp.uint8)
    return jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")


def _from_bits(bits: jax.Array, dtype: str) -> jax.Array:
    return bits != 0 if dtype == "bool" else jax.lax.bitcast_convert_type(bits, dtype)
