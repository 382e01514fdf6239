"""The update of proximal policy optimisation: epochs of minibatches, each an optimiser step.

The loss is in `loss`, the step in `optimiser`, and the choice of minibatches in `minibatches`.
"""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.collectives import all_sum
from jaxmarl_ppo.ops.grouping import group_at
from jaxmarl_ppo.ops.packing import Packed, pack
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo import minibatches
from jaxmarl_ppo.ppo.loss import LossSums, UpdateShape, policy_loss
from jaxmarl_ppo.ppo.minibatches import Blocks, Selection
from jaxmarl_ppo.ppo.optimiser import flatten, make_optimiser, unflatten
from jaxmarl_ppo.types import Hyperparams, PolicyStack, PyTree

# KL may exceed its target by this factor before an early stop ends a member's steps.
KL_STOP_FACTOR = 1.5
# Bounds of an adaptive KL penalty's weight: far beyond what matters beside advantages of about 1,
# yet near enough to return from in a few dozen iterations.
MIN_KL_COEF, MAX_KL_COEF = 1e-4, 1e4
# Rows of gradients that one kernel adds to their members' sums.
MAX_UNROLLED = 64


@dataclass(frozen=True, eq=False)
class UpdateInputs:
    """Inputs of an update, the same for all of its minibatches.

    Attributes:
        network: of the policy group.
        shape: the static options.
        stack: the trained members before the update, `[K, ...]`.
        blocks: their decisions.
        hyperparams: of these members at this iteration, `[K]`.
        axis_name: of the devices that rows are spread over. Each shuffles its own rows, and a step
            sums the gradients of all.
        packed: the blocks again, for micro-batches of all members side by side.
        magnet: parameters that these members are drawn towards, `[K, ...]` leaves, or None.
    """

    network: StackedNetwork
    shape: UpdateShape
    stack: PolicyStack
    blocks: Blocks
    hyperparams: Hyperparams
    axis_name: str | None = None
    packed: Packed | None = None
    magnet: PyTree = None


# One member with its hyper-parameters and magnet, or all of them.
Member = tuple[PolicyStack, Hyperparams, PyTree]


class UpdateStats(struct.PyTreeNode):
    """Statistics of the minibatches of one iteration, `[K]` each."""

    losses: LossSums
    last_epoch_kl: jax.Array  # mean over the last epoch that made steps
    grad_norm: jax.Array  # summed over steps, before clipping
    num_steps: jax.Array  # optimiser steps
    num_skipped: jax.Array  # steps left out, since they were not finite


class UpdateCarry(struct.PyTreeNode):
    """State that changes from minibatch to minibatch."""

    params: jax.Array  # [K, F]: all weights of a member in one row
    opt_state: PyTree  # [K, ...] leaves
    stopped: jax.Array  # [K] bool: ended early by its KL divergence
    stats: UpdateStats


def update(
    inputs: UpdateInputs, opt_state: PyTree, key: jax.Array
) -> tuple[PolicyStack, PyTree, UpdateStats]:
    """Run all epochs of one iteration's update.

    Every member makes its own `num_epochs * num_minibatches` steps over its own rows. It makes
    fewer if it has fewer rows or chunks than minibatches, or stops early.

    Args:
        inputs: of the update.
        opt_state: of the members, `[K, ...]` leaves.
        key: of the shuffling.

    Returns:
        The members after the update, their optimiser states, and statistics of the minibatches.
    """
    shape, blocks, hyperparams = inputs.shape, inputs.blocks, inputs.hyperparams
    if tuning().packs:
        # A chunk has few rows, with states in sequence.
        moved = tuning().rows_last and not inputs.network.is_recurrent
        inputs = replace(inputs, packed=pack(blocks.contents, moved=moved))

    def epoch(carry: UpdateCarry, row: tuple[jax.Array, jax.Array]) -> tuple[UpdateCarry, None]:
        index, noise = row
        # There are as many epochs as the most of any member; those with fewer skip the last ones.
        carry = carry.replace(stopped=carry.stopped | (index >= hyperparams.num_epochs))
        before = carry.stats.losses
        order, first = minibatches.shuffle(noise, blocks)

        def minibatch(carry: UpdateCarry, index: jax.Array) -> tuple[UpdateCarry, None]:
            selection = minibatches.select_minibatch(
                order, first, blocks.num_blocks, index, hyperparams.num_minibatches
            )
            # An empty range, so no gradient is computed for a member that has stopped.
            stop = jnp.where(carry.stopped, selection.start, selection.stop)
            return _minibatch_step(inputs, carry, selection._replace(stop=stop)), None

        carry, _ = jax.lax.scan(minibatch, carry, jnp.arange(shape.num_minibatches))
        sums = jax.tree.map(jnp.subtract, carry.stats.losses, before)
        kl = jnp.where(
            sums.count > 0, sums.kl / jnp.maximum(sums.count, 1), carry.stats.last_epoch_kl
        )
        return carry.replace(stats=carry.stats.replace(last_epoch_kl=kl)), None

    stats = no_stats(blocks.num_blocks.shape[0])
    params = flatten(inputs.stack.params)
    carry = UpdateCarry(params, opt_state, stats.num_steps > 0, stats)
    # For all epochs at once, since every draw is compiled separately.
    noise = jax.random.uniform(unrolled(key), (shape.num_epochs, blocks.target.shape[0]))
    carry, _ = jax.lax.scan(epoch, carry, (jnp.arange(shape.num_epochs), noise))
    params = unflatten(carry.params, inputs.stack.params)
    return inputs.stack.replace(params=params), carry.opt_state, carry.stats


