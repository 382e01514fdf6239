"""Optimiser steps on the weights of all members of a bank, each laid out in one row."""

import jax
import optax
from jax.flatten_util import ravel_pytree

from jaxmarl_ppo.types import Hyperparams, PyTree


def make_optimiser(hyperparams: Hyperparams, adam_eps: float) -> optax.GradientTransformation:
    """Make Adam on gradients clipped by their global norm, for one member."""
    return optax.chain(
        optax.clip_by_global_norm(hyperparams.max_grad_norm),  # type: ignore[arg-type]
        optax.adam(hyperparams.learning_rate, eps=adam_eps),
    )


def init_optimiser(params: PyTree, hyperparams: Hyperparams, adam_eps: float) -> PyTree:
    """Make the initial optimiser states of all members, `[K]` or `[K, W]` leaves."""
    return jax.vmap(lambda params, hyperparams: make_optimiser(hyperparams, adam_eps).init(params))(
        flatten(params), hyperparams
    )


def flatten(params: PyTree) -> jax.Array:
    """Lay the weights of each member out in one row: `[K, ...]` leaves to `[K, W]`.

    The optimiser then has one array to go over instead of a dozen small ones, each of which costs
    time to compile and to run.
    """
    return jax.vmap(lambda params: ravel_pytree(params)[0])(params)


def unflatten(flat: jax.Array, like: PyTree) -> PyTree:
    """Cut weights in rows `[K, W]` into leaves of the shapes of `like`, undoing `flatten`."""
    unravel = ravel_pytree(jax.tree.map(lambda x: x[0], like))[1]
    return jax.vmap(unravel)(flat)
