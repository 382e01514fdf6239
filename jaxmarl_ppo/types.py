"""The data that flows through one training step, and the letters of its axes. Read this first.

| letter | axis |
| --- | --- |
| `T` | steps in a rollout |
| `E` | parallel environments (on one device) |
| `A` | agent slots of an environment |
| `D` | width of a network's input |
| `C`, `N`, `W` | choices and numbers of an action; width of its mask |
| `P` | policies by name |
| `Q` | players that can hold a slot: a policy's network, one snapshot, or a scripted policy |
| `K` | members of a policy group: stacked policies of one architecture, the trainable ones first |
| `S` | slots that a policy group can play |
| `M` | active rows of a policy group: as many as slots can act at once, see `ops.active_rows` |
| `R` | rows of a `DecisionTable`: the open decisions `[E, S]`, then the rollout's `[T, E, M]` |
| `C`, `B` | also: blocks of an update, and rows of a block |
| `F` | weights of a policy, in one row |
| `H` | width of memory |

A group keeps the decisions of a rollout as `[T, E, M]`. The axes stay `[T, E, .]` until decisions
are packed into blocks. `K` of what is trained counts the trainable members alone. `[...]` stands
for the axes given where the structure is held: since `pending.decisions` is `[E, S]`, its field
`[..., N]` is `[E, S, N]`. `tests/whole/test_shapes.py` checks data that cross folders against these
comments.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import Observation

PyTree = Any


class Decisions(struct.PyTreeNode):
    """Decisions of one policy group: inputs and actions; meaningful only where `acted`."""

    inputs: jax.Array  # [..., D] or [..., rows, cols, channels]: what the network was given
    action_mask: jax.Array  # [..., W] bool
    action: PyTree  # [...] int, or [..., N] float as drawn, or an `Action` of both
    log_prob: jax.Array  # [...]
    value: jax.Array  # [...]
    hidden: PyTree  # [..., H] leaves: the state that the network started from; () without memory
    is_first: jax.Array  # [...] bool: the first decision of a life
    acted: jax.Array  # [...] bool: decided, by a member of this policy group
    policy_index: jax.Array  # [...] int: of the policy in its group that held the slot
    # [...] int: the slot that decided; None where every slot has an active row of its own.
    slot: jax.Array | None = None
    # [...] int, or [..., N] float, like `action`: what the script that the policy imitates would
    # have done, with choices -1 where they are illegal; None where nobody imitates.
    imitated: PyTree = None


class Outcomes(struct.PyTreeNode):
    """Outputs of the environments at each step, and the slots' players during it."""

    reward: jax.Array  # [T, E, A]
    terminated: jax.Array  # [T, E, A] bool: edge
    truncated: jax.Array  # [T, E, A] bool: edge
    final_value: jax.Array  # [T, E, A]: V(final observation) where truncated, else 0
    alive: jax.Array  # [T, E, A] bool: before the step
    acted: jax.Array  # [T, E, A] bool
    player: jax.Array  # [T, E, A] int: who held the slot during the step
    has_decided: jax.Array  # [T, E, A] bool: the slot has decided in this life
    episode_over: jax.Array  # [T, E] bool
    metrics: dict[str, jax.Array]  # [T, E, A] each: the environment's own


class Pending(struct.PyTreeNode):
    """Decisions of one policy group whose outcome was still open when a rollout ended."""

    decisions: Decisions  # [E, S]; `acted` tells where one is pending
    reward: jax.Array  # [E, S]: earned since the decision, discounted as the policy discounts
    reward_sum: jax.Array  # [E, S]: earned since the decision, undiscounted
    steps: jax.Array  # [E, S] int: steps since the decision


class RolloutState(struct.PyTreeNode):
    """State between two steps: environments, players and their memory."""

    env_state: PyTree  # [E, ...]
    obs: Observation  # [E, A, ...]
    hidden: tuple[PyTree, ...]  # per policy group [E, S, H] leaves, or ()
    is_first: jax.Array  # [E, A] bool: the next decision is the first of a life
    player: jax.Array  # [E, A] int: who holds the slot, for a complete life
    # [E, A] int, or [E, A, N] float, or an `Action`: the latest of this life, as drawn, meaningful
    # unless `is_first`.
    last_action: PyTree
    last_reward: jax.Array  # [E, A]: earned since `last_action`
    episode: jax.Array  # [E] int: episodes that the environment has ended


class Moments(struct.PyTreeNode):
    """Running mean and variance of every policy of a policy group."""

    count: jax.Array  # [K]
    mean: jax.Array  # [K, ...]
    var: jax.Array  # [K, ...]


class PolicyStack(struct.PyTreeNode):
    """Parameters and normalisers of a group's members: saved, snapshotted and frozen together."""

    params: PyTree  # [K, ...] leaves
    obs_moments: Moments | None  # [K, D...]
    return_moments: Moments | None  # [K]


