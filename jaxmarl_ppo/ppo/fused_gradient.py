r"""The gradient of a minibatch of small MLPs as one kernel of a GPU, written in Pallas for Triton.

In the ordinary path (`update._gradient`) every layer is a kernel that reads its input from memory
and writes its output there, and the backward pass does so again. For narrow layers these bytes take
longer than the arithmetic. Here activations stay on the chip. The kernel reads only weights and the
rows of a minibatch, in place, and writes only sums of gradients.

Each policy's rows are cut into tiles of `R` rows, shared out among programs. A program holds the
weights of one tower (the layers of actor or critic, or of both where they share them), and the sums
`G` of its gradients. For each of its tiles it computes, with rows `x [R, D]`, `h_0 = x`:

    h_i = f(h_(i-1) W_i + b_i)           for the hidden layers
    y = h_n W + b                        inputs of distributions, or values `[R, 1]`
    g = d(sum of the rows' losses)/dy    by `loss.row_losses`, the same as of the ordinary path
    G_W += h_n^T g, G_b += 1^T g, g_n = g W^T * f'(h_n), and so on down to the first layer

The backward pass is that of JAX: the kernel's body calls `jax.grad`, so loss, activations and the
rounding of products (`networks/matmul.py`) are defined once, for both paths. Sums over rows are in
float32, tile after tile, then over programs, always in the same order.

Triton's arrays have powers of two as sizes, and at least 16 for products. Padded inputs, weights
and outputs are 0, for which all activations are 0, and padded actions are illegal: they change
nothing, and gradients of padding are not stored.
"""

import functools
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxmarl_envs.backend import backend
from jaxmarl_ppo.networks.precision import at_precision
from jaxmarl_ppo.ops import running_moments
from jaxmarl_ppo.ops.packing import Packed, Place, places
from jaxmarl_ppo.policies.fused_distribution import (
    Columns,
    TileDistribution,
    padded,
    tile_distribution,
)
from jaxmarl_ppo.policies.fused_network import (
    Tower,
    Weights,
    run_tower,
    run_without_gradient,
    towers_of,
)
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo.loss import LossSums, UpdateShape, row_losses
from jaxmarl_ppo.ppo.minibatches import Selection
from jaxmarl_ppo.types import Hyperparams, Moments, PyTree

# Rows of a tile.
TILE_ROWS = 32
# Programs of all policies and towers: two for each multiprocessor of a large GPU.
NUM_PROGRAMS = 264
# Most weights of a tower that a program holds while it walks over its tiles. More, or those of
# products without tensor cores, leave too few registers for the rest, of which a thread has 255:
# they are read again for every tile, which the second-level cache serves.
MAX_HELD = 16384
# Pallas addresses single bytes with 32 bits and a sign.
MAX_BYTES = 2**31 - 1
NUM_LOSSES = len(fields(LossSums))


