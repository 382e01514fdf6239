"""The decisions of a bank on one flat axis: those that were open, then the rollout's own."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import Decisions, PyTree


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """Decisions in rows `[R]`, and where each stands in a grid of all slots on all ticks.

    First come the `E * S` rows that the rollout before left open, then the rollout's own
    `T * E * M`. In the grid, `[1 + T, E, S]`, tick 0 belongs to the former.

    Wide columns are never copied into one array: their rows are read once, where they are packed.
    """

    open: Decisions  # [E * S]
    new: Decisions  # [T * E * M]
    slot: jax.Array | None  # [T, E, M] int, from `assign_lanes`
    grid_shape: tuple[int, int, int]

    def column(self, name: str) -> jax.Array:
        """Copy one field of all decisions into one array, `[R, ...]`."""
        return jnp.concatenate([getattr(self.open, name), getattr(self.new, name)])

    def take(self, index: jax.Array) -> Decisions:
        """Take the decisions of some rows, `index [...]` int, without their memory."""
        new, old = self.new.replace(hidden=()), self.open.replace(hidden=())
        return jax.tree.map(lambda first, rest: _take(first, rest, index), old, new)

    def take_hidden(self, index: jax.Array) -> PyTree:
        """Take the memory that some decisions started from, `[..., H]` leaves."""
        return jax.tree.map(
            lambda first, rest: _take(first, rest, index), self.open.hidden, self.new.hidden
        )

    @property
    def place(self) -> jax.Array | None:
        """Place of each row in the flat grid, `[R]` int; None where rows are in its order."""
        if self.slot is None:
            return None
        height, num_envs, num_slots = self.grid_shape
        row = num_envs * jnp.arange(1, height)[:, None, None] + jnp.arange(num_envs)[:, None]
        first = jnp.arange(num_envs * num_slots)
        return jnp.concatenate([first, (num_slots * row + self.slot).ravel()])

    def to_grid(self, x: jax.Array) -> jax.Array:
        """Lay `x [R]` out as a grid `[1 + T, E, S]`, 0 where there is no row."""
        if self.place is None:
            return x.reshape(self.grid_shape)
        size = self.grid_shape[0] * self.grid_shape[1] * self.grid_shape[2]
        return jnp.zeros(size, x.dtype).at[self.place].set(x).reshape(self.grid_shape)

    def from_grid(self, grid: jax.Array) -> jax.Array:
        """Read rows `[R]` off a grid `[1 + T, E, S]`."""
        return grid.ravel() if self.place is None else grid.ravel()[self.place]

    def total_by_slot(self, x: jax.Array) -> jax.Array:
        """Sum `x [R]` over the rows of each slot, `[S]`."""
        height, num_envs, num_slots = self.grid_shape
        if self.slot is None:
            return x.reshape(height * num_envs, num_slots).sum(0)
        first = x[: num_envs * num_slots].reshape(num_envs, num_slots).sum(0)
        return first.at[self.slot.ravel()].add(x[num_envs * num_slots :])


def tabulate(pending: Decisions, decisions: Decisions) -> DecisionTable:
    """Put the decisions that were open, `[E, S]`, before those of a rollout, `[T, E, M]`."""
    num_ticks = decisions.acted.shape[0]
    num_envs, num_slots = pending.acted.shape
    return DecisionTable(
        open=jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pending),
        new=jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), decisions.replace(slot=None)),
        slot=decisions.slot,
        grid_shape=(1 + num_ticks, num_envs, num_slots),
    )


def _take(first: jax.Array, rest: jax.Array, index: jax.Array) -> jax.Array:
    if first.ndim == 1:
        return jnp.concatenate([first, rest])[index]
    num_first = first.shape[0]
    # Joining wide columns would copy all of their rows; two reads copy those that are wanted.
    from_first = first[jnp.minimum(index, num_first - 1)]
    from_rest = rest[jnp.maximum(index - num_first, 0)]
    return where_rows(index < num_first, from_first, from_rest)
