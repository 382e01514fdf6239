"""Hold and reset of hidden state: the one place where memory moves.

An agent's memory advances only at its own decisions, is held in between, and is zero at the first
decision of a life. The rollout applies `advance` tick by tick; the update applies it along chunks
of one agent's decisions, so both see the same states.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import PyTree

RecurFn = Callable[[PyTree, Any], tuple[PyTree, Any]]


def advance(
    recur_fn: RecurFn, hidden: PyTree, x: Any, is_first: jax.Array, acting: jax.Array
) -> tuple[PyTree, PyTree, Any]:
    """Take one step of memory for a batch of rows.

    Args:
        recur_fn: `(hidden, x) -> (hidden, y)`.
        hidden: `[..., H]` leaves, held since each row's last decision.
        x: the input of `recur_fn`, `[..., D]` leaves.
        is_first: `[...]` bool, rows whose memory begins at zero.
        acting: `[...]` bool, rows that decide now; the others keep `hidden` as it is.

    Returns:
        `(hidden, start, y)`: the state to hold, the state that each row started from, the output.
    """
    start = where_rows(is_first, jax.tree.map(jnp.zeros_like, hidden), hidden)
    moved, y = recur_fn(start, x)
    # Not `start` for rows that wait: `is_first` stays True of them until they decide.
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
        resume: `[C]` bool, chunks whose first decision was made in the rollout before. Their second
            decision starts from the state that the rollout really had there, since older parameters
            acted on the first.
        resume_hidden: `[C, H]` leaves, that state.

    Returns:
        `[L, C, ...]` outputs.
    """

    def step(hidden: PyTree, row: tuple[Any, ...]) -> tuple[PyTree, Any]:
        x, is_first, valid, resumes = row
        # Before `advance`, which resets it if a new life begins there.
        hidden = where_rows(resumes, resume_hidden, hidden)
        hidden, _, y = advance(recur_fn, hidden, x, is_first, valid)
        return hidden, y

    length = is_first.shape[0]
    resumes = (jnp.arange(length) == 1)[:, None] & resume
    return jax.lax.scan(step, hidden, (x, is_first, valid, resumes))[1]
