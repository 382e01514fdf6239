"""Small MLPs in kernels of a GPU, written in Pallas for Triton: their layers, and acting.

The layers of a network that are computed together are a tower: those of actor or critic, or of both
where they share some. A program of a kernel holds the weights of a tower, and computes all of its
layers for a tile of rows, so activations stay on the chip. `forward` here is the kernel of acting;
`ppo/fused_gradient.py` has that of learning.

Triton's arrays have powers of two as sizes, and at least 16 for products. Padded inputs, weights
and outputs are 0, for which all activations are 0, and padded actions are illegal: they change
nothing. `fused_distribution.py` says how outputs are laid out.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxmarl_envs.backend import backend
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.networks.layers import ACTIVATIONS
from jaxmarl_ppo.networks.matmul import dot_general_in
from jaxmarl_ppo.networks.precision import at_precision
from jaxmarl_ppo.policies.fused_distribution import (
    Columns,
    Parts,
    padded,
    tile_distribution,
)
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import PyTree

# Rows of a tile when acting.
TILE_ROWS = 64


@dataclass(frozen=True)
class Weights:
    """Place of weights among a policy's leaves, and in its row.

    Attributes:
        index: of the leaf, a weight matrix or bias.
        begin: of the leaf in the row.
        shape: of the leaf.
        columns: of the leaf, along its last axis.
    """

    index: int
    begin: int
    shape: tuple[int, ...]
    columns: Columns

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """Return the shape in a kernel."""
        return (*map(padded, self.shape[:-1]), self.columns.size)

    def axes(self) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """Return the index of every weight along each axis of the leaf, and whether it is there."""
        *rows, column = (
            jax.lax.broadcasted_iota(jnp.int32, self.padded_shape, axis)
            for axis in range(len(self.shape))
        )
        column, there = self.columns.place(column)
        for x, size in zip(rows, self.shape, strict=False):
            there &= x < size
        return (*rows, column), there

    def place(self) -> tuple[jax.Array, jax.Array]:
        """Return the index of every weight in the row, and whether it is there."""
        (index, *rest), there = self.axes()
        for x, size in zip(rest, self.shape[1:], strict=True):
            index = index * size + x
        return self.begin + index, there


Layers = tuple[tuple[Weights, Weights], ...]  # kernel and bias of each


class PolicyHead(NamedTuple):
    """Layers of an actor alone, and what follows them; None where there is none."""

    layers: Layers
    choices: tuple[Weights, Weights] | None  # of the options of all choices
    means: tuple[Weights, Weights] | None  # of numbers
    log_std: Weights | None


class ValueHead(NamedTuple):
    """Layers of a critic alone, the last without activation."""

    layers: Layers
    value: tuple[Weights, Weights]


@dataclass(frozen=True)
class Tower:
    """Layers that are computed together: of the actor, of the critic, or of both.

    Attributes:
        layers: shared by actor and critic, where both are here.
        policy: the actor's head; None if it is not here.
        value: the critic's head; None if it is not here.
        num_inputs: how many of the inputs it sees.
    """

    layers: Layers
    policy: PolicyHead | None
    value: ValueHead | None
    num_inputs: int

    @property
    def weights(self) -> PyTree:
        """All weights, as `run_tower` takes them."""
        return self.layers, self.policy, self.value

    @property
    def size(self) -> int:
        """Number of its weights, padded."""
        return sum(math.prod(leaf.padded_shape) for leaf in jax.tree.leaves(self.weights))


def towers_of(network: StackedNetwork) -> tuple[Tower, ...]:
    """List the towers of a network, with the places of their weights."""
    module = network.module
    assert isinstance(module, MLP)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)).params)
    leaves, structure = jax.tree.flatten(params)
    begin, found = 0, []
    for index, leaf in enumerate(leaves):
        shape = leaf.shape[1:]
        found.append(Weights(index, begin, shape, Columns(shape[-1:])))
        begin += math.prod(shape)
    tree = jax.tree.unflatten(structure, found)

    def layer(name: str, parent: Any = tree) -> tuple[Weights, Weights]:
        return parent[name]["kernel"], parent[name]["bias"]

    def torso(name: str, sizes: Any) -> Layers:
        return tuple(layer(f"Dense_{index}", tree[name]) for index in range(len(sizes)))

    def outputs(columns: Columns | None) -> Any:
        own = layer("policy_head")
        return None if columns is None else tuple(replace(x, columns=columns) for x in own)

    distribution = tile_distribution(network.distribution)
    policy = PolicyHead(
        torso("actor_head_torso", module.head_sizes),
        outputs(distribution.choices),
        outputs(distribution.of_numbers(distribution.num_logits)),
        tree.get("log_std"),
    )
    value = ValueHead(torso("critic_head_torso", module.head_sizes), layer("value_head"))
    (width,) = network.input_shape
    sizes = module.hidden_sizes
    if not module.separate_critic:
        return (Tower(torso("trunk_torso", sizes), policy, value, width),)
    return (
        Tower(torso("actor_torso", sizes), policy, None, module.actor_width or width),
        Tower(torso("critic_torso", sizes), None, value, width),
    )


def run_tower(
    network: StackedNetwork, params: PyTree, inputs: jax.Array
) -> tuple[Parts, jax.Array]:
    """Compute outputs and values `[R]` of rows; 0 for the head that a tower lacks.

    Args:
        network: of the policy group.
        params: the weights in place of `Tower.weights`.
        inputs: `[R, D]`.
    """
    module, distribution = network.module, tile_distribution(network.distribution)
    assert isinstance(module, MLP)
    activate, product = ACTIVATIONS[module.activation], dot_general_in(network.matmul_precision)
    shared, policy, critic = params

    def dense(x: jax.Array, layer: tuple[jax.Array, jax.Array]) -> jax.Array:
        kernel, bias = layer
        return product(x, kernel, (((1,), (0,)), ((), ()))) + bias[None, :]

    def run(x: jax.Array, layers: Any) -> jax.Array:
        for layer in layers:
            x = activate(dense(x, layer))
        return x

    trunk = run(inputs, shared)
    outputs = distribution.zeros(inputs.shape[0])
    value = jnp.zeros(inputs.shape[0], jnp.float32)
    if policy is not None:
        x, choices, numbers = run(trunk, policy.layers), None, None
        if policy.choices is not None:
            choices = distribution.split_choices(dense(x, policy.choices))
        if policy.means is not None:
            means = dense(x, policy.means)
            numbers = (means, jnp.broadcast_to(policy.log_std[None, :], means.shape))
        outputs = Parts(choices, numbers)
    if critic is not None:
        # The other columns are padding.
        column = dense(run(trunk, critic.layers), critic.value)
        first = jax.lax.broadcasted_iota(jnp.int32, column.shape, 1) == 0
        value = jnp.where(first, column, 0.0).sum(1)
    return outputs, value


def run_without_gradient(
    network: StackedNetwork, params: PyTree, inputs: jax.Array
) -> tuple[Parts, jax.Array]:
    """Do the same where nothing is differentiated.

    Triton does not know functions with a gradient of their own (`networks/matmul.py`): `vjp` leaves
    what they compute beforehand.
    """
    return jax.vjp(lambda params: run_tower(network, params, inputs), params)[0]


def forward(
    network: StackedNetwork, params: PyTree, inputs: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute a policy's answers to rows in one kernel, without a gradient.

    Args:
        network: of the policy group, for which `why_not_fused` is None.
        params: of the policy.
        inputs: `[R, D]`.

    Returns:
        `(outputs [R, N], value [R])`, as the module's call.
    """
    towers = towers_of(network)
    num_rows = inputs.shape[0]
    num_tiles = -(-num_rows // TILE_ROWS)
    on_chip = backend() == "gpu"
    with at_precision(network.matmul_precision):
        return pl.pallas_call(
            functools.partial(_kernel, network, towers),
            out_shape=(
                jax.ShapeDtypeStruct((num_rows, network.distribution.num_outputs), jnp.float32),
                jax.ShapeDtypeStruct((num_rows,), jnp.float32),
            ),
            # One axis, since `vmap` adds its own, and a GPU's grid has no more than three.
            grid=(num_tiles * len(towers),),
            compiler_params=triton.CompilerParams(num_warps=4, num_stages=1) if on_chip else None,
            interpret=not on_chip,
            name="fused_forward",
        )(jax.tree.leaves(params), inputs)


def _kernel(
    network: StackedNetwork,
    towers: tuple[Tower, ...],
    params_refs: list[Any],
    inputs_ref: Any,
    outputs_ref: Any,
    value_ref: Any,
) -> None:
    """Run one program: a tile of rows in one tower."""
    distribution = tile_distribution(network.distribution)
    tile, which = jnp.divmod(pl.program_id(0), len(towers))
    row = tile * TILE_ROWS + jax.lax.broadcasted_iota(jnp.int32, (TILE_ROWS,), 0)

    def load(own: Weights) -> jax.Array:
        axes, there = own.axes()
        return triton.load(params_refs[own.index].at[axes], mask=there, other=0.0)

    def run(tower: Tower) -> None:
        params = jax.tree.map(load, tower.weights)
        place, there = _rows_of(row, inputs_ref.shape, Columns((tower.num_inputs,)))
        inputs = triton.load(inputs_ref.at[place], mask=there, other=0.0)
        outputs, value = run_without_gradient(network, params, inputs)
        if tower.policy is not None:
            for x, columns in distribution.columns_of(outputs):
                place, there = _rows_of(row, outputs_ref.shape, columns)
                triton.store(outputs_ref.at[place], x, mask=there)
        if tower.value is not None:
            triton.store(value_ref.at[row], value, mask=row < value_ref.shape[0])

    for index, tower in enumerate(towers):
        if len(towers) == 1:
            run(tower)
        else:
            pl.when(which == index)(functools.partial(run, tower))


def _rows_of(
    row: jax.Array, shape: tuple[int, ...], columns: Columns
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Return the places of a tile's numbers in an array of rows, and which are there."""
    size = (row.shape[0], columns.size)
    rows = jnp.broadcast_to(row[:, None], size)
    column, there = columns.place(jax.lax.broadcasted_iota(jnp.int32, size, 1))
    # The interpreter writes whatever is within the array, with its old value where it is masked.
    column = jnp.where(there, column, shape[1])
    return (rows, column), (rows < shape[0]) & there
