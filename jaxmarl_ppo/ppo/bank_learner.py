"""What one bank of policies learns from a rollout: advantages, update, normalisers.

A bank sees the slots that it can play and of them the decisions that its own policies made; what
others did in between is to it a slot that waits.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_ppo.credit.advantages import (
    Estimates,
    discounted_returns,
    explained_variance,
    rollout_end,
    standardise_own,
)
from jaxmarl_ppo.credit.pending import Factors, estimate, open_decisions
from jaxmarl_ppo.ops import running_moments as normalise
from jaxmarl_ppo.ops.collectives import all_sum
from jaxmarl_ppo.ops.lanes import Rows, make_rows
from jaxmarl_ppo.policies.players import BankSeats
from jaxmarl_ppo.ppo import minibatches
from jaxmarl_ppo.ppo import update as ppo
from jaxmarl_ppo.ppo.minibatches import Blocks, TrainingRows
from jaxmarl_ppo.ppo.update import Coefficients, UpdateShape, UpdateStats
from jaxmarl_ppo.rollout.rollout import Rollout, nothing_pending
from jaxmarl_ppo.types import BankState, Hyperparams, Policies, PyTree, Slots


class Lesson(struct.PyTreeNode):
    """What there is to say about a bank's part of an iteration; `K` are the trainable policies."""

    update: UpdateStats  # [K]
    coefs: Coefficients  # [K]: in force during the update
    trained: jax.Array  # [K]: decisions that entered the update
    explained_variance: jax.Array  # [K]
    reward_trained: jax.Array  # [S]: what trained decisions earned


