"""Distributions of actions in kernels of a GPU, whose arrays have powers of two as sizes.

A tile of `R` rows has separate arrays for its choices and for its numbers. All choices are padded
to the same number of options, `W`, and lie side by side: `[R, C, W]`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import Action
from jaxmarl_ppo.networks.distributions import ActionDistribution
from jaxmarl_ppo.networks.factored import FactoredDistribution, OptionWeights, as_factored

# The least size of an axis of a product.
MIN_SIZE = 16


def padded(size: int, least: int = MIN_SIZE) -> int:
    """Round the size of an axis up to one that Triton has, by default to one that it multiplies."""
    return max(least, 1 << (size - 1).bit_length())


@dataclass(frozen=True)
class Columns:
    """Columns of an array that a kernel reads or writes: runs, each padded to the same width.

    Attributes:
        counts: number of columns of each run; one run follows another.
        first: the first column of the first run.
        least: of all of them together, padded.
    """

    counts: tuple[int, ...]
    first: int = 0
    least: int = MIN_SIZE

    @property
    def shape(self) -> tuple[int, int]:
        """Number of runs and width of each, padded."""
        number = padded(len(self.counts), 1)
        return number, padded(max(self.counts), max(1, self.least // number))

    @property
    def size(self) -> int:
        """Number of all columns, padded."""
        number, width = self.shape
        return number * width

    def place(self, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the column at each position among padded ones, and whether there is one."""
        run, within = (op(position, self.shape[1]) for op in (jax.lax.div, jax.lax.rem))
        start, begins, number = self.first, self.first, self.counts[0]
        for index, count in enumerate(self.counts[1:]):
            start += self.counts[index]
            begins = jnp.where(run > index, start, begins)
            number = jnp.where(run > index, count, number)
        return begins + within, (within < number) & (run < len(self.counts))

    def fills(self) -> jax.Array:
        """Return which options `[C, W]` are the only ones of choices that are padding."""
        run, within = (jax.lax.broadcasted_iota(jnp.int32, self.shape, axis) for axis in (0, 1))
        return (run >= len(self.counts)) & (within == 0)


class Parts(NamedTuple):
    """What belongs to choices, and what to numbers; None without any."""

    choices: Any  # [R, C, W]
    numbers: Any  # [R, N]; of outputs a pair of them, means and log standard deviations


# Loads some columns of an array with several for each row, or the only one.
Load = Callable[[Any, Columns | None], jax.Array]


@dataclass(frozen=True)
class TileDistribution(FactoredDistribution):
    """Independent distributions over the factors of an `Action`; outputs and masks are `Parts`."""

    @property
    def choices(self) -> Columns | None:
        """Columns of the choices among outputs, or in a mask."""
        return Columns(self.counts) if self.counts else None

    @property
    def num_numbers(self) -> int:
        """Number of numbers, `N`."""
        return self.numbers.num_dims if self.numbers else 0

    def of_numbers(self, first: int = 0) -> Columns | None:
        """Return the columns of the numbers, the first of which is given."""
        return Columns((self.num_numbers,), first) if self.numbers else None

    def split_choices(self, x: jax.Array) -> jax.Array:
        """Cut what there is of every option, `[R, C * W]`, into choices, `[R, C, W]`."""
        assert self.choices is not None
        return x.reshape(x.shape[0], *self.choices.shape)

    def zeros(self, num_rows: int) -> Parts:
        """Return outputs that are 0."""
        choices = numbers = None
        if self.choices is not None:
            choices = jnp.zeros((num_rows, *self.choices.shape), jnp.float32)
        if self.numbers is not None:
            numbers = (jnp.zeros((num_rows, padded(self.num_numbers)), jnp.float32),) * 2
        return Parts(choices, numbers)

    def columns_of(self, outputs: Parts) -> list[tuple[jax.Array, Columns]]:
        """List the parts of outputs with their columns in a network's `[R, outputs]`."""
        found = []
        if self.choices is not None:
            found.append((outputs.choices.reshape(-1, self.choices.size), self.choices))
        if self.numbers is not None:
            for index, x in enumerate(outputs.numbers):
                found.append((x, self.of_numbers(self.num_logits + index * self.num_numbers)))
        return found

    def load_mask(self, load: Load, mask: Any) -> Parts:
        """Load a mask, laid out as by `ActionLayout`."""
        choices = self.choices
        if choices is not None:
            # Without a legal option a logarithm would be infinite.
            choices = self.split_choices(load(mask, choices)) | choices.fills()[None]
        numbers = self.of_numbers(self.num_logits)
        return Parts(choices, None if numbers is None else load(mask, numbers))

    def load_action(self, load: Load, action: Any) -> Action:
        """Load an action, whose choices are `[R, C]` here, also of a single one."""
        if isinstance(action, Action):
            choices, numbers = action.choices, action.numbers
        else:
            choices, numbers = (action, None) if self.counts else (None, action)
        if choices is not None:
            several = isinstance(action, Action)
            each = Columns((len(self.counts),), least=1) if several else None
            choices = load(choices, each).reshape(-1, padded(len(self.counts), 1))
        return Action(choices, None if numbers is None else load(numbers, self.of_numbers()))

    def _choices(self, outputs: Any, mask: Any) -> list[OptionWeights]:
        if outputs.choices is None:
            return []
        return [OptionWeights.of(outputs.choices, mask.choices, in_turn=False)]

    def _of_choices(self, x: jax.Array) -> list[jax.Array]:
        return [x]

    def _of_numbers(self, x: Any) -> Any:
        return x.numbers


@functools.cache
def tile_distribution(distribution: ActionDistribution) -> TileDistribution:
    """Make the form of a distribution that kernels compute."""
    factored = as_factored(distribution)
    return TileDistribution(factored.counts, factored.numbers)
