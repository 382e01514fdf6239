"""The rows that a bank computes and keeps of a tick: as many as agents can act at once.

An environment that declares how few they are (`max_actors`) needs no more, whichever slots they
are. Then a tick has `M` lanes, fewer than the bank's `S` slots, and a lane holds one slot that
acts. Where everyone may act every slot has a lane of its own, and all of this is nothing.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import Decisions, PyTree


def assign_lanes(acting: jax.Array, num_lanes: int) -> jax.Array | None:
    """The slots in the lanes of a tick, `[E, M]` int: all that act, then some that do not.

    Args:
        acting: `[E, S]` bool, at most `M` of them True in each environment.
        num_lanes: `M`.

    Returns:
        None where every slot has a lane of its own.
    """
    if num_lanes == acting.shape[-1]:
        return None
    if num_lanes == 1:
        return jnp.argmax(acting, axis=-1, keepdims=True)
    return jnp.argsort(~acting, axis=-1, stable=True)[..., :num_lanes]


def take(x: PyTree, slot: jax.Array | None) -> PyTree:
    """Leaves `[E, S, ...]` at the slots in the lanes, `[E, M, ...]`."""
    if slot is None:
        return x
    envs = jnp.arange(slot.shape[0])[:, None]
    return jax.tree.map(lambda x: x[envs, slot], x)


def put(
    x: PyTree, slot: jax.Array | None, others: PyTree, where: jax.Array | None = None
) -> PyTree:
    """The inverse: leaves `[E, S, ...]` of `others`, and `x [E, M, ...]` at the slots in lanes.

    With `where [E, M]`, `x` only of the lanes where that is True.
    """
    if slot is None:
        return x if where is None else where_rows(where, x, others)
    return jax.tree.map(lambda x, y: _put_leaf(x, slot, y, where), x, others)


def _put_leaf(
    x: jax.Array, slot: jax.Array, others: jax.Array, where: jax.Array | None
) -> jax.Array:
    num_slots = others.shape[1]
    if x.ndim == slot.ndim:
        # By comparing, which becomes part of what is done with the result; a scatter would not.
        mine = slot[..., None] == jnp.arange(num_slots)  # [E, M, S]
        mine = mine if where is None else mine & where[..., None]
        placed = jnp.where(mine, x[..., None], jnp.zeros_like(x[..., None]))
        placed = placed.any(1) if x.dtype == bool else placed.sum(1, dtype=x.dtype)
        return jnp.where(mine.any(1), placed, others)
    envs = jnp.arange(slot.shape[0])[:, None]
    target = slot if where is None else jnp.where(where, slot, num_slots)
    return others.at[envs, target].set(x, mode="drop")


class Joined:
    """Two arrays of rows, one after the other, without a copy of both.

    Rows are taken out by index, as of an array: what is wide is read once, where it is packed.
    """

    def __init__(self, first: jax.Array, rest: jax.Array) -> None:
        self._first, self._rest = first, rest

    def __getitem__(self, index: jax.Array) -> jax.Array:
        num_first = self._first.shape[0]
        first = self._first[jnp.minimum(index, num_first - 1)]
        rest = self._rest[jnp.maximum(index - num_first, 0)]
        return where_rows(index < num_first, first, rest)

    def whole(self) -> jax.Array:
        """Both, copied into one array."""
        return jnp.concatenate([self._first, self._rest])


@dataclass(frozen=True, eq=False)
class Rows:
    """Decisions on one flat axis, and where each stands in a table of all slots on all ticks.

    First come the `E * S` rows that the rollout before left open, then the rollout's own
    `T * E * M`. In a table, `[1 + T, E, S]`, row 0 belongs to the former.
    """

    decisions: Decisions  # [R]; leaves with a width are `Joined`
    slot: jax.Array | None  # [T, E, M] int, from `assign_lanes`
    table_shape: tuple[int, int, int]

    @property
    def place(self) -> jax.Array | None:
        """`[R]` int: where each row stands in the flat table; None where they are in its order."""
        if self.slot is None:
            return None
        height, num_envs, num_slots = self.table_shape
        row = num_envs * jnp.arange(1, height)[:, None, None] + jnp.arange(num_envs)[:, None]
        first = jnp.arange(num_envs * num_slots)
        return jnp.concatenate([first, (num_slots * row + self.slot).ravel()])

    def whole_inputs(self) -> jax.Array:
        """What the networks were given, `[R, D]` or `[R, rows, cols, channels]`."""
        inputs: Any = self.decisions.inputs
        return inputs.whole()

    def table(self, x: jax.Array) -> jax.Array:
        """`x [R]` as a table, 0 where there is no row."""
        if self.place is None:
            return x.reshape(self.table_shape)
        size = self.table_shape[0] * self.table_shape[1] * self.table_shape[2]
        return jnp.zeros(size, x.dtype).at[self.place].set(x).reshape(self.table_shape)

    def rows(self, table: jax.Array) -> jax.Array:
        """The inverse: `[1 + T, E, S]` to `[R]`."""
        return table.ravel() if self.place is None else table.ravel()[self.place]

    def total_by_slot(self, x: jax.Array) -> jax.Array:
        """Sums of `x [R]` over the rows of each slot, `[S]`."""
        height, num_envs, num_slots = self.table_shape
        if self.slot is None:
            return x.reshape(height * num_envs, num_slots).sum(0)
        first = x[: num_envs * num_slots].reshape(num_envs, num_slots).sum(0)
        return first.at[self.slot.ravel()].add(x[num_envs * num_slots :])


def make_rows(pending: Decisions, decisions: Decisions, slot: jax.Array | None) -> Rows:
    """The decisions that were open, `[E, S]`, before those of a rollout.

    Args:
        pending: `[E, S]`.
        decisions: `[T, E, M]`.
        slot: `[T, E, M]`, from `assign_lanes`.
    """

    def join(first: jax.Array, rest: jax.Array) -> Any:
        both = Joined(first.reshape(-1, *first.shape[2:]), rest.reshape(-1, *rest.shape[3:]))
        return both if first.ndim > 2 else both.whole()

    num_envs, num_slots = pending.acted.shape
    return Rows(
        decisions=jax.tree.map(join, pending, decisions),
        slot=slot,
        table_shape=(1 + decisions.acted.shape[0], num_envs, num_slots),
    )
