"""Resets within a batch: all at once where they are cheap, one after the other where they are not.

Worlds that are generated can take longer to begin than hundreds of steps, and only a few episodes
of a batch end at a step. Others begin in less time than choosing which of them would take.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from jaxmarl_envs.backend import backend, skip_unless
from jaxmarl_envs.threefry import split

# Numbers that a reset computes, from which on only those that are needed are computed. Choosing
# them takes a loop, whose length an accelerator has to ask its host for.
COSTLY_ON_CPU, COSTLY_ELSEWHERE = 20_000, 1_000_000
# A loop whose length is known only when it runs counts as so many rounds.
GUESSED_ROUNDS = 10


def reset_where(
    reset: Callable[[jax.Array, Any], Any],
    over: jax.Array,
    keys: jax.Array,
    current: Any,
    params: Any,
) -> Any:
    """Begin new episodes in some environments of a batch.

    Args:
        reset: `(key, params)` to what an episode begins with, as `MultiAgentEnv.reset_env`.
        over: `[E]` bool, the environments that begin.
        keys: `[E]`, those of steps: a reset has the second half of its own.
        current: `[E, ...]`, what the others keep.
        params: of all environments.

    Returns:
        `[E, ...]`, bit-for-bit as if all were computed.
    """
    num_envs = over.shape[0]
    # Traced once: the same program is weighed and run.
    program, shape = jax.make_jaxpr(lambda key: reset(key, params), return_shape=True)(keys[0])
    flat_reset, structure = core.jaxpr_as_fun(program), jax.tree.structure(shape)

    def begin(keys: jax.Array) -> Any:
        # Split again: where steps need no keys, steps without a reset then split nothing.
        return jax.vmap(lambda key: structure.unflatten(flat_reset(split(key)[1])))(keys)

    costly = COSTLY_ON_CPU if backend() == "cpu" else COSTLY_ELSEWHERE
    if work_of(program.jaxpr) < costly:
        return skip_unless(
            over.any(), lambda: jax.vmap(select)(over, begin(keys), current), lambda: current
        )

    size = max(num_envs // (128 if backend() == "cpu" else 16), 1)
    # A multiple of `size`, so that the last slice does not shift back.
    ended = jnp.flatnonzero(over, size=-(-num_envs // size) * size, fill_value=num_envs)

    def begin_some(index: jax.Array, current: Any) -> Any:
        ids = jax.lax.dynamic_slice(ended, (index * size,), (size,))
        return jax.tree.map(
            lambda x, new: x.at[ids].set(new, mode="drop"), current, begin(keys[ids])
        )

    return jax.lax.fori_loop(0, -(-over.sum() // size), begin_some, current)


def select(pred: jax.Array, on_true: Any, on_false: Any) -> Any:
    """Choose between two pytrees by a scalar."""
    return jax.tree.map(lambda x, y: jnp.where(pred, x, y), on_true, on_false)


def work_of(program: core.Jaxpr) -> int:
    """Estimate a program's work: how many numbers its operations give, in all rounds of its loops.

    Of several branches all count.
    """
    total = 0
    for equation in program.eqns:
        rounds = {"scan": equation.params.get("length", 1), "while": GUESSED_ROUNDS}
        inner = sum(work_of(part) for part in core.jaxprs_in_params(equation.params))
        results = (math.prod(getattr(x.aval, "shape", ())) for x in equation.outvars)
        total += rounds.get(equation.primitive.name, 1) * inner or sum(results)
    return total
