"""Optimiser steps on the weights of all members of a policy group, each laid out in one row.

An optimiser that treats every weight by itself updates the rows as they are. Any other one sees
the weights of a member as its network does, a tree of leaves.
"""

from typing import Any

import jax
import optax
from jax.flatten_util import ravel_pytree
from optax import contrib

from jaxmarl_ppo.config.ppo import ELEMENTWISE
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo.loss import UpdateShape
from jaxmarl_ppo.types import Hyperparams, PyTree

# Makes an update of Muon as large as one of Adam, so that both take the same learning rate.
MUON_RMS = 0.2


def make_optimiser(
    hyperparams: Hyperparams, shape: UpdateShape, like: PyTree
) -> optax.GradientTransformation:
    """Make the optimiser of one member's row `[F]`, with gradients clipped by their global norm.

    Args:
        hyperparams: of the member, `()`.
        shape: the static options.
        like: weights of all members, `[K, ...]` leaves, for their shapes.
    """
    make, rate = shape.optimiser, hyperparams.learning_rate
    if make == "adam":
        step = optax.adam(rate, eps=shape.adam_eps)  # type: ignore[arg-type]
    elif make == "muon":
        step = contrib.muon(
            rate,  # type: ignore[arg-type]
            muon_weight_dimension_numbers=muon_axes,
            consistent_rms=MUON_RMS,
        )
    else:
        step = getattr(optax, make)(rate) if isinstance(make, str) else make(rate)
    return optax.chain(
        optax.clip_by_global_norm(hyperparams.max_grad_norm),  # type: ignore[arg-type]
        step if make in ELEMENTWISE else _on_tree(step, like),
    )


def _on_tree(step: optax.GradientTransformation, like: PyTree) -> optax.GradientTransformation:
    """Make a transformation of rows `[F]` from one of trees, whose state has leaves of trees."""
    unravel = _unravel_one(like)

    def init(params: Any) -> PyTree:
        return step.init(unravel(params))

    def update(updates: Any, state: PyTree, params: Any = None) -> tuple[Any, PyTree]:
        # The optimiser's own products, whatever the precision of the network's.
        with jax.default_matmul_precision("float32"):
            tree, state = step.update(unravel(updates), state, unravel(params))
        return ravel_pytree(tree)[0], state

    return optax.GradientTransformation(init, update)


def muon_axes(params: PyTree) -> PyTree:
    """Say which weights of one policy are matrices, in a tree like `params`.

    Kernels of dense and recurrent layers, `[in, out]`, and of convolutions, `[rows, cols, in, out]`
    with all axes but the last joined. Not those of heads, which are modules whose names end in
    `head`, and no other weights: Adam updates them.
    """

    def axes(path: tuple[Any, ...], x: jax.Array) -> contrib.MuonDimensionNumbers | None:
        *modules, name = [str(getattr(key, "key", key)) for key in path]
        is_head = any(module.endswith("head") for module in modules[-1:])
        if name != "kernel" or is_head or x.ndim not in (2, 4):
            return None
        return contrib.MuonDimensionNumbers(tuple(range(x.ndim - 1)), x.ndim - 1)

    return jax.tree_util.tree_map_with_path(axes, params)


def check_optimiser(shape: UpdateShape, network: StackedNetwork) -> None:
    """Reject Muon for a network that has no matrix for it.

    Raises:
        ValueError: If Adam would update all of its weights.
    """
    if shape.optimiser != "muon":
        return
    stack = jax.eval_shape(lambda: network.select(network.init(jax.random.key(0)), 0))
    if not jax.tree.leaves(muon_axes(stack.params)):
        name = type(network.module).__name__
        raise ValueError(
            f"optimiser='muon' has no effect: network {name} has no kernel of 2 or 4 axes outside "
            "of its heads, so Adam would update all of its weights; use 'nadam', or give the "
            "network a hidden layer"
        )


def init_optimiser(params: PyTree, hyperparams: Hyperparams, shape: UpdateShape) -> PyTree:
    """Make the initial optimiser states of all members, `[K, ...]` leaves."""
    return jax.vmap(lambda row, hyperparams: make_optimiser(hyperparams, shape, params).init(row))(
        flatten(params), hyperparams
    )


def flatten(params: PyTree) -> jax.Array:
    """Lay the weights of each member out in one row: `[K, ...]` leaves to `[K, F]`.

    The optimiser then updates one array instead of a dozen small ones, which each cost time to
    compile and to run.
    """
    return jax.vmap(lambda params: ravel_pytree(params)[0])(params)


def unflatten(flat: jax.Array, like: PyTree) -> PyTree:
    """Cut weights in rows `[K, F]` into leaves of the shapes of `like`, undoing `flatten`."""
    return jax.vmap(_unravel_one(like))(flat)


def _unravel_one(like: PyTree) -> Any:
    """Make the function that cuts a row `[F]` into leaves, given those of all members."""
    return ravel_pytree(jax.tree.map(lambda x: x[0], like))[1]
