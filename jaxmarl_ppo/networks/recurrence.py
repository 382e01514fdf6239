"""Holding, advancing and resetting recurrent state; no other module changes it.

An agent's recurrent state (`hidden`, also called memory) advances only at its own decisions, is
held in between, and is zero at the first decision of a life. The rollout applies `advance` step by
step; the update applies it along chunks of one agent's decisions, so both see the same states: step
by step (`unroll`), or all at once where a step is linear in memory (`unroll_linear`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import PyTree

RecurFn = Callable[[PyTree, Any], tuple[PyTree, Any]]
CellFn = Callable[[PyTree, jax.Array, jax.Array], tuple[PyTree, jax.Array]]
ProductFn = Callable[[jax.Array, PyTree], jax.Array]
# `is_first`, `valid`, `resume` and `resume_hidden` of `unroll`.
Lives = tuple[jax.Array, jax.Array, jax.Array, PyTree]


def advance(
    recur_fn: RecurFn, hidden: PyTree, x: Any, is_first: jax.Array, acting: jax.Array
) -> tuple[PyTree, PyTree, Any]:
    """Take one step of memory for a batch of rows.

    Args:
        recur_fn: `(hidden, x) -> (hidden, y)`.
        hidden: `[..., H]` leaves, held since each row's last decision.
        x: the input of `recur_fn`, `[..., D]` leaves.
        is_first: `[...]` bool, rows whose memory is reset to zero.
        acting: `[...]` bool, rows that decide now; the others keep `hidden` as it is.

    Returns:
        `(hidden, start, y)`: the state to hold, the state that each row started from, the output.
    """
    start = where_rows(is_first, jax.tree.map(jnp.zeros_like, hidden), hidden)
    moved, y = recur_fn(start, x)
    # Not `start` for waiting rows: their `is_first` stays True until they decide.
    return where_rows(acting, moved, hidden), start, y


def unroll(
    recur_fn: RecurFn,
    hidden: PyTree,
    x: Any,
    is_first: jax.Array,
    valid: jax.Array,
    resume: jax.Array,
    resume_hidden: PyTree,
) -> Any:
    """Replay memory along chunks of consecutive decisions.

    Args:
        recur_fn: as in `advance`.
        hidden: `[C, H]` leaves, what the first decision of each chunk started from.
        x: `[L, C, D]` leaves.
        is_first: `[L, C]` bool.
        valid: `[L, C]` bool, False in the padding at a chunk's tail.
        resume: `[C]` int, a decision of each chunk that starts from the recorded state in
            `resume_hidden`; `L` for none. It is the second decision of a chunk if older parameters
            acted on the first, in the previous rollout; or the first one of another stream.
        resume_hidden: `[C, H]` leaves.

    Returns:
        `[L, C, ...]` outputs.
    """

    def step(hidden: PyTree, row: tuple[Any, ...]) -> tuple[PyTree, Any]:
        x, is_first, valid, resumes = row
        # Before `advance`, which resets it if a new life begins there.
        hidden = where_rows(resumes, resume_hidden, hidden)
        hidden, _, y = advance(recur_fn, hidden, x, is_first, valid)
        return hidden, y

    if tuning().recomputes_steps:
        step = jax.checkpoint(step, prevent_cse=False)  # a scan needs no guard against it
    length = is_first.shape[0]
    resumes = jnp.arange(length)[:, None] == resume
    return jax.lax.scan(step, hidden, (x, is_first, valid, resumes))[1]


def unroll_product(
    cell: CellFn,
    product: ProductFn,
    params: PyTree,
    hidden: PyTree,
    x: jax.Array,
    lives: Lives,
) -> jax.Array:
    """Replay memory as `unroll` does, with steps `cell(hidden, x, product(h, params))`.

    The gradient of `params` is one product over all steps, taken after the loop. Automatic
    differentiation takes one in every step, and adds them up. The recorded states in `hidden` and
    `lives` get no gradient.

    Args:
        cell: `(hidden, x, recurrent) -> (hidden, y)`; it holds no parameters.
        product: `(h, params) -> recurrent`, of `h [..., H]`, the last leaf of the hidden state.
        params: of the product.
        hidden: `[C, H]` leaves, as in `unroll`.
        x: `[L, C, D]`.
        lives: the other arguments of `unroll`.

    Returns:
        `[L, C, ...]` outputs.
    """
    if tuning().sums_kernel_gradient_once:
        return _unroll_product(cell, product, params, hidden, x, lives)

    def recur(hidden: PyTree, x: jax.Array) -> tuple[PyTree, jax.Array]:
        return cell(hidden, x, product(last_leaf(hidden), params))

    return unroll(recur, hidden, x, *lives)


def last_leaf(tree: PyTree) -> Any:
    """Return the last leaf of a tree."""
    return jax.tree.leaves(tree)[-1]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _unroll_product(
    cell: CellFn,
    product: ProductFn,
    params: PyTree,
    hidden: PyTree,
    x: jax.Array,
    lives: Lives,
) -> jax.Array:
    return _unroll_product_forward(cell, product, params, hidden, x, lives)[0]


def _unroll_product_forward(
    cell: CellFn,
    product: ProductFn,
    params: PyTree,
    hidden: PyTree,
    x: jax.Array,
    lives: Lives,
) -> tuple[jax.Array, tuple[Any, ...]]:
    """Compute the outputs, and the arrays that the gradient reads."""
    is_first, valid, resume, resume_hidden = lives
    resumes = jnp.arange(is_first.shape[0])[:, None] == resume

    def step(hidden: PyTree, row: tuple[Any, ...]) -> tuple[PyTree, tuple[Any, ...]]:
        x, is_first, valid, resumes = row
        hidden = where_rows(resumes, resume_hidden, hidden)
        start = where_rows(is_first, jax.tree.map(jnp.zeros_like, hidden), hidden)
        h = last_leaf(start)
        (moved, y), pull_back = jax.vjp(cell, start, x, product(h, params))
        return where_rows(valid, moved, hidden), (y, h, pull_back)

    _, (y, h, pull_back) = jax.lax.scan(step, hidden, (x, is_first, valid, resumes))
    return y, (params, h, pull_back, is_first, valid, resumes, jax.tree.map(jnp.zeros_like, hidden))


def _unroll_product_backward(
    cell: CellFn, product: ProductFn, saved: tuple[Any, ...], gradient: jax.Array
) -> tuple[Any, ...]:
    """Turn the gradient of the outputs into those of `params` and of `x`."""
    params, h, pull_back, is_first, valid, resumes, zeros = saved

    def step(of_hidden: PyTree, row: tuple[Any, ...]) -> tuple[PyTree, tuple[Any, ...]]:
        of_y, h, pull_back, is_first, valid, resumes = row
        of_start, of_x, of_recurrent = pull_back((where_rows(valid, of_hidden, zeros), of_y))
        (of_h,) = jax.vjp(lambda h: product(h, params), h)[1](of_recurrent)
        leaves, structure = jax.tree.flatten(of_start)
        of_start = jax.tree.unflatten(structure, [*leaves[:-1], leaves[-1] + of_h])
        # Neither a reset nor a recorded state depends on the state before.
        of_start = where_rows(is_first, zeros, of_start)
        held = where_rows(valid, zeros, of_hidden)
        of_hidden = jax.tree.map(jnp.add, of_start, held)
        # Of a cell that adds both up, they are one array.
        of_recurrent = None if of_recurrent is of_x else of_recurrent
        return where_rows(resumes, zeros, of_hidden), (of_x, of_recurrent)

    rows = (gradient, h, pull_back, is_first, valid, resumes)
    _, (of_x, of_recurrent) = jax.lax.scan(step, zeros, rows, reverse=True)
    of_recurrent = of_x if of_recurrent is None else of_recurrent
    (of_params,) = jax.vjp(lambda params: product(h, params), params)[1](of_recurrent)
    return of_params, None, of_x, None


_unroll_product.defvjp(_unroll_product_forward, _unroll_product_backward)


def unroll_linear(
    coefficients: tuple[PyTree, PyTree],
    hidden: PyTree,
    is_first: jax.Array,
    valid: jax.Array,
    resume: jax.Array,
    resume_hidden: PyTree,
) -> PyTree:
    """Replay memory with linear steps `a * hidden + b` along chunks, without a loop over time.

    Hold, reset and resume are such steps too, `(1, 0)`, `(0, b)` and `(0, a * resume_hidden + b)`,
    so a chunk is a composition of steps.

    Args:
        coefficients: `(a, b)`, each `[L, C, H]` leaves of the structure of `hidden`.
        hidden: as in `unroll`, like all that follows.
        is_first: `[L, C]` bool.
        valid: `[L, C]` bool.
        resume: `[C]` int.
        resume_hidden: `[C, H]` leaves.

    Returns:
        `[L, C, H]` leaves: the states that decisions led to; in the padding, what is held.
    """
    resumes = jnp.arange(is_first.shape[0])[:, None] == resume

    def states(a: jax.Array, b: jax.Array, start: jax.Array, later: jax.Array) -> jax.Array:
        a = where_rows(valid, where_rows(is_first, jnp.zeros_like(a), a), jnp.ones_like(a))
        b = where_rows(valid, b, jnp.zeros_like(b))
        b = where_rows(resumes, a * later + b, b).at[0].add(a[0] * start)
        return linear_scan(where_rows(resumes, jnp.zeros_like(a), a), b)

    return jax.tree.map(states, *coefficients, hidden, resume_hidden)


@jax.custom_vjp
def linear_scan(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute `h[t] = a[t] * h[t - 1] + b[t]` along the first axis, from `h[-1] = 0`.

    Two steps compose to one (Blelloch 1990), so the depth is the logarithm of the length. The
    gradient is the same recurrence in reverse. It is computed that way rather than through the
    tree, which would keep every level.
    """
    return _linear_scan(a, b)[0]


def _compose(
    first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Compose two steps `(a, b)`."""
    return second[0] * first[0], second[0] * first[1] + second[1]


def _linear_scan(a: jax.Array, b: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    h = _states(a, b)
    return h, (a, h)


def _states(a: jax.Array, b: jax.Array, reverse: bool = False) -> jax.Array:
    """Compute the result of `linear_scan`, or the same in reverse."""
    length = a.shape[0]
    if length > tuning().max_steps_in_turn:
        return jax.lax.associative_scan(_compose, (a, b), reverse=reverse)[1]
    # Without parallel execution a tree is only more work.
    h, states = jnp.zeros_like(b[0]), []
    for t in reversed(range(length)) if reverse else range(length):
        h = a[t] * h + b[t]
        states.append(h)
    return jnp.stack(states[::-1] if reverse else states)


def _linear_scan_backward(
    saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Convert the gradient of all `h` to those of `a` and `b`."""
    a, h = saved
    zeros = jnp.zeros_like(a[:1])
    later = jnp.concatenate([a[1:], zeros])
    of_b = _states(later, gradient, reverse=True)
    return of_b * jnp.concatenate([zeros, h[:-1]]), of_b


linear_scan.defvjp(_linear_scan, _linear_scan_backward)
