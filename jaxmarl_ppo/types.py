"""The data that flows through one training step, and the axis letters.

`T` ticks in a rollout, `E` parallel environments, `A` agent slots, `D` input width, `N` action
count (or action dimensions), `P` policies by name, `Q` players. A player is what can hold a slot: a
network with its parameters, one snapshot in a pool, or a scripted function. Networks of one shape
are stacked in a bank: `K` rows, the trainable ones first, for `S` of the slots, of which at most
`M` act at once (see `lanes`). What a bank keeps of a rollout has the axes `[T, E, M]`; with the
decisions that the rollout before left open, `[E, S]`, it becomes rows `[R]`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import Observation

PyTree = Any


class Decisions(struct.PyTreeNode):
    """What agents of one bank saw and did; meaningful only where `acted`."""

    inputs: jax.Array  # [..., D] or [..., rows, cols, channels]: what the network was given
    action_mask: jax.Array  # [..., N] bool
    action: jax.Array  # [...] int, or [..., N] float before squashing
    log_prob: jax.Array  # [...]
    value: jax.Array  # [...]
    hidden: PyTree  # [..., H] leaves: the state that the network started from; () without memory
    life_start: jax.Array  # [...] bool: the first decision of a life
    acted: jax.Array  # [...] bool: decided, by a policy of this bank
    policy: jax.Array  # [...] int: which row of the bank played


class Outcomes(struct.PyTreeNode):
    """What the environment answered on each tick."""

    reward: jax.Array  # [T, E, A]
    terminated: jax.Array  # [T, E, A] bool: edge
    truncated: jax.Array  # [T, E, A] bool: edge
    final_value: jax.Array  # [T, E, A]: V(final observation) where truncated, else 0
    alive: jax.Array  # [T, E, A] bool: before the tick
    acted: jax.Array  # [T, E, A] bool
    player: jax.Array  # [T, E, A] int: who held the slot during the tick
    credited: jax.Array  # [T, E, A] bool: the slot has decided in this life
    episode_over: jax.Array  # [T, E] bool
    extras: dict[str, jax.Array]  # [T, E, A] each: the environment's own metrics


class Pending(struct.PyTreeNode):
    """Decisions whose outcome was still open when a rollout ended."""

    decisions: Decisions  # [E, S]; `acted` tells where one is pending
    reward: jax.Array  # [E, S]: earned since, discounted as the policy discounts
    reward_sum: jax.Array  # [E, S]: earned since, undiscounted
    ticks: jax.Array  # [E, S] int: passed since


class Slots(struct.PyTreeNode):
    """Everything about episodes that one tick hands to the next."""

    env_state: PyTree  # [E, ...]
    obs: Observation  # [E, A, ...]
    hidden: tuple[PyTree, ...]  # per bank [E, S, H] leaves, or ()
    fresh: jax.Array  # [E, A] bool: no decision yet in this life
    player: jax.Array  # [E, A] int: who holds the slot, for the whole of a life
    last_action: jax.Array  # [E, A] int or [E, A, N] float: of this life, meaningful unless fresh
    last_reward: jax.Array  # [E, A]: earned since that action
    episode: jax.Array  # [E] int: episodes that the environment has ended


class Moments(struct.PyTreeNode):
    """Running mean and variance."""

    count: jax.Array  # [K]
    mean: jax.Array  # [K, ...]
    var: jax.Array  # [K, ...]


class Policies(struct.PyTreeNode):
    """All that belongs to the policies of a bank: saved, snapshotted and frozen together."""

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
    num_epochs: jax.Array  # [K] int
    num_minibatches: jax.Array  # [K] int


class Schedule(struct.PyTreeNode):
    """Piecewise-linear values over environment steps."""

    steps: jax.Array  # [K, P]
    values: jax.Array  # [K, P]

    def __call__(self, step: jax.Array) -> jax.Array:
        """The value of every policy's schedule at `step`, shape `[K]`."""
        if self.steps.shape[1] == 1:
            return self.values[:, 0]
        return jax.vmap(lambda x, y: jnp.interp(step, x, y))(self.steps, self.values)


class EpisodeStats(struct.PyTreeNode):
    """Running totals of the lives that have not ended yet."""

    returns: jax.Array  # [E, A]
    lengths: jax.Array  # [E, A] int: ticks alive
    extras: dict[str, jax.Array]  # [E, A] each
    counted: jax.Array  # [E, A] bool: False for lives that began before training did


class Games(struct.PyTreeNode):
    """Running totals of the episodes that have not ended yet."""

    returns: jax.Array  # [E, A]
    player: jax.Array  # [E, A] int: who held the slot first; -1 for nobody yet
    mixed: jax.Array  # [E, A] bool: not to be counted, since several players held it


class Pool(struct.PyTreeNode):
    """Which snapshots of a policy there are; their parameters are rows of its bank."""

    count: jax.Array  # () int: entries in use, from the first on
    oldest: jax.Array  # () int: the entry that the next snapshot replaces once all are in use
    waiting: jax.Array  # () bool: a snapshot is due, its place still plays
    added_at: jax.Array  # [size] int: the iteration of each entry
    last_added: jax.Array  # () int: the iteration of the newest
    wins: jax.Array  # (): score of the policy against snapshots since the newest was added
    games: jax.Array  # (): the games behind it


class League(struct.PyTreeNode):
    """Results between players, and the pools that opponents are drawn from."""

    score: jax.Array  # [Q, Q]: of the row against the column; a win 1, a draw 1/2; fading sums
    payoff: jax.Array  # [Q, Q]: return of the row in games with the column; fading sums
    games: jax.Array  # [Q, Q]: fading counts
    pools: tuple[Pool, ...]


class Population(struct.PyTreeNode):
    """All that a run has learnt and that play depends on: what is saved."""

    banks: tuple[Policies, ...]  # [K, ...] leaves each
    league: League


class FrozenBank(struct.PyTreeNode):
    """A bank in which nothing is trained."""

    policies: Policies  # [K, ...] leaves


class BankState(struct.PyTreeNode):
    """What training changes about the policies of one bank."""

    policies: Policies  # [K, ...] leaves
    opt_state: PyTree  # [trainable, ...] leaves
    kl_coef: jax.Array  # [trainable]: adaptive KL penalty
    hyperparams: Hyperparams  # [trainable]
    pending: Pending  # [E, S]
    return_trace: jax.Array  # [E, S]: discounted rewards of decisions, for scaling


class TrainState(struct.PyTreeNode):
    """The whole of a training run: what is not in here does not influence it."""

    banks: tuple[BankState | FrozenBank, ...]
    league: League
    games: Games
    slots: Slots
    episode_stats: EpisodeStats
    env_params: PyTree
    key: jax.Array
    iteration: jax.Array  # () int

    @property
    def population(self) -> Population:
        """What play depends on."""
        return Population(tuple(bank.policies for bank in self.banks), self.league)