def no_stats(num_members: int) -> UpdateStats:
    """Make empty statistics of an update."""
    zeros = jnp.zeros(num_members)
    return UpdateStats(LossSums(*[zeros] * len(fields(LossSums))), zeros, zeros, zeros, zeros)


def _minibatch_step(inputs: UpdateInputs, carry: UpdateCarry, selection: Selection) -> UpdateCarry:
    """Take one optimiser step of every member that has rows in the minibatch."""
    num_weights = carry.params.shape[-1]
    own = _accumulate(inputs, carry.params, selection)
    totals = all_sum(own, inputs.axis_name)
    grads, sums = totals[:, :num_weights], LossSums(*totals[:, num_weights:].T)
    count = jnp.maximum(sums.count, 1.0)

    def step(
        hyperparams: Hyperparams,
        grads: jax.Array,
        count: jax.Array,
        opt_state: PyTree,
        params: jax.Array,
    ):
        grads = grads / count
        optimiser = make_optimiser(hyperparams, inputs.shape, inputs.stack.params)
        updates, opt_state = optimiser.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, optax.tree.norm(grads)

    params, opt_state, grad_norm = jax.vmap(step)(
        inputs.hyperparams, grads, count, carry.opt_state, carry.params
    )
    # Without rows the step is skipped: even with gradient 0 momentum would move the weights.
    stepped = sums.count > 0
    stats = carry.stats
    num_skipped = stats.num_skipped
    if inputs.shape.skips_nonfinite:
        # A norm may be infinite though all gradients are finite; clipping by it would make all 0.
        skipped = stepped & ~(jnp.isfinite(totals).all(-1) & jnp.isfinite(grad_norm))
        stepped, num_skipped = stepped & ~skipped, num_skipped + skipped
        # Otherwise one of them would hide all others in the log.
        sums = jax.tree.map(lambda x: jnp.where(skipped, 0.0, x), sums)
    stopped = carry.stopped
    if inputs.shape.kl_control == "early_stop":
        stopped |= sums.kl / count > KL_STOP_FACTOR * inputs.hyperparams.target_kl
    return UpdateCarry(
        params=where_rows(stepped, params, carry.params),
        opt_state=where_rows(stepped, opt_state, carry.opt_state),
        stopped=stopped,
        stats=stats.replace(
            losses=jax.tree.map(jnp.add, stats.losses, sums),
            grad_norm=stats.grad_norm + jnp.where(stepped, grad_norm, 0.0),
            num_steps=stats.num_steps + stepped,
            num_skipped=num_skipped,
        ),
    )


def _accumulate(inputs: UpdateInputs, params: jax.Array, selection: Selection) -> jax.Array:
    """Sum the gradients of a minibatch, followed in each row by the fields of `LossSums`.

    The result is one array, `[K, W + fields]`, for exchange between devices.

    The minibatch is processed in micro-batches. If their number depends on the data, missing rows
    cost nothing; if it is fixed, it need not be read from the device.
    """
    shape = inputs.shape
    if shape.fused:
        return _accumulate_fused(inputs, params, selection)
    stack = inputs.stack.replace(params=unflatten(params, inputs.stack.params))
    totals = jnp.zeros((params.shape[0], params.shape[-1] + len(fields(LossSums))))
    walk = _walk_side_by_side if shape.side_by_side else _walk_in_turn
    with jax.named_scope("gradients"):
        return walk(inputs, stack, selection, totals)


def _accumulate_fused(inputs: UpdateInputs, params: jax.Array, selection: Selection) -> jax.Array:
    """Do the same in one kernel, which finds the rows of a minibatch where they are packed."""
    # Pallas takes a while to import, and a CPU has no use for it.
    from jaxmarl_ppo.ppo import fused_gradient

    assert inputs.packed is not None, "a fused gradient reads packed blocks"
    magnet = None if inputs.magnet is None else flatten(inputs.magnet)
    with jax.named_scope("gradients"):
        return fused_gradient.sum_gradients(
            inputs.network,
            inputs.shape,
            inputs.packed,
            params,
            inputs.stack.obs_moments,
            inputs.hyperparams,
            selection,
            magnet,
        )