def sum_gradients(
    network: StackedNetwork,
    shape: UpdateShape,
    packed: Packed,
    params: jax.Array,
    obs_moments: Moments | None,
    hyperparams: Hyperparams,
    selection: Selection,
    magnet: jax.Array | None = None,
) -> jax.Array:
    """Sum the gradients of a minibatch, followed in each row by the fields of `LossSums`.

    Args:
        network: of the policy group, for which `why_not_fused` is None.
        shape: the static options.
        packed: `Blocks.contents`, `C` blocks of `B` rows.
        params: `[K, W]`, the weights of each policy in a row.
        obs_moments: of the policies' observations, `[K, D]`; None where they are as they are.
        hyperparams: of the policies, `[K]`.
        selection: the minibatch.
        magnet: `[K, W]`, parameters that policies are drawn towards; None without.

    Returns:
        `[K, W + fields]`, as `update._accumulate`.

    Raises:
        ValueError: If there are more blocks than the kernel can address.
    """
    if packed.bytes.size > MAX_BYTES:
        raise ValueError(
            f"fused_gradients=True: masks of {packed.bytes.size / 1e9:.1f} GB on a device are more "
            "than the 2.1 GB that it can address; spread environments over more devices, or drop it"
        )
    towers = towers_of(network)
    num_policies, num_weights = params.shape
    num_programs = max(1, NUM_PROGRAMS // (num_policies * len(towers)))
    narrow = all(tower.size <= MAX_HELD for tower in towers)
    options = triton.CompilerParams(num_warps=8 if narrow else 16, num_stages=1)
    width = num_weights + NUM_LOSSES
    # A column more for what is not stored; rows begin with a cache line.
    padded_width = -(-(width + 1) // 32) * 32
    operands = {
        "params": params,
        "magnet": magnet,
        "moments": obs_moments,
        "hyperparams": hyperparams,
        "order": selection.order,
        "start": selection.start,
        "stop": selection.stop,
        "words": packed.words,
        "bytes": packed.bytes,
    }
    on_chip = backend() == "gpu"
    with at_precision(network.matmul_precision):
        parts = pl.pallas_call(
            functools.partial(_kernel, network, shape, towers, places(packed), num_programs),
            out_shape=jax.ShapeDtypeStruct((num_policies, num_programs, padded_width), jnp.float32),
            # One axis, since `vmap` adds its own, and a GPU's grid has no more than three.
            grid=(num_policies * num_programs * len(towers),),
            compiler_params=options if on_chip else None,
            interpret=not on_chip,
            name="fused_gradient",
        )(operands)
    return parts.sum(1)[:, :width]


def _kernel(
    network: StackedNetwork,
    shape: UpdateShape,
    towers: tuple[Tower, ...],
    fields_of_rows: PyTree,
    num_programs: int,
    refs: dict[str, Any],
    sums_ref: Any,
) -> None:
    """Run one program: a share of one policy's tiles in one tower."""
    rest, which = jnp.divmod(pl.program_id(0), len(towers))
    k, program = jnp.divmod(rest, num_programs)
    for index, tower in enumerate(towers):
        run = functools.partial(
            _sum_tiles,
            *(network, shape, tower, fields_of_rows, num_programs, refs, sums_ref, k, program),
        )
        if len(towers) == 1:
            run()
        else:
            pl.when(which == index)(run)


def _sum_tiles(
    network: StackedNetwork,
    shape: UpdateShape,
    tower: Tower,
    fields_of_rows: PyTree,
    num_programs: int,
    refs: dict[str, Any],
    sums_ref: Any,
    k: jax.Array,
    program: jax.Array,
) -> None:
    """Sum the gradients of a tower over this program's tiles, and store them."""
    holds = tower.size <= MAX_HELD and network.matmul_precision != "float32"

    def weights(ref: Any) -> PyTree:
        def load(own: Weights) -> jax.Array:
            index, there = own.place()
            # Triton moves what is not volatile out of the loop.
            return triton.load(ref.at[k, index], mask=there, other=0.0, volatile=not holds)

        return None if ref is None else jax.tree.map(load, tower.weights)

    hyperparams = jax.tree.map(lambda ref: ref[k], refs["hyperparams"])
    moments = _load_moments(refs["moments"], k, tower.num_inputs)
    held = (weights(refs["params"]), weights(refs["magnet"])) if holds else None
    start, stop = refs["start"][k], refs["stop"][k]
    block_size = fields_of_rows.advantage.shape[0]
    num_tiles = jax.lax.div((stop - start) * block_size + TILE_ROWS - 1, TILE_ROWS)
    distribution = tile_distribution(network.distribution)

    def add_tile(index: jax.Array, sums: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        tile = program + index * num_programs
        params, magnet = held or (weights(refs["params"]), weights(refs["magnet"]))
        rows = _load_rows(distribution, fields_of_rows, refs, start, stop, tile, tower.num_inputs)
        inputs = rows.decisions.inputs
        if moments is not None:
            inputs = running_moments.standardise(moments, inputs)

        others = None
        if magnet is not None:
            others, _ = run_without_gradient(network, magnet, inputs)

        def loss(params: PyTree) -> tuple[jax.Array, LossSums]:
            outputs, value = run_tower(network, params, inputs)
            loss, parts = row_losses(distribution, shape, rows, hyperparams, outputs, value, others)
            return loss.sum(), parts

        grads, parts = jax.grad(loss, has_aux=True)(params)
        return jax.tree.map(jnp.add, sums, (grads, parts))

    zeros = (
        jax.tree.map(lambda own: jnp.zeros(own.padded_shape, jnp.float32), tower.weights),
        LossSums(*[jnp.zeros(TILE_ROWS, jnp.float32)] * NUM_LOSSES),
    )
    number = jax.lax.div(num_tiles - program + num_programs - 1, num_programs)
    grads, parts = jax.lax.fori_loop(0, number, add_tile, zeros)

    num_weights = refs["params"].shape[-1]
    _store_sums(tower, grads, parts, sums_ref, k, program, num_weights)


def _store_sums(
    tower: Tower,
    grads: PyTree,
    parts: LossSums,
    sums_ref: Any,
    k: jax.Array,
    program: jax.Array,
    num_weights: int,
) -> None:
    """Store the sums of a program, `[K, programs, W + fields and more]`, as far as they are its."""

    def store(own: Weights, x: jax.Array) -> None:
        index, there = own.place()
        # Elsewhere two threads could write to the same place.
        index = jnp.where(there, index, sums_ref.shape[-1] - 1)
        triton.store(sums_ref.at[k, program, index], x, mask=there)

    jax.tree.map(store, tower.weights, grads)
    for index, field in enumerate(fields(LossSums)):
        # The rest is of another tower.
        if (tower.value if field.name == "value_loss" else tower.policy) is not None:
            sums_ref[k, program, num_weights + index] = getattr(parts, field.name).sum()


def _load_moments(refs: Any, k: jax.Array, num_inputs: int) -> Moments | None:
    """Load the moments of one policy's inputs; padded inputs, 0, have mean 0 and variance 1."""
    if refs is None:
        return None
    columns = jax.lax.broadcasted_iota(jnp.int32, (padded(num_inputs),), 0)
    there = columns < num_inputs
    mean, var = (
        triton.load(ref.at[k, columns], mask=there, other=other)
        for ref, other in ((refs.mean, 0.0), (refs.var, 1.0))
    )
    return Moments(refs.count[k], mean, var)


def _load_rows(
    distribution: TileDistribution,
    fields_of_rows: PyTree,
    refs: dict[str, Any],
    start: jax.Array,
    stop: jax.Array,
    tile: jax.Array,
    num_inputs: int,
) -> PyTree:
    """Load the rows of a tile where they lie; those past the policy's last one have not acted."""
    block_size = fields_of_rows.advantage.shape[0]
    row = tile * TILE_ROWS + jax.lax.broadcasted_iota(jnp.int32, (TILE_ROWS,), 0)
    position = start + jax.lax.div(row, block_size)
    within = jax.lax.rem(row, block_size)
    block = triton.load(refs["order"].at[jnp.minimum(position, refs["order"].shape[0] - 1)])

    def load(own: Place, columns: Columns | None = None) -> jax.Array:
        ref = refs[own.kind]
        if columns is None:
            return own.from_bits(triton.load(ref.at[block, own.begin + within]))
        size = (TILE_ROWS, columns.size)
        column, there = columns.place(jax.lax.broadcasted_iota(jnp.int32, size, 1))
        bits = triton.load(
            ref.at[
                jnp.broadcast_to(block[:, None], size),
                own.begin + (within * own.shape[1])[:, None] + column,
            ],
            mask=there,
            other=0,
        )
        return own.from_bits(bits)

    places = fields_of_rows.decisions
    actions = {"action": places.action, "imitated": places.imitated}
    decisions = places.replace(inputs=None, action_mask=None, action=None, imitated=None)
    rows = jax.tree.map(load, fields_of_rows.replace(decisions=decisions))
    decisions = rows.decisions.replace(
        inputs=load(places.inputs, Columns((num_inputs,))),
        action_mask=distribution.load_mask(load, places.action_mask),
        acted=rows.decisions.acted & (position < stop),
        **{name: distribution.load_action(load, own) for name, own in actions.items() if own},
    )
    return rows.replace(decisions=decisions)
