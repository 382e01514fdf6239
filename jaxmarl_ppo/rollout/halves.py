"""Steps of two halves of a batch in turn, so that one is stepped while policies act for the other.

Environments in plain Python are stepped by other processes, for which a program would wait idly.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import Ahead
from jaxmarl_ppo.ops.steps import scan_steps
from jaxmarl_ppo.types import PyTree

Carry = TypeVar("Carry")


class Following(NamedTuple):
    """What the other half does next."""

    carry: Any  # [E / 2, ...] leaves
    begun: Any
    entry: PyTree
    is_wanted: jax.Array  # () bool; False where the scan ends before
    half: jax.Array  # () int: which half it is, 0 or 1

    def ahead(self, keys: jax.Array, env_state: Any, action: Any) -> Ahead[Any]:
        """Write it for `step_batch_ahead`, with keys, states and actions `[E / 2, ...]`."""
        first = self.half * keys.shape[0]
        return Ahead(keys, env_state, action, self.is_wanted, first, keys.shape[0] - first)


def scan_halves(
    begin: Callable[[Carry, PyTree], Any],
    finish: Callable[[Carry, Any, PyTree, Following], tuple[Carry, PyTree]],
    carry: Carry,
    entries: PyTree,
    unroll: int = 1,
) -> tuple[Carry, PyTree]:
    """Scan over steps that both halves of a batch do in turn, each in two parts.

    While a half finishes its step, the other has already begun its own.

    Args:
        begin: from the carry of a half and the entry of its step to what has begun.
        finish: from those three, and from what follows, to the new carry and the results.
        carry: `[E, ...]` leaves.
        entries: `[2 T, ...]` leaves, of a step of the first half, one of the second, and so on.
        unroll: steps of each half within an iteration of the compiled loop, a divisor of `T`.

    Returns:
        The final carry, and results `[T, E, ...]`.
    """
    num_steps = jax.tree.leaves(entries)[0].shape[0]
    halves = jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), carry)
    first, second = (jax.tree.map(lambda x, half=half: x[half], halves) for half in (0, 1))

    def half_step(both: tuple[Any, Carry], following: tuple[PyTree, jax.Array]):
        (own, begun, entry), other = both
        next_entry, index = following
        next_begun = begin(other, next_entry)
        after = Following(other, next_begun, next_entry, index < num_steps, index % 2)
        own, results = finish(own, begun, entry, after)
        return ((other, next_begun, next_entry), own), results

    entry = jax.tree.map(lambda x: x[0], entries)
    # What begins in the last step is dropped.
    next_entries = jax.tree.map(lambda x: jnp.concatenate([x[1:], x[:1]]), entries)
    ((first, *_), second), results = scan_steps(
        half_step,
        ((first, begin(first, entry), entry), second),
        (next_entries, jnp.arange(1, num_steps + 1)),
        unroll=2 * unroll,  # halves then change places in the loop without being copied
    )
    carry = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), first, second)
    return carry, jax.tree.map(lambda x: x.reshape(num_steps // 2, -1, *x.shape[2:]), results)