def _walk_side_by_side(
    inputs: UpdateInputs, stack: PolicyStack, selection: Selection, totals: jax.Array
) -> jax.Array:
    """Add up micro-batches of all members, with a share of rows for each."""
    members = jnp.arange(totals.shape[0])

    def gradient(member: Member, k: jax.Array, index: jax.Array) -> jax.Array:
        return _gradient(inputs, member, selection, k, index)

    def body(index: jax.Array, totals: jax.Array) -> jax.Array:
        every = jax.vmap(gradient, in_axes=(0, 0, None))
        return totals + every((stack, inputs.hyperparams, inputs.magnet), members, index)

    return jax.lax.fori_loop(0, inputs.shape.num_micro_batches, body, totals)


def _walk_in_turn(
    inputs: UpdateInputs, stack: PolicyStack, selection: Selection, totals: jax.Array
) -> jax.Array:
    """Add up micro-batches of one member each, member after member."""
    shape = inputs.shape
    num_micro = -(-(selection.stop - selection.start) // shape.micro_batch_blocks)  # [K]
    last = jnp.cumsum(num_micro)

    def gradients_at(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Past the last one it is empty.
        k = jnp.minimum(group_at(index, last), totals.shape[0] - 1)
        member = jax.tree.map(lambda x: x[k], (stack, inputs.hyperparams, inputs.magnet))
        own_index = index - (last[k] - num_micro[k])
        return k, _gradient(inputs, member, selection, k, own_index)

    def body(index: jax.Array, totals: jax.Array) -> jax.Array:
        k, found = gradients_at(index)
        return totals.at[k].add(found)

    def several(index: jax.Array, totals: jax.Array) -> jax.Array:
        k, found = jax.vmap(gradients_at)(index * shape.at_once + jnp.arange(shape.at_once))
        return add_by_policy(totals, k, found)

    if shape.num_micro_batches is not None:
        return jax.lax.fori_loop(0, -(-shape.num_micro_batches // shape.at_once), several, totals)
    return jax.lax.while_loop(
        lambda carry: carry[0] < last[-1],
        lambda carry: (carry[0] + 1, body(*carry)),
        (jnp.zeros((), last.dtype), totals),
    )[1]


def _gradient(
    inputs: UpdateInputs, member: Member, selection: Selection, k: jax.Array, index: jax.Array
) -> jax.Array:
    """Compute the gradient and, behind it, the loss sums of micro-batch `index` of member `k`."""
    shape, (policy, hyperparams, magnet) = inputs.shape, member
    rows = minibatches.take_micro_batch(
        inputs.packed or inputs.blocks, selection, k, index, shape.micro_batch_blocks
    )
    grad_fn = jax.value_and_grad(policy_loss, argnums=1, has_aux=True)

    def of_rows(rows: Blocks) -> jax.Array:
        (_, sums), grads = grad_fn(
            policy, policy.params, inputs.network, shape, rows, hyperparams, magnet
        )
        return ravel_pytree((grads, sums))[0]

    if shape.num_parts == 1:
        return of_rows(rows)
    parts = jax.tree.map(lambda x: x.reshape(shape.num_parts, -1, *x.shape[1:]), rows)
    return jax.vmap(of_rows)(parts).sum(0)


def add_by_policy(totals: jax.Array, k: jax.Array, found: jax.Array) -> jax.Array:
    """Add rows `found [N, F]` to those of their members, `totals [K, F]`; `k [N]` are the members.

    One after the other: a scatter's order would vary between runs. For a sum over `N`, XLA first
    transposes all of them, which took three fifths of a GPU's iteration.
    """

    def add(totals: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        k, found = row
        mine = jnp.arange(totals.shape[0]) == k
        return totals + jnp.where(mine[:, None], found, 0.0), None

    return jax.lax.scan(add, totals, (k, found), unroll=min(len(k), MAX_UNROLLED))[0]


def adapt_kl_coef(kl_coef: jax.Array, kl: jax.Array, target: jax.Array) -> jax.Array:
    """Adapt the weight of the KL penalty to how far KL is from its target.

    It is raised by half where KL exceeds twice its target, and halved where KL is below half of it.
    It stays within `MIN_KL_COEF` and `MAX_KL_COEF`: at exactly 0 or infinity no factor moves it.
    """
    factor = jnp.where(kl > 2.0 * target, 1.5, jnp.where(kl < 0.5 * target, 0.5, 1.0))
    return jnp.clip(kl_coef * factor, MIN_KL_COEF, MAX_KL_COEF)


def move_average(
    average: PyTree, params: PyTree, rate: jax.Array | None, stats: UpdateStats
) -> PyTree:
    """Move averages of parameters towards the newest, for members that made a step.

    Args:
        average: `[K, ...]` leaves; None for none, which stays.
        params: the newest, likewise.
        rate: `[K]`, the weight of the newest; None without an average.
        stats: of the update.
    """
    if average is None or rate is None:
        return None

    def mixed(old: jax.Array, new: jax.Array) -> jax.Array:
        return old + rate.reshape(-1, *[1] * (new.ndim - 1)) * (new - old)

    return where_rows(stats.num_steps > 0, jax.tree.map(mixed, average, params), average)
