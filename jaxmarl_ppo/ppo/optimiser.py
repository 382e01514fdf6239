"""Optimiser steps on the weights of all members of a policy group, each laid out in one row."""

import jax
import optax
from jax.flatten_util import ravel_pytree

from jaxmarl_ppo.ppo.loss import UpdateShape
from jaxmarl_ppo.types import Hyperparams, PyTree


def make_optimiser(hyperparams: Hyperparams, shape: UpdateShape) -> optax.GradientTransformation:
    """Make the optimiser of one member, with gradients clipped by their global norm."""
    make, rate = shape.optimiser, hyperparams.learning_rate
    if make == "adam":
        step = optax.adam(rate, eps=shape.adam_eps)  # type: ignore[arg-type]
    else:
        step = getattr(optax, make)(rate) if isinstance(make, str) else make(rate)
    return optax.chain(
        optax.clip_by_global_norm(hyperparams.max_grad_norm),  # type: ignore[arg-type]
        step,
    )


def init_optimiser(params: PyTree, hyperparams: Hyperparams, shape: UpdateShape) -> PyTree:
    """Make the initial optimiser states of all members, `[K]` or `[K, W]` leaves."""
    return jax.vmap(lambda params, hyperparams: make_optimiser(hyperparams, shape).init(params))(
        flatten(params), hyperparams
    )


def flatten(params: PyTree) -> jax.Array:
    """Lay the weights of each member out in one row: `[K, ...]` leaves to `[K, W]`.

    The optimiser then updates one array instead of a dozen small ones, which each cost time to
    compile and to run.
    """
    return jax.vmap(lambda params: ravel_pytree(params)[0])(params)


def unflatten(flat: jax.Array, like: PyTree) -> PyTree:
    """Cut weights in rows `[K, W]` into leaves of the shapes of `like`, undoing `flatten`."""
    unravel = ravel_pytree(jax.tree.map(lambda x: x[0], like))[1]
    return jax.vmap(unravel)(flat)
