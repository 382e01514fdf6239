"""Forms of actions: what an agent's action space is, as plain data.

An action is a product of choices and numbers. In rows, the choices of an agent are `[..., C]` and
its numbers `[..., N]`. In the agent's own form, a choice is an integer, several choices are an
array, numbers are an array of their shape, and a tuple has a part for each of its spaces. Axes
before these are free.

This module imports JAX and NumPy alone.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("choice", "choices", "numbers", "tuple")


class Factors(NamedTuple):
    """Counts the factors of an action."""

    counts: tuple[int, ...]  # options of each choice, `[C]`
    num_numbers: int  # N

    @property
    def width(self) -> int:
        """Width of a mask: the options of all choices, one after the other, then the numbers."""
        return sum(self.counts) + self.num_numbers


class Form(NamedTuple):
    """The form of one agent's actions.

    Attributes:
        kind: one of `KINDS`.
        sizes: options of the choice, options of each choice, or the shape of the numbers.
        parts: of a tuple.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    parts: tuple["Form", ...] = ()

    def __str__(self) -> str:
        """Describe the form, such as `3 x 3 + box 2`."""
        if self.kind == "tuple":
            return " + ".join(f"({part})" if part.parts else str(part) for part in self.parts)
        sizes = " x ".join(map(str, self.sizes))
        return f"box {sizes}".rstrip() if self.kind == "numbers" else sizes

    @property
    def leaves(self) -> tuple["Form", ...]:
        """The form itself, or the leaves of a tuple's parts."""
        if self.kind != "tuple":
            return (self,)
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one action; not of a tuple."""
        return {"choice": (), "choices": (len(self.sizes),)}.get(self.kind, self.sizes)

    @property
    def factors(self) -> Factors:
        """Count the factors."""
        counts = [n for leaf in self.leaves if leaf.kind != "numbers" for n in leaf.sizes]
        sizes = [int(np.prod(leaf.sizes)) for leaf in self.leaves if leaf.kind == "numbers"]
        return Factors(tuple(counts), sum(sizes))

    def build(self, choices: Any, numbers: Any) -> Any:
        """Build actions in this form of choices `[..., C]` and numbers `[..., N]`.

        Choices and numbers beyond those of the form are left out.
        """
        return self._build(choices, numbers)[0]

    def _build(self, choices: Any, numbers: Any) -> tuple[Any, Any, Any]:
        """Build actions, and return the choices and numbers that remain."""
        if self.kind == "tuple":
            parts = []
            for part in self.parts:
                own, choices, numbers = part._build(choices, numbers)
                parts.append(own)
            return tuple(parts), choices, numbers
        if self.kind == "numbers":
            size = int(np.prod(self.sizes))
            own = numbers[..., :size].reshape(*numbers.shape[:-1], *self.sizes)
            return own, choices, numbers[..., size:]
        if self.kind == "choice":
            return choices[..., 0], choices[..., 1:], numbers
        size = len(self.sizes)
        return choices[..., :size], choices[..., size:], numbers

    def flatten(self, action: Any) -> list[Any]:
        """List the arrays of an action, one for each of `leaves`.

        Raises:
            ValueError: If it is not a tuple where the form is one, or of another length.
        """
        if self.kind != "tuple":
            return [action if isinstance(action, jax.Array) else np.asarray(action)]
        if not isinstance(action, tuple | list) or len(action) != len(self.parts):
            got = f"{len(action)} parts" if isinstance(action, tuple | list) else repr(action)
            raise ValueError(f"takes a tuple of {len(self.parts)} parts ({self}), got {got}")
        pairs = zip(self.parts, action, strict=True)
        return [x for part, own in pairs for x in part.flatten(own)]

    def split(self, leaves: Sequence[Any], batch_shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Split an action from `flatten` into choices `[..., C]` and numbers `[..., N]`.

        Args:
            leaves: the arrays, whose first axes broadcast to `batch_shape`.
            batch_shape: `...`.
        """
        xp = jnp if any(isinstance(x, jax.Array) for x in leaves) else np
        choices = [xp.zeros((*batch_shape, 0), np.int32)]
        numbers = [xp.zeros((*batch_shape, 0), np.float32)]
        for leaf, x in zip(self.leaves, leaves, strict=True):
            rows = xp.broadcast_to(xp.asarray(x), (*batch_shape, *leaf.row_shape))
            rows = rows.reshape(*batch_shape, int(np.prod(leaf.row_shape)))
            if leaf.kind == "numbers":
                numbers.append(rows.astype(np.float32))
            else:
                choices.append(rows.astype(np.int32))
        return xp.concatenate(choices, axis=-1), xp.concatenate(numbers, axis=-1)

    def as_json(self) -> dict[str, Any]:
        """Write the form as plain data, which `form_from_json` reads."""
        if self.kind == "tuple":
            return {self.kind: [part.as_json() for part in self.parts]}
        return {self.kind: self.sizes[0] if self.kind == "choice" else list(self.sizes)}


def form_from_json(data: Any, is_size: Callable[[Any], bool]) -> Form:
    """Read a form from untrusted plain data.

    Args:
        data: what `Form.as_json` writes.
        is_size: whether a value is a valid number of options, or of numbers.

    Raises:
        Exception: Of any kind, at the first thing that is not as `Form.as_json` writes it.
    """
    ((kind, value),) = data.items()
    if kind == "tuple":
        return Form(kind, parts=tuple(form_from_json(part, is_size) for part in value))
    sizes = (value,) if kind == "choice" else tuple(value)
    if kind not in KINDS or not all(map(is_size, sizes)) or (kind != "numbers" and 0 in sizes):
        raise ValueError(f"{data!r} describes no actions")
    return Form(kind, sizes)


def widest(factors: Iterable[Factors]) -> Factors:
    """Return, of each choice, the options of the agent that has most, and the most numbers."""
    factors = list(factors)
    most = max(len(own.counts) for own in factors)
    counts = [max(own.counts[i] for own in factors if i < len(own.counts)) for i in range(most)]
    return Factors(tuple(counts), max(own.num_numbers for own in factors))


def form_of_factors(factors: Factors) -> Form:
    """Return the plainest form of actions with these factors.

    One choice, several choices, numbers in a vector, or a tuple of choices and numbers.
    """
    counts, num_numbers = factors
    choices = Form("choice" if len(counts) == 1 else "choices", counts)
    numbers = Form("numbers", (num_numbers,))
    if not counts:
        return numbers
    return Form("tuple", parts=(Form("choices", counts), numbers)) if num_numbers else choices


def widen_mask(mask: Any, own: Factors, wide: Factors) -> Any:
    """Lay masks out for more factors: `[..., own.width]` to `[..., wide.width]`.

    Of a choice that `own` lacks, option 0 alone is legal.
    """
    if own == wide:
        return mask
    xp = jnp if isinstance(mask, jax.Array) else np
    lead, start, parts = mask.shape[:-1], 0, []
    for choice, count in enumerate(wide.counts):
        num = own.counts[choice] if choice < len(own.counts) else 0
        options = mask[..., start : start + num]
        if not num:
            options = xp.ones((*lead, 1), bool)
        start += num
        parts += [options, xp.zeros((*lead, count - options.shape[-1]), bool)]
    parts += [mask[..., start:], xp.zeros((*lead, wide.num_numbers - own.num_numbers), bool)]
    return xp.concatenate(parts, axis=-1).astype(bool)
