"""The loss of proximal policy optimisation (Schulman et al. 2017)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.actions import Action
from jaxmarl_ppo.networks.distributions import ActionDistribution
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo.minibatches import Blocks
from jaxmarl_ppo.types import Decisions, Hyperparams, PolicyStack, PyTree


@dataclass(frozen=True)
class UpdateShape:
    """Static options of an update, which its compiled program depends on."""

    num_epochs: int  # the most of any policy
    num_minibatches: int  # the most of any policy
    micro_batch_blocks: int  # blocks of one member whose gradient is computed at once
    value_clip: str  # "off", "ppo2" or "squared_error"
    kl_control: str  # "off", "early_stop" or "penalty"
    adam_eps: float
    magnet: str = "off"  # or "average"
    optimiser: str | Callable[..., Any] = "adam"  # as in `PPOConfig`
    skips_nonfinite: bool = False  # whether steps that are not finite are left out
    # Number of gradients per minibatch, some possibly without rows; None for as many as rows need.
    num_micro_batches: int | None = None
    at_once: int = 1  # how many of these are computed at once
    side_by_side: bool = False  # or whether each of them is of all members at once
    # Sums over many rows take two kernels each, one for parts and one for their sum. If the
    # gradient of each part is computed first, one sum remains.
    num_parts: int = 1
    fused: bool = False  # whether one kernel computes all gradients of a minibatch


class LossSums(struct.PyTreeNode):
    """Parts of the loss, summed over decisions; `[K]`, or of one policy `()`."""

    count: jax.Array
    policy_loss: jax.Array
    value_loss: jax.Array
    entropy: jax.Array
    kl: jax.Array
    clip_fraction: jax.Array
    imitation: jax.Array


def policy_loss(
    policy: PolicyStack,
    params: PyTree,
    network: StackedNetwork,
    shape: UpdateShape,
    blocks: Blocks,
    hyperparams: Hyperparams,
    magnet: PyTree = None,
) -> tuple[jax.Array, LossSums]:
    """Sum `row_losses` up over one policy's decisions, played again with its parameters.

    Returns:
        The loss `()` and its parts.
    """
    decisions = blocks.decisions
    memory = (blocks.resume, blocks.resume_hidden)
    outputs, value = network.replay(policy.replace(params=params), decisions, *memory)
    others = None
    if shape.magnet != "off":
        others, _ = network.replay(policy.replace(params=magnet), decisions, *memory)
    loss, parts = row_losses(
        network.distribution, shape, blocks, hyperparams, outputs, value, others
    )
    return loss.sum(), jax.tree.map(jnp.sum, parts)


def row_losses(
    distribution: ActionDistribution,
    shape: UpdateShape,
    blocks: Blocks,
    hyperparams: Hyperparams,
    outputs: Any,
    value: jax.Array,
    others: Any = None,
) -> tuple[jax.Array, LossSums]:
    r"""Compute the clipped surrogate, value and entropy terms of one policy's decisions.

    With `r = pi(a) / pi_old(a)`: `-min(r A, clip(r, 1 - eps, 1 + eps) A) + c_v L_v - c_e H + c_kl
    KL`, where KL is estimated by `r - 1 - log r` (Schulman 2020, "Approximating KL divergence"),
    which is never negative and, on actions drawn from the old policy, unbiased for KL(old || new).
    With the outputs of a magnet, `others`, there is a term `c_m KL(pi || magnet)`, exact over all
    actions. With a log barrier there is `c_b KL(uniform || pi)`, over the legal options of choices.
    Where a scripted policy is imitated there is `-c_i log pi(a*)`, with its action `a*`.

    Args:
        distribution: of the policy's actions.
        shape: the static options.
        blocks: the decisions, `[...]`.
        hyperparams: of the policy, `()`.
        outputs: the parameters of the distribution, `[..., outputs]`, or as else it takes them.
        value: `[...]`.
        others: the magnet's outputs; None without one.

    Returns:
        The loss and its parts, `[...]`, 0 for padding.
    """
    decisions, mask = blocks.decisions, blocks.decisions.action_mask
    log_prob = distribution.log_prob(outputs, mask, decisions.action)
    entropy = distribution.entropy(outputs, mask)
    valid = decisions.acted
    # Masked before the exponential, which could overflow in padding and make the gradient NaN.
    log_ratio = jnp.where(valid, log_prob - decisions.log_prob, 0.0)
    ratio = jnp.exp(log_ratio)
    clipped = _clip(ratio, 1.0 - hyperparams.clip_eps, 1.0 + hyperparams.clip_eps)
    surrogate = -_lesser(ratio * blocks.advantage, clipped * blocks.advantage)
    value_error = value_loss(
        value, decisions.value, blocks.target, hyperparams.value_clip_eps, shape
    )
    kl = ratio - 1.0 - log_ratio
    loss = surrogate + hyperparams.value_coef * value_error - hyperparams.entropy_coef * entropy
    if shape.kl_control == "penalty":
        loss += hyperparams.kl_coef * kl
    if others is not None:
        loss += hyperparams.magnet_coef * distribution.kl(outputs, others, mask)
    if hyperparams.log_barrier_coef is not None:
        loss += hyperparams.log_barrier_coef * distribution.kl_from_uniform(outputs, mask)
    imitation = jnp.zeros_like(log_prob)
    if decisions.imitated is not None:
        imitation = imitation_loss(distribution, outputs, decisions)
        loss += hyperparams.imitate_coef * imitation

    def of_real_rows(x: jax.Array) -> jax.Array:
        return jnp.where(valid, x, 0.0)

    return of_real_rows(loss), LossSums(
        count=valid.astype(jnp.float32),
        policy_loss=of_real_rows(surrogate),
        value_loss=of_real_rows(value_error),
        entropy=of_real_rows(entropy),
        kl=of_real_rows(kl),
        clip_fraction=of_real_rows(
            (jnp.abs(ratio - 1.0) > hyperparams.clip_eps).astype(jnp.float32)
        ),
        imitation=of_real_rows(imitation),
    )


def imitation_loss(
    distribution: ActionDistribution, outputs: jax.Array, decisions: Decisions
) -> jax.Array:
    """Compute `-log pi(a*)` of the imitated actions in each row; 0 where there is none."""
    imitated, mask = decisions.imitated, decisions.action_mask
    assert imitated is not None
    choices = imitated.choices if isinstance(imitated, Action) else imitated
    if choices is None or not jnp.issubdtype(
        choices.dtype, jnp.integer
    ):  # of real vectors each can be done
        return -distribution.log_prob(outputs, mask, imitated)
    shown = (choices.min(-1) if isinstance(imitated, Action) else choices) >= 0
    # The taken action is always legal, so no infinity has to be masked afterwards.
    action = where_rows(shown, imitated, decisions.action)
    return jnp.where(shown, -distribution.log_prob(outputs, mask, action), 0.0)


def value_loss(
    value: jax.Array, old_value: jax.Array, target: jax.Array, clip: jax.Array, shape: UpdateShape
) -> jax.Array:
    """Compute half the squared error of V in each row.

    `value_clip="ppo2"` takes the larger of it and that of a value clipped to within `clip` of the
    old one (OpenAI Baselines); `"squared_error"` caps the squared error at `clip` (RLlib).
    """
    error = (value - target) ** 2
    if shape.value_clip == "ppo2":
        near = old_value + _clip(value - old_value, -clip, clip)
        error = -_lesser(-error, -((near - target) ** 2))
    elif shape.value_clip == "squared_error":
        error = _lesser(error, clip)
    return 0.5 * error


def _lesser(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the lesser of two numbers.

    The gradient of `jnp.minimum` goes to what equals the result. Where a compiler computes both
    twice, and rounds otherwise the second time, nothing does, and the gradient is lost. That of a
    selection always goes to one of them.
    """
    return jnp.where(x <= y, x, y)


def _clip(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Hold `x` between two bounds, by selections as in `_lesser`."""
    return jnp.where(x < low, low, jnp.where(x > high, high, x))
