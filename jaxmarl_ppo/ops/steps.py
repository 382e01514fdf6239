"""Scans over steps whose results are many small arrays, `[E, ...]` each.

Rows of three numbers, as `[E, A]` may have, fill a fraction of an accelerator's vector, so there
`E` is the fastest axis of narrow arrays. On a GPU every array written is a separate kernel, so
there results are written side by side. On a TPU they are not: separating them again would hold all
of them twice.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.packing import Packed, pack, unpack
from jaxmarl_ppo.types import PyTree

Carry = TypeVar("Carry")
# Per environment, in numbers: a wider array is worth a kernel, but not a copy.
MAX_WIDTH = 64


def scan_steps(
    body: Callable[[Carry, Any], tuple[Carry, PyTree]],
    carry: Carry,
    entries: PyTree,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Carry, PyTree]:
    """Scan over steps, as `jax.lax.scan`.

    Args:
        body: takes the carry and the entries of a step; returns the new carry and the results of
            the step, `[E, ...]` leaves.
        carry: `[E, ...]` leaves.
        entries: `[T, ...]` leaves.
        reverse: from the last step to the first.
        unroll: steps within an iteration of the compiled loop, a divisor of `T`.

    Returns:
        The final carry, and results `[T, E, ...]`.
    """
    if not tuning().packs:
        return jax.lax.scan(body, carry, entries, reverse=reverse, unroll=unroll)

    apart = tuning().rows_last

    def store(carry: Carry, entry: Any) -> tuple[Carry, PyTree]:
        carry, results = body(carry, entry)
        return carry, _narrow_envs_last(results) if apart else _side_by_side(results)

    def several(carry: Carry, entries: PyTree) -> tuple[Carry, PyTree]:
        carry = _narrow_envs_last(carry)
        carry, stored = jax.lax.scan(store, carry, entries, reverse=reverse, unroll=True)
        # Elsewhere a second constraint, beside the initial one, costs another copy.
        return _narrow_envs_last(carry) if apart else carry, stored

    num_steps = jax.tree.leaves(entries)[0].shape[0]
    entries = jax.tree.map(lambda x: x.reshape(-1, unroll, *x.shape[1:]), entries)
    carry, stored = jax.lax.scan(several, carry, entries, reverse=reverse)
    stored = jax.tree.map(lambda x: x.reshape(num_steps, *x.shape[2:]), stored)
    return carry, stored if apart else unpack(stored)


def _side_by_side(results: PyTree) -> Packed:
    packed = pack(results, MAX_WIDTH)
    return packed.replace(words=_envs_last(packed.words), bytes=_envs_last(packed.bytes))


def _narrow_envs_last(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x if math.prod(x.shape[1:]) > MAX_WIDTH else _envs_last(x), tree)


def _envs_last(x: jax.Array) -> jax.Array:
    """Lay `x [E, ...]` out in memory so that `E` is the fastest axis; its shape stays."""
    if x.ndim < 2 or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    return with_layout_constraint(x, Layout(major_to_minor=(*range(1, x.ndim), 0)))