@dataclass(frozen=True, eq=False)
class BankLearner:
    """Everything static about how a bank is trained.

    Attributes:
        seats: the bank and its slots.
        policies: of every trainable row, its index among all policies.
        hyperparams: `[K]` of the trainable rows.
        update_shape: what the compiled update depends on.
        block_size: rows that are shuffled together; for a recurrent network, decisions per chunk.
        discount_by_tick: see `advantages.own_timeline_gae`.
        normalise_advantages: to zero mean and unit variance over each policy's rows.
        kl_coef: `[K]`, the first weights of the KL penalty.
    """

    seats: BankSeats
    policies: tuple[int, ...]
    hyperparams: Hyperparams
    update_shape: UpdateShape
    block_size: int
    discount_by_tick: bool
    normalise_advantages: bool
    kl_coef: tuple[float, ...]

    @property
    def num_trainable(self) -> int:
        """`K`."""
        return self.seats.num_trainable

    def init(self, policies: Policies, slots: Slots) -> BankState:
        """Nothing learnt yet, nothing open."""
        pending = nothing_pending(self.seats, slots)
        state = BankState(
            policies=policies,
            opt_state=(),
            kl_coef=jnp.array(self.kl_coef),
            hyperparams=self.hyperparams,
            pending=pending,
            return_trace=jnp.zeros_like(pending.reward),
        )
        coefs, params = self.coefficients(state, jnp.zeros(())), self._trainable(policies).params
        return state.replace(
            opt_state=ppo.init_optimiser(params, coefs, self.update_shape.adam_eps)
        )

    def learn(
        self,
        state: BankState,
        record: Rollout,
        index: int,
        acts_next: jax.Array,
        usable: jax.Array,
        env_steps: jax.Array,
        key: jax.Array,
        axis_name: str | None = None,
    ) -> tuple[BankState, Lesson]:
        """Train every policy on its own decisions.

        Args:
            state: before.
            record: of the whole rollout.
            index: of this bank in it.
            acts_next: `[E, S]` bool, whether a policy of the bank decides on the last observation.
            usable: `()` bool, False if the rollout is not to be trained on.
            env_steps: `()`, how many were done before.
            key: of the shuffling.
            axis_name: of the devices that environments are spread over.
        """
        coefs = self.coefficients(state, env_steps)
        rows = make_rows(state.pending.decisions, record.decisions[index], record.lanes[index])
        estimates, opened = self._estimate(state, record, index, acts_next)
        policy = rows.decisions.policy
        trainable = rows.decisions.acted & estimates.closed & usable
        trainable &= policy < self.num_trainable
        mine = trainable[:, None] & (policy[:, None] == jnp.arange(self.num_trainable))  # [R, K]
        training = self._training_rows(rows, estimates, trainable, axis_name)
        blocks = self._pack(rows, training, trainable, record.start_hidden[index])
        own, opt_state, update = ppo.update(
            self.seats.bank,
            self.update_shape,
            self._trainable(state.policies),
            state.opt_state,
            blocks,
            coefs,
            key,
            axis_name,
        )
        own, return_trace = self._update_normalisers(own, state, rows, estimates, mine, axis_name)
        rewards = jnp.where(trainable, estimates.reward_sum, 0.0)
        target = rows.decisions.value + estimates.advantage
        lesson = Lesson(
            update=update,
            coefs=coefs,
            trained=all_sum(mine.sum(0).astype(jnp.float32), axis_name),
            explained_variance=explained_variance(target, estimates.advantage, mine, axis_name),
            reward_trained=all_sum(rows.total_by_slot(rewards), axis_name),
        )
        return state.replace(
            policies=self._with_trainable(state.policies, own),
            opt_state=opt_state,
            kl_coef=self._next_kl_coef(coefs, update),
            pending=open_decisions(rows, estimates, opened),
            return_trace=return_trace,
        ), lesson

    def coefficients(self, state: BankState, env_steps: jax.Array) -> Coefficients:
        """Hyper-parameters after `env_steps`."""
        hyperparams = state.hyperparams
        return Coefficients(
            learning_rate=hyperparams.learning_rate(env_steps),
            entropy_coef=hyperparams.entropy_coef(env_steps),
            clip_eps=hyperparams.clip_eps,
            value_clip=hyperparams.value_clip,
            value_coef=hyperparams.value_coef,
            max_grad_norm=hyperparams.max_grad_norm,
            target_kl=hyperparams.target_kl,
            kl_coef=state.kl_coef,
            num_epochs=hyperparams.num_epochs,
            num_minibatches=hyperparams.num_minibatches,
        )

    def _trainable(self, policies: Policies) -> Policies:
        return jax.tree.map(lambda x: x[: self.num_trainable], policies)

    def _with_trainable(self, policies: Policies, own: Policies) -> Policies:
        # Not an update of a slice: where that is the whole array, XLA's partitioner crashes on it
        # under JAX 0.11.
        return jax.tree.map(
            lambda x, y: jnp.concatenate([y, x[self.num_trainable :]]), policies, own
        )

    def _estimate(
        self, state: BankState, record: Rollout, index: int, acts_next: jax.Array
    ) -> tuple[Estimates, jax.Array]:
        """Advantages of the open decisions and of the rollout's, see `pending.estimate`."""
        value = self.seats.encoder.own(record.bootstrap_value)
        return estimate(
            self.seats,
            state.pending,
            record.decisions[index],
            record.lanes[index],
            record.outcomes,
            self._factors(state),
            rollout_end(value, acts_next),
            self.discount_by_tick,
        )

    def _factors(self, state: BankState) -> Factors:
        hyperparams, moments = state.hyperparams, state.policies.return_moments
        scale = None
        if moments is not None:
            scale = 1.0 / normalise.deviation(moments)[: self.num_trainable]
        return Factors(hyperparams.gamma, hyperparams.gae_lambda, scale)

    def _training_rows(
        self, rows: Rows, estimates: Estimates, trainable: jax.Array, axis_name: str | None
    ) -> TrainingRows:
        """Decisions `[R]` with advantages, standardised over each policy's trainable rows."""
        advantage = estimates.advantage
        target = rows.decisions.value + advantage
        if self.normalise_advantages:
            advantage = standardise_own(
                advantage, trainable, rows.decisions.policy, self.num_trainable, axis_name
            )
        return TrainingRows(rows.decisions, advantage, target)

    def _pack(
        self, rows: Rows, training: TrainingRows, trainable: jax.Array, start_hidden: PyTree
    ) -> Blocks:
        """The trainable rows, `[R]` bool, in blocks."""
        if not self.seats.bank.is_recurrent:
            return minibatches.pack_rows(
                training,
                trainable,
                self.num_trainable,
                self.block_size,
                self.hyperparams.num_minibatches,
                self.update_shape.num_minibatches,
            )
        num_entries = rows.table_shape[0]
        return minibatches.pack_chunks(
            training,
            rows.table(trainable).reshape(num_entries, -1),
            rows.table(rows.decisions.policy).reshape(num_entries, -1),
            self.num_trainable,
            self.block_size,
            jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), start_hidden),
            rows.place,
        )

    def _update_normalisers(
        self,
        own: Policies,
        state: BankState,
        rows: Rows,
        estimates: Estimates,
        mine: jax.Array,
        axis_name: str | None,
    ) -> tuple[Policies, jax.Array]:
        """Let every policy's normalisers count the decisions `mine [R, K]` that trained it."""
        weight = mine.astype(jnp.float32)
        trace = state.return_trace
        if own.obs_moments is not None:
            inputs = rows.whole_inputs()
            moments = normalise.update_moments(own.obs_moments, inputs, weight, axis_name)
            own = own.replace(obs_moments=moments)
        if own.return_moments is not None:
            discount = self._factors(state).of(rows.decisions.policy).gamma
            if self.discount_by_tick:
                discount **= estimates.ticks
            decided = (rows.decisions.life_start, mine.any(-1), estimates.reward, discount)
            trace, returns = discounted_returns(trace, *map(rows.table, decided))
            moments = normalise.update_moments(
                own.return_moments, rows.rows(returns), weight, axis_name
            )
            own = own.replace(return_moments=moments)
        return own, trace

    def _next_kl_coef(self, coefs: Coefficients, update: UpdateStats) -> jax.Array:
        if self.update_shape.kl_control != "penalty":
            return coefs.kl_coef
        adapted = ppo.adapt_kl_coef(coefs.kl_coef, update.last_epoch_kl, coefs.target_kl)
        return jnp.where(update.num_steps > 0, adapted, coefs.kl_coef)
