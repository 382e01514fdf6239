"""Small MLPs in kernels of a GPU, written in Pallas for Triton: their layers, and acting.

The layers of a network that are computed together are a tower: those of actor or critic, or of both
where they share some. A program of a kernel holds the weights of a tower, and computes all of its
layers for a tile of rows, so activations stay on the chip. `forward` here is the kernel of acting;
`ppo/fused_gradient.py` has that of learning.

Triton's arrays have powers of two as sizes, and at least 16 for products. Padded inputs, weights
and outputs are 0, for which all activations are 0, and padded actions are illegal: they change
nothing.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxmarl_envs.backend import backend
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.networks.layers import ACTIVATIONS
from jaxmarl_ppo.networks.matmul import dot_general_in
from jaxmarl_ppo.networks.precision import at_precision
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import PyTree

# The least size of an axis of a product.
MIN_SIZE = 16
# Rows of a tile when acting.
TILE_ROWS = 64


@dataclass(frozen=True)
class Weights:
    """Place of a weight matrix or bias, `shape`, among a policy's leaves, and in its row."""

    index: int
    begin: int
    shape: tuple[int, ...]

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """Return its shape, padded."""
        return tuple(map(padded, self.shape))

    def axes(self) -> tuple[jax.Array, ...]:
        """Return the index of every padded weight along each axis."""
        number = range(len(self.shape))
        return tuple(
            jax.lax.broadcasted_iota(jnp.int32, self.padded_shape, axis) for axis in number
        )

    def place(self) -> tuple[jax.Array, jax.Array]:
        """Return the index of every padded weight in the row, and whether it is there."""
        each = self.axes()
        index, there = each[0], each[0] < self.shape[0]
        for x, size in zip(each[1:], self.shape[1:], strict=True):
            index, there = index * size + x, there & (x < size)
        return self.begin + index, there


@dataclass(frozen=True)
class Tower:
    """Layers that are computed together: of the actor, of the critic, or of both.

    Attributes:
        layers: kernel and bias of each shared layer.
        heads: by what they compute, "policy" or "value": layers of it alone, the last without
            activation.
        num_inputs: how many of the inputs it sees.
    """

    layers: tuple[tuple[Weights, Weights], ...]
    heads: dict[str, tuple[tuple[Weights, Weights], ...]]
    num_inputs: int

    @property
    def size(self) -> int:
        """Number of its weights, padded."""
        leaves = jax.tree.leaves((self.layers, self.heads))
        return sum(math.prod(leaf.padded_shape) for leaf in leaves)


def padded(size: int) -> int:
    """Round the size of an axis up to one that Triton multiplies."""
    return max(MIN_SIZE, 1 << (size - 1).bit_length())


def towers_of(network: StackedNetwork) -> tuple[Tower, ...]:
    """List the towers of a network, with the places of their weights."""
    module = network.module
    assert isinstance(module, MLP)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)).params)
    leaves, structure = jax.tree.flatten(params)
    begin, found = 0, []
    for index, leaf in enumerate(leaves):
        shape = leaf.shape[1:]
        found.append(Weights(index, begin, shape))
        begin += math.prod(shape)
    tree = jax.tree.unflatten(structure, found)

    def torso(name: str, sizes: Any) -> tuple[tuple[Weights, Weights], ...]:
        layers = (tree[name][f"Dense_{index}"] for index in range(len(sizes)))
        return tuple((layer["kernel"], layer["bias"]) for layer in layers)

    def head(who: str, name: str) -> tuple[tuple[Weights, Weights], ...]:
        last = tree[name]
        return (*torso(f"{who}_head_torso", module.head_sizes), (last["kernel"], last["bias"]))

    heads = {"policy": head("actor", "policy_head"), "value": head("critic", "value_head")}
    (width,) = network.input_shape
    sizes = module.hidden_sizes
    if not module.separate_critic:
        return (Tower(torso("trunk_torso", sizes), heads, width),)
    return (
        Tower(
            torso("actor_torso", sizes), {"policy": heads["policy"]}, module.actor_width or width
        ),
        Tower(torso("critic_torso", sizes), {"value": heads["value"]}, width),
    )


def run_tower(
    network: StackedNetwork, tower: Tower, params: PyTree, inputs: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute logits `[R, N]` and values `[R]` of rows; 0 for the head that a tower lacks."""
    module = network.module
    assert isinstance(module, MLP)
    activate, product = ACTIVATIONS[module.activation], dot_general_in(network.matmul_precision)
    shared, heads = params

    def dense(x: jax.Array, layer: tuple[jax.Array, jax.Array]) -> jax.Array:
        kernel, bias = layer
        return product(x, kernel, (((1,), (0,)), ((), ()))) + bias[None, :]

    def run(x: jax.Array, layers: Any) -> jax.Array:
        for layer in layers:
            x = activate(dense(x, layer))
        return x

    trunk = run(inputs, shared)
    num_rows = inputs.shape[0]
    outputs = jnp.zeros((num_rows, padded(network.distribution.num_outputs)), jnp.float32)
    value = jnp.zeros(num_rows, jnp.float32)
    if "policy" in heads:
        *hidden, last = heads["policy"]
        outputs = dense(run(trunk, hidden), last)
    if "value" in heads:
        *hidden, last = heads["value"]
        # The other columns are padding.
        column = dense(run(trunk, hidden), last)
        first = jax.lax.broadcasted_iota(jnp.int32, column.shape, 1) == 0
        value = jnp.where(first, column, 0.0).sum(1)
    return outputs, value


def run_without_gradient(
    network: StackedNetwork, tower: Tower, params: PyTree, inputs: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Do the same where nothing is differentiated.

    Triton does not know functions with a gradient of their own (`networks/matmul.py`): `vjp` leaves
    what they compute beforehand.
    """
    return jax.vjp(lambda params: run_tower(network, tower, params, inputs), params)[0]


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
    tile, which = jnp.divmod(pl.program_id(0), len(towers))
    row = tile * TILE_ROWS + jax.lax.broadcasted_iota(jnp.int32, (TILE_ROWS,), 0)

    def load(own: Weights) -> jax.Array:
        axes = own.axes()
        there = functools.reduce(
            jnp.logical_and, [x < size for x, size in zip(axes, own.shape, strict=True)]
        )
        return triton.load(params_refs[own.index].at[axes], mask=there, other=0.0)

    def run(tower: Tower) -> None:
        params = jax.tree.map(load, (tower.layers, tower.heads))
        place, there = _rows_of(row, value_ref.shape[0], tower.num_inputs)
        inputs = triton.load(inputs_ref.at[place], mask=there, other=0.0)
        outputs, value = run_without_gradient(network, tower, params, inputs)
        if "policy" in tower.heads:
            place, there = _rows_of(row, *outputs_ref.shape)
            triton.store(outputs_ref.at[place], outputs, mask=there)
        if "value" in tower.heads:
            triton.store(value_ref.at[row], value, mask=row < value_ref.shape[0])

    for index, tower in enumerate(towers):
        if len(towers) == 1:
            run(tower)
        else:
            pl.when(which == index)(functools.partial(run, tower))


def _rows_of(
    row: jax.Array, num_rows: int, num_columns: int
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Return the places of a tile's numbers in `[num_rows, num_columns]`, and which are there."""
    size = (row.shape[0], padded(num_columns))
    rows = jnp.broadcast_to(row[:, None], size)
    columns = jax.lax.broadcasted_iota(jnp.int32, size, 1)
    return (rows, columns), (rows < num_rows) & (columns < num_columns)
