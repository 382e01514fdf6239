"""The data that flows through one training step, and the axis letters.

`T` ticks in a rollout, `E` parallel environments, `A` agent slots, `D` input width, `N` action
count (or action dimensions), `K` policies, `R = (1 + T) * E * A` rows of a rollout. Row 0 of the
leading axis `1 + T` holds the decisions that the rollout before left open.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import Observation

PyTree = Any


class Decisions(struct.PyTreeNode):
    """What agents saw and did; meaningful only where `acted`."""

    inputs: jax.Array  # [..., D] or [..., rows, cols, channels]: what the network was given
    action_mask: jax.Array  # [..., N] bool
    action: jax.Array  # [...] int, or [..., N] float before squashing
    log_prob: jax.Array  # [...]
    value: jax.Array  # [...]
    hidden: PyTree  # [..., H] leaves: the state that the network started from; () without memory
    life_start: jax.Array  # [...] bool: the first decision of a life
    acted: jax.Array  # [...] bool
    policy: jax.Array  # [...] int: which policy played


class Outcomes(struct.PyTreeNode):
    """What the environment answered on each tick."""

    reward: jax.Array  # [T, E, A]
    terminated: jax.Array  # [T, E, A] bool: edge
    truncated: jax.Array  # [T, E, A] bool: edge
    final_value: jax.Array  # [T, E, A]: V(final observation) where truncated, else 0
    alive: jax.Array  # [T, E, A] bool: before the tick
    credited: jax.Array  # [T, E, A] bool: the slot has decided in this life
    episode_over: jax.Array  # [T, E] bool
    extras: dict[str, jax.Array]  # [T, E, A] each: the environment's own metrics


class Pending(struct.PyTreeNode):
    """Decisions whose outcome was still open when a rollout ended."""

    decisions: Decisions  # [E, A]; `acted` tells where one is pending
    reward: jax.Array  # [E, A]: earned since, discounted as the policy discounts
    reward_sum: jax.Array  # [E, A]: earned since, undiscounted
    ticks: jax.Array  # [E, A] int: passed since


class Slots(struct.PyTreeNode):
    """Everything that a rollout hands to the next one."""

    env_state: PyTree  # [E, ...]
    obs: Observation  # [E, A, ...]
    hidden: PyTree  # [E, A, H] leaves, or ()
    fresh: jax.Array  # [E, A] bool: no decision yet in this life
    policy: jax.Array  # [E, A] int
    last_action: jax.Array  # [E, A] int or [E, A, N] float: of this life, meaningful unless fresh
    last_reward: jax.Array  # [E, A]: earned since that action
    pending: Pending


class Moments(struct.PyTreeNode):
    """Running mean and variance."""

    count: jax.Array  # [K]
    mean: jax.Array  # [K, ...]
    var: jax.Array  # [K, ...]


class Policies(struct.PyTreeNode):
    """All that belongs to policies: saved, snapshotted and frozen together."""

    params: PyTree  # [K, ...] leaves
    obs_moments: Moments | None  # [K, D...]
    return_moments: Moments | None  # [K]


class Hyperparams(struct.PyTreeNode):
    """Numeric hyper-parameters, one value per policy; changing them never recompiles.

    A schedule is a piecewise-linear function of environment steps, held constant outside its
    points: `steps` ascend, `values` belong to them.
    """

    learning_rate: "Schedule"
    entropy_coef: "Schedule"
    gamma: jax.Array  # [K]
    gae_lambda: jax.Array  # [K]
    clip_eps: jax.Array  # [K]
    value_clip: jax.Array  # [K]
    value_coef: jax.Array  # [K]
    max_grad_norm: jax.Array  # [K]
    target_kl: jax.Array  # [K]


class Schedule(struct.PyTreeNode):
    """Piecewise-linear values over environment steps."""

    steps: jax.Array  # [K, P]
    values: jax.Array  # [K, P]

    def __call__(self, step: jax.Array) -> jax.Array:
        """The value of every policy's schedule at `step`, shape `[K]`."""
        return jax.vmap(lambda x, y: jnp.interp(step, x, y))(self.steps, self.values)


class EpisodeStats(struct.PyTreeNode):
    """Running totals of the lives that have not ended yet."""

    returns: jax.Array  # [E, A]
    lengths: jax.Array  # [E, A] int: ticks alive
    extras: dict[str, jax.Array]  # [E, A] each
    counted: jax.Array  # [E, A] bool: False for lives that began before training did
    return_trace: jax.Array  # [E, A]: discounted sum of decision rewards, for reward scaling


class TrainState(struct.PyTreeNode):
    """The whole of a training run: what is not in here does not influence it."""

    policies: Policies
    opt_state: PyTree  # [K, ...] leaves
    kl_coef: jax.Array  # [K]: adaptive KL penalty
    slots: Slots
    episode_stats: EpisodeStats
    hyperparams: Hyperparams
    env_params: PyTree
    key: jax.Array
    iteration: jax.Array  # () int
