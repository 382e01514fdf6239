"""Training of a policy group on a rollout: credit, update, normalisers.

A policy group sees only its own members' decisions, in the slots that it can play. While a policy
of another group acts in one of them, that slot counts as waiting.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.credit.advantages import Credit, CreditParams, estimate_credit, rollout_end
from jaxmarl_ppo.credit.decision_table import DecisionTable, tabulate
from jaxmarl_ppo.credit.pending import nothing_pending, open_decisions
from jaxmarl_ppo.credit.reward_scaling import discounted_returns, return_deviation
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops import running_moments
from jaxmarl_ppo.ops.collectives import all_sum
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.ppo import minibatches
from jaxmarl_ppo.ppo.advantage_stats import explained_variance, standardise_own
from jaxmarl_ppo.ppo.grouped_blocks import pack_in_groups, packs_in_groups
from jaxmarl_ppo.ppo.loss import UpdateShape
from jaxmarl_ppo.ppo.minibatches import Blocks, TrainingTable
from jaxmarl_ppo.ppo.optimiser import check_optimiser, init_optimiser
from jaxmarl_ppo.ppo.update import (
    UpdateInputs,
    UpdateStats,
    adapt_kl_coef,
    move_average,
    update,
)
from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import (
    Hyperparams,
    PolicyGroupCarry,
    PolicyGroupTraining,
    PolicyStack,
    RolloutState,
)


class UpdateReport(struct.PyTreeNode):
    """Report of a policy group's part of an iteration; `K` are the trained members."""

    update: UpdateStats  # [K]
    hyperparams: Hyperparams  # [K]: in force during the update
    trained: jax.Array  # [K]: decisions that entered the update
    explained_variance: jax.Array  # [K]: see `advantage_stats.explained_variance`
    reward_trained: jax.Array  # [S]: reward of trained decisions


class Learnt(NamedTuple):
    """A policy group after an iteration: its policies, training state and report."""

    stack: PolicyStack  # all members, [K, ...]
    training: PolicyGroupTraining
    carry: PolicyGroupCarry
    report: UpdateReport


