"""The decisions of a group on one flat axis: those that were open, then the rollout's own."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.rows import from_rows, to_rows
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import Decisions, PyTree


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """Decisions in rows `[R]`, and the place of each in a grid of all slots at all steps.

    First come the `E * S` rows that the rollout before left open, then the rollout's own `T * E *
    M`, both in the order of `ops.rows`. In the grid, `[1 + T, E, S]`, step 0 holds the open
    decisions.

    Wide columns are never copied into one array: packing reads their rows once.
    """

    open: Decisions  # [E * S]
    new: Decisions  # [T * E * M]
    slot: jax.Array | None  # [T, E, M] int, from `assign_rows`
    grid_shape: tuple[int, int, int]

    def column(self, name: str) -> jax.Array:
        """Copy one field of all decisions into one array, `[R, ...]`."""
        return jnp.concatenate([getattr(self.open, name), getattr(self.new, name)])

    def take(self, index: jax.Array) -> Decisions:
        """Take the decisions of some rows, `index [...]` int, without their memory."""
        new, old = self.new.replace(hidden=()), self.open.replace(hidden=())
        return jax.tree.map(lambda first, rest: _gather(first, rest, index), old, new)

    def gather_hidden(self, index: jax.Array) -> PyTree:
        """Take the memory before some decisions, `[..., H]` leaves."""
        return jax.tree.map(
            lambda first, rest: _gather(first, rest, index), self.open.hidden, self.new.hidden
        )

    def decisions_of_slots(self, row: jax.Array) -> Decisions:
        """Take the decision in row `row [E, S]` of each slot: open or new."""
        if not tuning().rows_last:
            return self.take(row).replace(hidden=self.gather_hidden(row))
        return jax.tree.map(lambda first, rest: self._pick(first, rest, row), self.open, self.new)

    def numbers_of_slots(self, x: jax.Array, row: jax.Array) -> jax.Array:
        """Take the same rows of `x [R]`: `[E, S]`."""
        return self._pick(x[: row.size], x[row.size :], row) if tuning().rows_last else x[row]

    def _pick(self, first: jax.Array, rest: jax.Array, row: jax.Array) -> jax.Array:
        # Compares all steps, since rows of a few features would be read one by one.
        _, number = self.split(jnp.arange(row.size + rest.shape[0]))  # [T, E, M]
        first, rest = self.give_axes(first, rest)
        if self.slot is None:
            mine = number == row
        else:
            mine, rest = number[..., None, :] == row[..., None], rest[:, :, None]
        mine = mine.reshape(*mine.shape, *[1] * (rest.ndim - mine.ndim))
        axes = 0 if self.slot is None else (0, 3)
        picked = jnp.where(mine, rest, jnp.zeros_like(rest))
        picked = picked.any(axes) if rest.dtype == bool else picked.sum(axes, dtype=rest.dtype)
        return where_rows(row < row.size, first, picked)

    @property
    def place(self) -> jax.Array | None:
        """Place of each row in the flat grid, `[R]` int; None where rows are in its order."""
        height, num_envs, num_slots = self.grid_shape
        slot = self.slot
        if slot is None:
            if not tuning().rows_last:
                return None
            slot = jnp.arange(num_slots)
        row = num_envs * jnp.arange(1, height)[:, None, None] + jnp.arange(num_envs)[:, None]
        first = to_rows(jnp.arange(num_envs * num_slots).reshape(num_envs, num_slots), 2)
        return jnp.concatenate([first, to_rows(num_slots * row + slot, 3)])

    def split(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Restore the axes of rows `x [R]`: open decisions `[E, S]`, others `[T, E, M]`."""
        num_open = self.open.acted.size
        return self.give_axes(x[:num_open], x[num_open:])

    def give_axes(self, first: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Do the same for separate rows: `[E * S, ...]` and `[T * E * M, ...]`."""
        height, num_envs, num_slots = self.grid_shape
        return (
            from_rows(first, (num_envs, num_slots)),
            from_rows(rest, (height - 1, num_envs, -1)),
        )

    def to_grid(self, x: jax.Array) -> jax.Array:
        """Lay `x [R]` out as a grid `[1 + T, E, S]`, 0 where there is no row."""
        if self.place is None:
            return x.reshape(self.grid_shape)
        if self.slot is None:
            first, rest = self.split(x)
            return jnp.concatenate([first[None], rest])
        size = self.grid_shape[0] * self.grid_shape[1] * self.grid_shape[2]
        return jnp.zeros(size, x.dtype).at[self.place].set(x).reshape(self.grid_shape)

    def from_grid(self, grid: jax.Array) -> jax.Array:
        """Read rows `[R]` off a grid `[1 + T, E, S]`."""
        if self.place is None:
            return grid.ravel()
        if self.slot is None:
            return jnp.concatenate([to_rows(grid[0], 2), to_rows(grid[1:], 3)])
        return grid.ravel()[self.place]

    def total_by_slot(self, x: jax.Array) -> jax.Array:
        """Sum `x [R]` over the rows of each slot, `[S]`."""
        if self.slot is None:
            return self.to_grid(x).reshape(-1, self.grid_shape[-1]).sum(0)
        first, rest = self.split(x)
        return first.sum(0).at[self.slot.ravel()].add(rest.ravel())


def tabulate(pending: Decisions, decisions: Decisions) -> DecisionTable:
    """Put the decisions that were open, `[E, S]`, before those of a rollout, `[T, E, M]`."""
    num_steps = decisions.acted.shape[0]
    num_envs, num_slots = pending.acted.shape
    return DecisionTable(
        open=jax.tree.map(lambda x: to_rows(x, 2), pending),
        new=jax.tree.map(lambda x: to_rows(x, 3), decisions.replace(slot=None)),
        slot=decisions.slot,
        grid_shape=(1 + num_steps, num_envs, num_slots),
    )


def _gather(first: jax.Array, rest: jax.Array, index: jax.Array) -> jax.Array:
    if first.ndim == 1:
        return jnp.concatenate([first, rest])[index]
    num_first = first.shape[0]
    # Joining wide columns would copy all rows; two reads copy only the wanted ones.
    from_first = first[jnp.minimum(index, num_first - 1)]
    from_rest = rest[jnp.maximum(index - num_first, 0)]
    return where_rows(index < num_first, from_first, from_rest)
