"""Active rows: the rows per step that a policy group computes and keeps.

There are as many as agents can act at once, in any slots. If an environment declares this number
(`max_actors`), a step has `M` active rows, fewer than the group's `S` slots; each holds one acting
slot. Where all agents may act, every slot has its own row, and active rows make no difference.
"""

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import PyTree


def assign_rows(acting: jax.Array, num_active_rows: int) -> jax.Array | None:
    """Choose the slots in a step's active rows, `[E, M]` int: all that act, then some that do not.

    Args:
        acting: `[E, S]` bool, at most `M` of them True in each environment.
        num_active_rows: `M`.

    Returns:
        None where every slot has an active row of its own.
    """
    if num_active_rows == acting.shape[-1]:
        return None
    if num_active_rows == 1:
        # The same slot as below, without a sort.
        return jnp.argmax(acting, axis=-1, keepdims=True)
    return jnp.argsort(~acting, axis=-1, stable=True)[..., :num_active_rows]


def take(x: PyTree, slot: jax.Array | None) -> PyTree:
    """Take leaves `[E, S, ...]` at the slots in the active rows, `[E, M, ...]`."""
    if slot is None:
        return x
    envs = jnp.arange(slot.shape[0])[:, None]
    return jax.tree.map(lambda x: x[envs, slot], x)


def put(
    x: PyTree, slot: jax.Array | None, others: PyTree, where: jax.Array | None = None
) -> PyTree:
    """Put `x [E, M, ...]` at the slots in active rows into leaves `[E, S, ...]` of `others`.

    If `where [E, M]` is given, only active rows in which it is True are put.
    """
    if slot is None:
        return x if where is None else where_rows(where, x, others)
    return jax.tree.map(lambda x, y: _put_leaf(x, slot, y, where), x, others)


def _put_leaf(
    x: jax.Array, slot: jax.Array, others: jax.Array, where: jax.Array | None
) -> jax.Array:
    num_slots = others.shape[1]
    if x.ndim == slot.ndim:
        # By comparing, which the compiler fuses with the use of the result, unlike a scatter.
        mine = slot[..., None] == jnp.arange(num_slots)  # [E, M, S]
        mine = mine if where is None else mine & where[..., None]
        placed = jnp.where(mine, x[..., None], jnp.zeros_like(x[..., None]))
        placed = placed.any(1) if x.dtype == bool else placed.sum(1, dtype=x.dtype)
        return jnp.where(mine.any(1), placed, others)
    envs = jnp.arange(slot.shape[0])[:, None]
    target = slot if where is None else jnp.where(where, slot, num_slots)
    return others.at[envs, target].set(x, mode="drop")
