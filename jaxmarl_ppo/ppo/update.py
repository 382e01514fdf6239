"""Proximal policy optimisation (Schulman et al. 2017): loss, minibatches, optimiser step."""

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.ops.collectives import all_sum
from jaxmarl_ppo.ops.grouping import group_at
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.bank import PolicyBank
from jaxmarl_ppo.ppo import minibatches
from jaxmarl_ppo.ppo.minibatches import Blocks, Selection
from jaxmarl_ppo.types import Policies, PyTree

# An early stop allows this much more than the target before it ends a policy's steps.
KL_STOP_FACTOR = 1.5
# An adaptive KL penalty stays within these weights. Far beyond what matters beside advantages of
# about 1, and yet near enough to come back from in a few dozen iterations.
MIN_KL_COEF, MAX_KL_COEF = 1e-4, 1e4


@dataclass(frozen=True)
class UpdateShape:
    """What the compiled update depends on."""

    num_epochs: int  # the most of any policy
    num_minibatches: int  # the most of any policy
    micro_batch_blocks: int  # blocks whose gradient is computed at once
    value_clip: str  # "off", "ppo2" or "squared_error"
    kl_control: str  # "off", "early_stop" or "penalty"
    adam_eps: float


class Coefficients(struct.PyTreeNode):
    """Numeric hyper-parameters at this iteration; `[K]`, or of one policy `()`."""

    learning_rate: jax.Array
    entropy_coef: jax.Array
    clip_eps: jax.Array
    value_clip: jax.Array
    value_coef: jax.Array
    max_grad_norm: jax.Array
    target_kl: jax.Array
    kl_coef: jax.Array
    num_epochs: jax.Array  # int
    num_minibatches: jax.Array  # int


class LossSums(struct.PyTreeNode):
    """Sums over decisions; `[K]`, or of one policy `()`."""

    count: jax.Array
    policy_loss: jax.Array
    value_loss: jax.Array
    entropy: jax.Array
    kl: jax.Array
    clip_fraction: jax.Array


class UpdateStats(struct.PyTreeNode):
    """What the minibatches of one iteration saw, `[K]` each."""

    losses: LossSums
    last_epoch_kl: jax.Array  # mean over the last epoch that made steps
    grad_norm: jax.Array  # summed over steps, before clipping
    num_steps: jax.Array  # optimiser steps


class Learning(struct.PyTreeNode):
    """What changes from minibatch to minibatch."""

    params: jax.Array  # [K, W]: all weights of a policy in one row
    opt_state: PyTree  # [K] or [K, W] leaves
    stopped: jax.Array  # [K] bool: ended early by its KL divergence
    stats: UpdateStats


def make_optimiser(coefs: Coefficients, adam_eps: float) -> optax.GradientTransformation:
    """Adam on gradients clipped by their global norm, for one policy."""
    return optax.chain(
        optax.clip_by_global_norm(coefs.max_grad_norm),  # type: ignore[arg-type]
        optax.adam(coefs.learning_rate, eps=adam_eps),
    )


def init_optimiser(params: PyTree, coefs: Coefficients, adam_eps: float) -> PyTree:
    """Optimiser states of all policies, `[K]` or `[K, W]` leaves."""
    return jax.vmap(lambda params, coefs: make_optimiser(coefs, adam_eps).init(params))(
        flatten(params), coefs
    )


def flatten(params: PyTree) -> jax.Array:
    """All weights of each policy in one row: `[K, ...]` leaves to `[K, W]`.

    The optimiser then has one array to go over instead of a dozen small ones, each of which costs
    time to compile and to run.
    """
    return jax.vmap(lambda params: ravel_pytree(params)[0])(params)


def unflatten(flat: jax.Array, like: PyTree) -> PyTree:
    """The inverse, in the form of `like`."""
    unravel = ravel_pytree(jax.tree.map(lambda x: x[0], like))[1]
    return jax.vmap(unravel)(flat)


