"""The algorithm as pure functions: `init` makes a `TrainState`, `train_step` advances it.

Both can be jitted, and vmapped over seeds. Nothing here touches the host.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo import metrics as metrics_lib
from jaxmarl_ppo import minibatches, normalise, ppo
from jaxmarl_ppo.advantages import (
    Estimates,
    discounted_returns,
    slotwise_gae,
    standardise_own,
)
from jaxmarl_ppo.agent_inputs import AgentInputs
from jaxmarl_ppo.metrics import Metrics
from jaxmarl_ppo.minibatches import Blocks, TrainingRows
from jaxmarl_ppo.pending import make_timeline, open_decisions, with_pending
from jaxmarl_ppo.policy_bank import PolicyBank
from jaxmarl_ppo.ppo import Coefficients, UpdateShape
from jaxmarl_ppo.rollout import Rollout, init_slots, rollout
from jaxmarl_ppo.stagger import stagger_episodes
from jaxmarl_ppo.types import (
    Decisions,
    EpisodeStats,
    Hyperparams,
    Policies,
    PyTree,
    Slots,
    TrainState,
)


@dataclass(frozen=True, eq=False)
class Learner:
    """Everything static about a run; `make_learner` builds one from a configuration."""

    env: MultiAgentEnv
    env_params: PyTree
    bank: PolicyBank
    encoder: AgentInputs
    hyperparams: Hyperparams
    update_shape: UpdateShape
    num_envs: int
    num_steps: int
    block_size: int  # rows that are shuffled together; for a recurrent network, decisions per chunk
    discount_by_tick: bool
    normalise_advantages: bool
    kl_coef: float
    stagger_starts: bool

    def init(self, key: jax.Array) -> TrainState:
        """Fresh parameters and fresh episodes."""
        key, key_policies, key_envs, key_stagger = jax.random.split(key, 4)
        policies = self.bank.init(key_policies)
        keys = jax.random.split(key_envs, self.num_envs)
        slots = init_slots(self.env, self.env_params, self.bank, self.encoder, keys)
        counted = jnp.ones(slots.fresh.shape, bool)
        if self.stagger_starts:
            slots, counted = stagger_episodes(
                self.env, self.env_params, self.encoder, slots, key_stagger
            )
        state = TrainState(
            policies=policies,
            opt_state=(),
            kl_coef=jnp.full(self.bank.num_policies, self.kl_coef),
            slots=slots,
            episode_stats=self._init_episode_stats(slots, counted),
            hyperparams=self.hyperparams,
            env_params=self.env_params,
            key=key,
            iteration=jnp.zeros((), jnp.int32),
        )
        coefs, adam_eps = self._coefficients(state), self.update_shape.adam_eps
        state = state.replace(opt_state=ppo.init_optimiser(policies.params, coefs, adam_eps))
        # Leaves that share a buffer could not be donated.
        return jax.tree.map(jnp.copy, state)

    def train_step(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """One iteration: rollout, advantages, epochs of minibatches, metrics."""
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        coefs = self._coefficients(state)
        slots, record = self._play(state, key_rollout)
        fault = metrics_lib.find_fault(record, state.iteration)
        rows = with_pending(state.slots.pending.decisions, record.decisions)
        estimates = self._estimate(state, record, rows, slots.obs.agent_mask)
        trainable = rows.acted & estimates.closed & ~fault.found
        blocks = self._pack(rows, estimates, trainable, record.start_hidden)
        policies, opt_state, update = ppo.update(
            self.bank, self.update_shape, state.policies, state.opt_state, blocks, coefs, key_update
        )
        running, lives, finished = metrics_lib.track_lives(state.episode_stats, record.outcomes)
        policies, running = self._update_normalisers(
            policies, state, running, rows, estimates, trainable
        )
        metrics = metrics_lib.measure(
            record, estimates, trainable, rows.policy, lives, finished, update, coefs, fault
        )
        return state.replace(
            policies=policies,
            opt_state=opt_state,
            kl_coef=self._next_kl_coef(coefs, update),
            slots=slots.replace(pending=open_decisions(rows, estimates)),
            episode_stats=running,
            key=key,
            iteration=state.iteration + 1,
        ), metrics

    def train_steps(
        self, state: TrainState, num_iterations: jax.Array, metrics: Metrics | None = None
    ) -> tuple[TrainState, Metrics]:
        """Several iterations, their number known at run time only; the first fault ends them.

        Args:
            state: where to start.
            num_iterations: `()` int.
            metrics: of earlier iterations, to which these are added one by one; so the sum does not
                depend on how iterations are spread over calls.
        """
        if metrics is None:
            metrics = metrics_lib.empty_like(jax.eval_shape(self.train_step, state)[1])
        last = state.iteration + num_iterations

        def goes_on(carry: tuple[TrainState, Metrics]) -> jax.Array:
            return (carry[0].iteration < last) & ~carry[1].fault.found

        def body(carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = self.train_step(carry[0])
            return state, metrics_lib.merge(carry[1], metrics)

        return jax.lax.while_loop(goes_on, body, (state, metrics))

    def _play(self, state: TrainState, key: jax.Array) -> tuple[Slots, Rollout]:
        return rollout(
            self.env,
            state.env_params,
            self.bank,
            self.encoder,
            state.policies,
            state.slots,
            key,
            self.num_steps,
        )

    def _coefficients(self, state: TrainState) -> Coefficients:
        hyperparams = state.hyperparams
        env_steps = state.iteration.astype(jnp.float32) * (self.num_envs * self.num_steps)
        return Coefficients(
            learning_rate=hyperparams.learning_rate(env_steps),
            entropy_coef=hyperparams.entropy_coef(env_steps),
            clip_eps=hyperparams.clip_eps,
            value_clip=hyperparams.value_clip,
            value_coef=hyperparams.value_coef,
            max_grad_norm=hyperparams.max_grad_norm,
            target_kl=hyperparams.target_kl,
            kl_coef=state.kl_coef,
        )

    def _estimate(
        self, state: TrainState, record: Rollout, rows: Decisions, acts_next: jax.Array
    ) -> Estimates:
        """Advantages of the open decisions and of the rollout's, `[1 + T, E, A]`."""
        pending, outcomes = state.slots.pending, record.outcomes
        hyperparams = state.hyperparams
        scale = jnp.ones(self.bank.num_policies)
        if state.policies.return_moments is not None:
            scale = jax.lax.rsqrt(state.policies.return_moments.var + normalise.EPSILON)
        timeline = make_timeline(
            pending,
            rows,
            outcomes,
            scale[rows.policy],
            hyperparams.gamma[rows.policy],
            hyperparams.gae_lambda[rows.policy],
        )
        return slotwise_gae(timeline, record.bootstrap_value, acts_next, self.discount_by_tick)

    def _pack(
        self, rows: Decisions, estimates: Estimates, trainable: jax.Array, start_hidden: PyTree
    ) -> Blocks:
        """Trainable rows in blocks, advantages standardised over each policy's own rows."""
        advantage = estimates.advantage
        if self.normalise_advantages:
            advantage = standardise_own(advantage, trainable, rows.policy, self.bank.num_policies)
        training = TrainingRows(rows, advantage, estimates.target)
        num_policies = self.bank.num_policies
        if self.bank.is_recurrent:
            training = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), training)
            hidden = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), start_hidden)
            trainable = trainable.reshape(trainable.shape[0], -1)
            return minibatches.pack_chunks(
                training, trainable, num_policies, self.block_size, hidden
            )
        training = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), training)
        return minibatches.pack_rows(
            training,
            trainable.ravel(),
            num_policies,
            self.block_size,
            self.update_shape.num_minibatches,
        )

    def _update_normalisers(
        self,
        policies: Policies,
        state: TrainState,
        running: EpisodeStats,
        rows: Decisions,
        estimates: Estimates,
        trainable: jax.Array,
    ) -> tuple[Policies, EpisodeStats]:
        """Let every policy's normalisers count the decisions that it was trained on."""
        own = trainable[..., None] & (rows.policy[..., None] == jnp.arange(self.bank.num_policies))
        weight = own.reshape(-1, self.bank.num_policies).astype(jnp.float32)
        if policies.obs_moments is not None:
            inputs = rows.inputs.reshape(-1, *self.bank.input_shape)
            moments = normalise.update_moments(policies.obs_moments, inputs, weight)
            policies = policies.replace(obs_moments=moments)
        if policies.return_moments is not None:
            discount = state.hyperparams.gamma[rows.policy]
            if self.discount_by_tick:
                discount **= estimates.ticks
            trace, returns = discounted_returns(
                running.return_trace, rows.life_start, trainable, estimates.reward, discount
            )
            moments = normalise.update_moments(policies.return_moments, returns.ravel(), weight)
            policies = policies.replace(return_moments=moments)
            running = running.replace(return_trace=trace)
        return policies, running

    def _next_kl_coef(self, coefs: Coefficients, update: ppo.UpdateStats) -> jax.Array:
        if self.update_shape.kl_control != "penalty":
            return coefs.kl_coef
        adapted = ppo.adapt_kl_coef(coefs.kl_coef, update.last_epoch_kl, coefs.target_kl)
        return jnp.where(update.num_steps > 0, adapted, coefs.kl_coef)

    def _init_episode_stats(self, slots: Slots, counted: jax.Array) -> EpisodeStats:
        keys = jax.random.split(jax.random.key(0), self.num_envs)
        action = self.encoder.env_action(slots.last_action)
        step = jax.eval_shape(self.env.step_batch, keys, slots.env_state, action, self.env_params)
        zeros = jnp.zeros(slots.fresh.shape)
        return EpisodeStats(
            returns=zeros,
            lengths=jnp.zeros(slots.fresh.shape, jnp.int32),
            extras=dict.fromkeys(step[-1].get("metrics", {}), zeros),
            counted=counted,
            return_trace=zeros,
        )