@dataclass(frozen=True, eq=False)
class PolicyGroupLearner:
    """Everything static about how a policy group is trained.

    Attributes:
        index: of the policy group among all policy groups.
        policy_group: that is trained.
        policy_ids: of every trained member, its index among all policies.
        hyperparams: `[K]` of the trained members.
        update_shape: the static options of the compiled update.
        block_size: rows that are shuffled together; for a recurrent network, decisions per chunk.
        discount_by_step: see `advantages.own_timeline_gae`.
        normalise_advantages: to zero mean and unit variance over each member's rows.
    """

    index: int
    policy_group: PolicyGroup
    policy_ids: tuple[int, ...]
    hyperparams: Hyperparams
    update_shape: UpdateShape
    block_size: int
    discount_by_step: bool
    normalise_advantages: bool

    def __post_init__(self) -> None:
        check_optimiser(self.update_shape, self.policy_group.network)

    @property
    def scope(self) -> str:
        """Return the name of this policy group's training in compiled programs and profiles."""
        return f"policy_group{self.index}"

    @property
    def num_trainable(self) -> int:
        """Return the number `K` of trained members."""
        return self.policy_group.num_trainable

    def init(
        self, stack: PolicyStack, state: RolloutState
    ) -> tuple[PolicyGroupTraining, PolicyGroupCarry]:
        """Begin with fresh optimiser states and no open decision."""
        pending = nothing_pending(self.policy_group, state)
        hyperparams = self.hyperparams.at(jnp.zeros(()))
        params = self._trainable(stack).params
        opt_state = init_optimiser(params, hyperparams, self.update_shape)
        magnet = None if self.update_shape.magnet == "off" else params
        average = None if hyperparams.ema_decay is None else params
        return (
            PolicyGroupTraining(opt_state, self.hyperparams, magnet, average),
            PolicyGroupCarry(pending, jnp.zeros_like(pending.reward)),
        )

    def learn(
        self,
        stack: PolicyStack,
        training: PolicyGroupTraining,
        carry: PolicyGroupCarry,
        played: Rollout,
        after: RolloutState,
        usable: jax.Array,
        env_steps: jax.Array,
        key: jax.Array,
        axis_name: str | None = None,
    ) -> Learnt:
        """Train every member of the policy group on its own decisions of a rollout.

        Args:
            stack: all members before.
            training: their training state.
            carry: open decisions of the previous rollout.
            played: the complete rollout.
            after: the state that the rollout ended in.
            usable: `()` bool, False to skip training on the rollout.
            env_steps: `()`, the number done before.
            key: of the shuffling.
            axis_name: of the devices that environments are spread over.
        """
        hyperparams = training.hyperparams.at(env_steps)
        decisions = played.decisions[self.index]
        table = tabulate(carry.pending.decisions, decisions)
        params = self._credit_params(stack, hyperparams)
        credit, opened = self._estimate(carry, played, after, params)
        policy_index = table.column("policy_index")
        trainable = (
            table.column("acted") & credit.closed & usable & (policy_index < self.num_trainable)
        )
        is_own = policy_index[:, None] == jnp.arange(self.num_trainable)
        mine = trainable[:, None] & is_own  # [R, K]
        blocks = self._pack(self._training_table(table, credit, trainable, axis_name))
        own = self._trainable(stack)
        shape = self.update_shape
        inputs = UpdateInputs(
            self.policy_group.network,
            shape,
            own,
            blocks,
            hyperparams,
            axis_name,
            magnet=training.magnet,
        )
        own, opt_state, stats = update(inputs, training.opt_state, key)
        ema_rate = None if hyperparams.ema_decay is None else 1.0 - hyperparams.ema_decay
        # After the update, which replays decisions with the normalisers that they were made with.
        own, return_trace = self._update_normalisers(
            own, carry.return_trace, table, credit, params, mine, axis_name
        )
        return Learnt(
            stack=self._with_trainable(stack, own),
            training=PolicyGroupTraining(
                opt_state,
                self._next_hyperparams(training, stats),
                move_average(training.magnet, own.params, hyperparams.magnet_rate, stats),
                move_average(training.average, own.params, ema_rate, stats),
            ),
            carry=PolicyGroupCarry(open_decisions(table, credit, opened), return_trace),
            report=self._report(table, credit, mine, trainable, hyperparams, stats, axis_name),
        )

    def averaged(self, stack: PolicyStack, training: PolicyGroupTraining) -> PolicyStack:
        """Return all members with averages in place of the newest parameters."""
        own = self._trainable(stack).replace(params=training.average)
        return self._with_trainable(stack, own)

    def _trainable(self, stack: PolicyStack) -> PolicyStack:
        return jax.tree.map(lambda x: x[: self.num_trainable], stack)

    def _with_trainable(self, stack: PolicyStack, own: PolicyStack) -> PolicyStack:
        # Not an update of a slice: where the slice is the complete array, XLA's partitioner crashes
        # under JAX 0.11.
        return jax.tree.map(lambda x, y: jnp.concatenate([y, x[self.num_trainable :]]), stack, own)

    def _estimate(
        self, carry: PolicyGroupCarry, played: Rollout, after: RolloutState, params: CreditParams
    ) -> tuple[Credit, jax.Array]:
        """Credit the open decisions and the rollout's, see `advantages.estimate_credit`."""
        interface = self.policy_group.interface
        _, plays = self.policy_group.members(after.player)
        acts_next = interface.own(after.obs.agent_mask) & plays
        end = rollout_end(interface.own(played.bootstrap_value), acts_next)
        return estimate_credit(
            self.policy_group,
            carry.pending,
            played.decisions[self.index],
            played.outcomes,
            params,
            end,
            self.discount_by_step,
        )

    def _credit_params(self, stack: PolicyStack, hyperparams: Hyperparams) -> CreditParams:
        moments = stack.return_moments
        scale = None
        if moments is not None:
            scale = 1.0 / return_deviation(moments)[: self.num_trainable]
        return CreditParams(hyperparams.gamma, hyperparams.gae_lambda, scale)

    def _training_table(
        self, table: DecisionTable, credit: Credit, trainable: jax.Array, axis_name: str | None
    ) -> TrainingTable:
        """Join decisions `[R]` with advantages, standardised over each member's trainable rows."""
        advantage = credit.advantage
        target = table.column("value") + advantage
        if self.normalise_advantages:
            advantage = standardise_own(
                advantage, trainable, table.column("policy_index"), self.num_trainable, axis_name
            )
        return TrainingTable(table, advantage, target, trainable)

    def _pack(self, table: TrainingTable) -> Blocks:
        """Pack the trainable rows into blocks, of a recurrent network into chunks of streams."""
        recurrent, own_rows = self.policy_group.network.is_recurrent, self.policy_group.own_rows
        if tuning().packs_in_place and own_rows and not recurrent:
            return minibatches.pack_in_place(table, own_rows, self.block_size)
        if packs_in_groups(self.policy_group):
            most = self.policy_group.most_trained_in_row
            return pack_in_groups(table, self.num_trainable, most, self.block_size)
        if not recurrent:
            return minibatches.pack_rows(
                table,
                self.num_trainable,
                self.block_size,
                self.hyperparams.num_minibatches,
                self.update_shape.num_minibatches,
            )
        return minibatches.pack_chunks(table, self.num_trainable, self.block_size)

    def _update_normalisers(
        self,
        own: PolicyStack,
        return_trace: jax.Array,
        table: DecisionTable,
        credit: Credit,
        params: CreditParams,
        mine: jax.Array,
        axis_name: str | None,
    ) -> tuple[PolicyStack, jax.Array]:
        """Update every member's normalisers by the decisions `mine [R, K]` that trained it."""
        weight = mine.astype(jnp.float32)
        if own.obs_moments is not None:
            inputs = table.column("inputs")
            moments = running_moments.update_moments(own.obs_moments, inputs, weight, axis_name)
            own = own.replace(obs_moments=moments)
        if own.return_moments is not None:
            discount = params.of(table.column("policy_index")).gamma
            if self.discount_by_step:
                discount **= credit.steps
            decided = (table.column("is_first"), mine.any(-1), credit.reward, discount)
            return_trace, returns = discounted_returns(return_trace, *map(table.to_grid, decided))
            moments = running_moments.update_moments(
                own.return_moments, table.from_grid(returns), weight, axis_name
            )
            own = own.replace(return_moments=moments)
        return own, return_trace

    def _next_hyperparams(self, training: PolicyGroupTraining, stats: UpdateStats) -> Hyperparams:
        hyperparams = training.hyperparams
        if self.update_shape.kl_control != "penalty":
            return hyperparams
        before = hyperparams.kl_coef
        adapted = adapt_kl_coef(before, stats.last_epoch_kl, hyperparams.target_kl)
        # Without a step no KL was measured, and its placeholder 0 would halve the penalty.
        return hyperparams.replace(kl_coef=jnp.where(stats.num_steps > 0, adapted, before))

    def _report(
        self,
        table: DecisionTable,
        credit: Credit,
        mine: jax.Array,
        trainable: jax.Array,
        hyperparams: Hyperparams,
        stats: UpdateStats,
        axis_name: str | None,
    ) -> UpdateReport:
        target = table.column("value") + credit.advantage
        rewards = jnp.where(trainable, credit.reward_sum, 0.0)
        return UpdateReport(
            update=stats,
            hyperparams=hyperparams,
            trained=all_sum(mine.sum(0).astype(jnp.float32), axis_name),
            explained_variance=explained_variance(target, credit.advantage, mine, axis_name),
            reward_trained=all_sum(table.total_by_slot(rewards), axis_name),
        )