def update(
    bank: PolicyBank,
    shape: UpdateShape,
    policies: Policies,
    opt_state: PyTree,
    blocks: Blocks,
    coefs: Coefficients,
    key: jax.Array,
    axis_name: str | None = None,
) -> tuple[Policies, PyTree, UpdateStats]:
    """All epochs of one iteration.

    Every policy makes its own `num_epochs * num_minibatches` steps over its own rows, fewer where
    some of its minibatches are empty, as there are fewer rows or chunks than minibatches, or where
    an early stop ends them.

    Args:
        bank: of the policies.
        shape: what is compiled.
        policies: the trainable ones, `[K, ...]`.
        opt_state: theirs.
        blocks: theirs.
        coefs: theirs.
        key: of the shuffling.
        axis_name: of the devices that rows are spread over. Each shuffles its own, and a step
            takes the gradients of all.
    """

    def epoch(learning: Learning, row: tuple[jax.Array, jax.Array]) -> tuple[Learning, None]:
        index, noise = row
        learning = learning.replace(stopped=learning.stopped | (index >= coefs.num_epochs))
        before = learning.stats.losses
        order, first = minibatches.shuffle(noise, blocks)

        def minibatch(learning: Learning, index: jax.Array) -> tuple[Learning, None]:
            selection = minibatches.select_minibatch(
                order, first, blocks.num_blocks, index, coefs.num_minibatches
            )
            stop = jnp.where(learning.stopped, selection.start, selection.stop)
            selection = selection._replace(stop=stop)
            step = _minibatch_step(
                bank, shape, policies, blocks, coefs, learning, selection, axis_name
            )
            return step, None

        learning, _ = jax.lax.scan(minibatch, learning, jnp.arange(shape.num_minibatches))
        sums = jax.tree.map(jnp.subtract, learning.stats.losses, before)
        kl = jnp.where(
            sums.count > 0, sums.kl / jnp.maximum(sums.count, 1), learning.stats.last_epoch_kl
        )
        return learning.replace(stats=learning.stats.replace(last_epoch_kl=kl)), None

    stats = no_stats(blocks.num_blocks.shape[0])
    learning = Learning(flatten(policies.params), opt_state, stats.num_steps > 0, stats)
    # For all epochs at once, since every draw is a program of its own to compile.
    noise = jax.random.uniform(unrolled(key), (shape.num_epochs, blocks.resume.size))
    learning, _ = jax.lax.scan(epoch, learning, (jnp.arange(shape.num_epochs), noise))
    params = unflatten(learning.params, policies.params)
    return policies.replace(params=params), learning.opt_state, learning.stats


def no_stats(num_policies: int) -> UpdateStats:
    """Of an update that has seen nothing."""
    zeros = jnp.zeros(num_policies)
    return UpdateStats(LossSums(*[zeros] * 6), zeros, zeros, zeros)


def _minibatch_step(
    bank: PolicyBank,
    shape: UpdateShape,
    policies: Policies,
    blocks: Blocks,
    coefs: Coefficients,
    learning: Learning,
    selection: Selection,
    axis_name: str | None,
) -> Learning:
    """One optimiser step of every policy that has rows in the minibatch."""
    policies = policies.replace(params=unflatten(learning.params, policies.params))
    num_weights = learning.params.shape[-1]
    own = _accumulate(bank, shape, policies, num_weights, blocks, coefs, selection)
    totals = all_sum(own, axis_name)
    grads, sums = totals[:, :num_weights], LossSums(*totals[:, num_weights:].T)
    count = jnp.maximum(sums.count, 1.0)

    def step(
        coefs: Coefficients, grads: jax.Array, count: jax.Array, opt_state: PyTree, params: Any
    ):
        grads = grads / count
        updates, opt_state = make_optimiser(coefs, shape.adam_eps).update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, optax.tree.norm(grads)

    params, opt_state, grad_norm = jax.vmap(step)(
        coefs, grads, count, learning.opt_state, learning.params
    )
    stepped = sums.count > 0
    stats = learning.stats
    stopped = learning.stopped
    if shape.kl_control == "early_stop":
        stopped |= sums.kl / count > KL_STOP_FACTOR * coefs.target_kl
    return Learning(
        params=where_rows(stepped, params, learning.params),
        opt_state=where_rows(stepped, opt_state, learning.opt_state),
        stopped=stopped,
        stats=stats.replace(
            losses=jax.tree.map(jnp.add, stats.losses, sums),
            grad_norm=stats.grad_norm + jnp.where(stepped, grad_norm, 0.0),
            num_steps=stats.num_steps + stepped,
        ),
    )