class Hyperparams(struct.PyTreeNode):
    """Numeric hyper-parameters of the trained members of a group; changing them never recompiles.

    Names are those of `PPOConfig`, except `kl_coef`, which starts at `initial_kl_coef` and is
    adapted by training.
    """

    learning_rate: Any  # a Schedule; after `at` [K]
    entropy_coef: Any  # a Schedule; after `at` [K]
    gamma: Any  # [K]; or a Schedule
    gae_lambda: Any  # [K]; or a Schedule
    clip_eps: Any  # [K]; or a Schedule
    value_clip_eps: jax.Array  # [K]
    value_coef: Any  # [K]; or a Schedule
    max_grad_norm: jax.Array  # [K]
    target_kl: jax.Array  # [K]
    kl_coef: jax.Array  # [K]
    num_epochs: jax.Array  # [K] int
    num_minibatches: jax.Array  # [K] int
    magnet_coef: Any = None  # [K]; or a Schedule; None without a magnet
    magnet_rate: jax.Array | None = None  # [K]; likewise
    imitate_coef: Any = None  # [K]; or a Schedule; None where nobody imitates
    log_barrier_coef: Any = None  # [K]; or a Schedule; None without a barrier
    ema_decay: jax.Array | None = None  # [K]; None without an average

    def at(self, env_steps: jax.Array) -> "Hyperparams":
        """Replace schedules by their values after `env_steps ()` environment steps."""
        return jax.tree.map(
            lambda x: x(env_steps) if isinstance(x, Schedule) else x,
            self,
            is_leaf=lambda x: isinstance(x, Schedule),
        )


class Schedule(struct.PyTreeNode):
    """Piecewise-linear values over environment steps, held constant outside their points."""

    steps: jax.Array  # [K, points]: ascending
    values: jax.Array  # [K, points]

    def __call__(self, step: jax.Array) -> jax.Array:
        """Interpolate every member's schedule at `step ()` environment steps, `[K]`."""
        if self.steps.shape[1] == 1:
            return self.values[:, 0]
        return jax.vmap(lambda x, y: jnp.interp(step, x, y))(self.steps, self.values)


class EpisodeSums(struct.PyTreeNode):
    """Sums that accumulate until a life or an episode ends.

    `rollout.episode_stats` adds to them.
    """

    returns: jax.Array  # [...]: undiscounted
    lengths: jax.Array  # [...]: steps alive
    lives: jax.Array  # [...]: that have ended
    metrics: dict[str, jax.Array]  # [...] each: the environment's own


class RunningSums(EpisodeSums):
    """Sums over lives, or over complete episodes, that have not ended yet."""

    counted: jax.Array  # [...] bool: False for what began before training did


class Running(struct.PyTreeNode):
    """Sums over the lives and episodes that have not ended yet."""

    lives: RunningSums  # [E, A]
    episodes: RunningSums  # [E]: what all agents earn together, and steps


class RunningGames(struct.PyTreeNode):
    """The episodes that have not ended yet, as games between players."""

    returns: jax.Array  # [...]
    player: jax.Array  # [...] int: who held the slot first; -1 for nobody yet
    mixed: jax.Array  # [...] bool: not to be counted, since several players held it


class Pool(struct.PyTreeNode):
    """The snapshots of a policy that a pool holds; their parameters are rows of its group."""

    count: jax.Array  # () int: entries in use, from the first on
    oldest: jax.Array  # () int: the entry that the next snapshot replaces once all are in use
    waiting: jax.Array  # () bool: a snapshot is due, but its place is still played
    added_at: jax.Array  # [size] int: the iteration of each entry
    last_added: jax.Array  # () int: the iteration of the newest entry
    wins: jax.Array  # (): score of the policy against snapshots since the newest was added
    games: jax.Array  # (): number of games behind `wins`


class League(struct.PyTreeNode):
    """Results between players, and the pools that opponents are drawn from."""

    score: jax.Array  # [Q, Q]: of the row against the column; a win 1, a draw 1/2; fading sums
    payoff: jax.Array  # [Q, Q]: return of the row in games with the column; fading sums
    games: jax.Array  # [Q, Q]: fading counts
    pools: tuple[Pool, ...]


class Population(struct.PyTreeNode):
    """All trained parameters and statistics that play depends on; this is saved."""

    policy_groups: tuple[PolicyStack, ...]  # per policy group
    league: League


class PolicyGroupTraining(struct.PyTreeNode):
    """Training state of a policy group beside its policies."""

    opt_state: PyTree  # [K, ...] leaves: rows [K, F], or a tree of those of weights
    hyperparams: Hyperparams  # [K]
    magnet: PyTree = (
        None  # [K, ...] leaves, the parameters that policies are pulled towards; or None
    )
    average: PyTree = None  # [K, ...] leaves, averages of parameters to evaluate; or None


class PolicyGroupCarry(struct.PyTreeNode):
    """State per slot that a trained policy group carries from one rollout to the next."""

    pending: Pending  # [E, S]
    return_trace: jax.Array  # [E, S]: discounted rewards of decisions, for scaling


class PerEnv(struct.PyTreeNode):
    """Per-environment part of a training state, spread over devices by `E`."""

    rollout: RolloutState
    running: Running
    games: RunningGames  # [E, A]
    policy_groups: tuple[PolicyGroupCarry, ...]  # per policy group that is trained


class TrainState(struct.PyTreeNode):
    """The complete state of a training run: nothing else influences it."""

    population: Population
    training: tuple[PolicyGroupTraining, ...]  # per policy group that is trained
    per_env: PerEnv
    env_params: PyTree
    key: jax.Array
    iteration: jax.Array  # () int