def _accumulate(
    bank: PolicyBank,
    shape: UpdateShape,
    policies: Policies,
    num_weights: int,
    blocks: Blocks,
    coefs: Coefficients,
    selection: Selection,
) -> jax.Array:
    """Of a minibatch the summed gradients and, behind them, the `L` losses: `[K, W + L]`.

    It is one array, as it is then exchanged between devices.

    The minibatch is walked in micro-batches of one policy each, small enough to stay in cache. How
    many there are depends on the data, so rows that are not there cost nothing.
    """
    size = shape.micro_batch_blocks
    num_micro = -(-(selection.stop - selection.start) // size)  # [K]
    last = jnp.cumsum(num_micro)
    grad_fn = jax.value_and_grad(policy_loss, argnums=1, has_aux=True)

    def body(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        index, totals = carry
        k = group_at(index, last)
        rows = minibatches.take_micro_batch(
            blocks, selection, k, index - (last[k] - num_micro[k]), size
        )
        policy, coefs_k = jax.tree.map(lambda x: x[k], (policies, coefs))
        (_, sums), grads = grad_fn(policy, policy.params, bank, shape, rows, coefs_k)
        return index + 1, totals.at[k].add(ravel_pytree((grads, sums))[0])

    totals = jnp.zeros((num_micro.shape[0], num_weights + len(fields(LossSums))))
    return jax.lax.while_loop(
        lambda carry: carry[0] < last[-1], body, (jnp.zeros((), last.dtype), totals)
    )[1]


def policy_loss(
    policy: Policies,
    params: PyTree,
    bank: PolicyBank,
    shape: UpdateShape,
    blocks: Blocks,
    coefs: Coefficients,
) -> tuple[jax.Array, LossSums]:
    r"""Clipped surrogate, value and entropy terms, summed over the rows of one policy.

    With `r = pi(a) / pi_old(a)`:
    `-min(r A, clip(r, 1 - eps, 1 + eps) A) + c_v L_v - c_e H + c_kl KL`, where KL is estimated by
    `r - 1 - log r` (Schulman 2020, "Approximating KL divergence"), which is never negative and,
    on actions drawn from the old policy, unbiased for KL(old || new).

    Returns:
        The loss `()` and its parts.
    """
    rows = blocks.rows
    log_prob, entropy, value = bank.evaluate(
        policy.replace(params=params), rows.decisions, blocks.resume, blocks.resume_hidden
    )
    valid = rows.decisions.acted
    log_ratio = jnp.where(valid, log_prob - rows.decisions.log_prob, 0.0)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - coefs.clip_eps, 1.0 + coefs.clip_eps)
    surrogate = -jnp.minimum(ratio * rows.advantage, clipped * rows.advantage)
    value_error = value_loss(value, rows.decisions.value, rows.target, coefs.value_clip, shape)
    kl = ratio - 1.0 - log_ratio
    loss = surrogate + coefs.value_coef * value_error - coefs.entropy_coef * entropy
    if shape.kl_control == "penalty":
        loss += coefs.kl_coef * kl

    def total(x: jax.Array) -> jax.Array:
        return jnp.where(valid, x, 0.0).sum()

    return total(loss), LossSums(
        count=valid.sum(dtype=jnp.float32),
        policy_loss=total(surrogate),
        value_loss=total(value_error),
        entropy=total(entropy),
        kl=total(kl),
        clip_fraction=total((jnp.abs(ratio - 1.0) > coefs.clip_eps).astype(jnp.float32)),
    )


def value_loss(
    value: jax.Array, old_value: jax.Array, target: jax.Array, clip: jax.Array, shape: UpdateShape
) -> jax.Array:
    """Half the squared error per row.

    `value_clip="ppo2"` takes the worse of it and that of a value kept within `clip` of the old one
    (OpenAI Baselines); `"squared_error"` caps the squared error at `clip` (RLlib).
    """
    error = (value - target) ** 2
    if shape.value_clip == "ppo2":
        near = old_value + jnp.clip(value - old_value, -clip, clip)
        error = jnp.maximum(error, (near - target) ** 2)
    elif shape.value_clip == "squared_error":
        error = jnp.minimum(error, clip)
    return 0.5 * error


def adapt_kl_coef(kl_coef: jax.Array, kl: jax.Array, target: jax.Array) -> jax.Array:
    """Raise the penalty by half where KL exceeds twice its target, halve it below half of it.

    It stays within `MIN_KL_COEF` and `MAX_KL_COEF`: at exactly 0 or infinity no factor moves it.
    """
    factor = jnp.where(kl > 2.0 * target, 1.5, jnp.where(kl < 0.5 * target, 0.5, 1.0))
    return jnp.clip(kl_coef * factor, MIN_KL_COEF, MAX_KL_COEF)
