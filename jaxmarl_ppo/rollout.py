"""Environments and policies, tick by tick, as one scan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_ppo.agent_inputs import AgentInputs
from jaxmarl_ppo.policy_bank import PolicyBank
from jaxmarl_ppo.recurrence import where_rows
from jaxmarl_ppo.types import Decisions, Outcomes, Pending, Policies, PyTree, Slots


class Rollout(NamedTuple):
    """What one rollout recorded."""

    decisions: Decisions  # [T, E, A]
    outcomes: Outcomes  # [T, E, A]
    bootstrap_value: jax.Array  # [E, A]: V of the observation after the last tick
    start_hidden: PyTree  # [E, A, H] leaves: held when the rollout began


class Answer(NamedTuple):
    """What the environments returned at one tick."""

    reward: jax.Array  # [E, A]
    terminated: jax.Array  # [E, A] bool: edge
    truncated: jax.Array  # [E, A] bool: edge; counts only where not terminated too
    info: dict[str, Any]  # of `MultiAgentEnv.step_batch`


def init_slots(
    env: MultiAgentEnv, env_params: PyTree, bank: PolicyBank, encoder: AgentInputs, keys: jax.Array
) -> Slots:
    """Begin one episode per key; no agent has decided yet.

    Args:
        env: the environment.
        env_params: its parameters.
        bank: the policies.
        encoder: builds their inputs.
        keys: `[E]` keys.
    """
    obs, env_state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, env_params)
    shape = (len(keys), env.num_agents)
    last_action = encoder.no_action(shape)
    decisions = Decisions(
        inputs=jnp.zeros((*shape, *bank.input_shape)),
        action_mask=jnp.ones_like(obs.action_mask),
        action=last_action,
        log_prob=jnp.zeros(shape),
        value=jnp.zeros(shape),
        hidden=bank.initial_hidden(shape),
        life_start=jnp.zeros(shape, bool),
        acted=jnp.zeros(shape, bool),
        policy=jnp.zeros(shape, jnp.int32),
    )
    return Slots(
        env_state=env_state,
        obs=obs,
        hidden=bank.initial_hidden(shape),
        fresh=jnp.ones(shape, bool),
        policy=jnp.broadcast_to(jnp.array(bank.mapping.slot_policy, jnp.int32), shape),
        last_action=last_action,
        last_reward=jnp.zeros(shape),
        pending=Pending(decisions, jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape, jnp.int32)),
    )


def rollout(
    env: MultiAgentEnv,
    env_params: PyTree,
    bank: PolicyBank,
    encoder: AgentInputs,
    policies: Policies,
    slots: Slots,
    key: jax.Array,
    num_steps: int,
) -> tuple[Slots, Rollout]:
    """Play `num_steps` ticks in every environment.

    Returns:
        The slots to go on from (their `pending` is still that of the beginning) and the record.
    """

    def tick(slots: Slots, key: jax.Array) -> tuple[Slots, tuple[Decisions, Outcomes]]:
        key_act, key_env = jax.random.split(key)
        hidden, decisions = act(bank, encoder, policies, slots, key_act)
        after, answer = step(env, env_params, encoder, slots, hidden, decisions, key_env)
        truncated = answer.truncated & ~answer.terminated
        outcomes = Outcomes(
            reward=answer.reward,
            terminated=answer.terminated,
            truncated=truncated,
            final_value=_final_value(
                bank, encoder, policies, after, answer.info["final_observation"], truncated
            ),
            alive=slots.obs.alive,
            credited=~after.fresh,
            episode_over=answer.info["episode_over"],
            extras=answer.info.get("metrics", {}),
        )
        return begin_lives(after, answer), (decisions, outcomes)

    start_hidden = slots.hidden
    slots, (decisions, outcomes) = jax.lax.scan(tick, slots, jax.random.split(key, num_steps))
    value = _value(bank, encoder, policies, slots, slots.obs)
    return slots, Rollout(decisions, outcomes, value, start_hidden)


def act(
    bank: PolicyBank,
    encoder: AgentInputs,
    policies: Policies,
    slots: Slots,
    key: jax.Array,
    greedy: bool = False,
) -> tuple[PyTree, Decisions]:
    """Every slot's decision on its current observation; those that wait decide nothing.

    Actions are drawn, or with `greedy` the most likely ones. Returns the memory to hold from here
    on and the decisions `[E, A]`.
    """
    obs = slots.obs
    inputs = encoder(obs.features, slots)
    rows = _Actors.of(bank, encoder, obs.agent_mask)
    acting = rows.take(obs.agent_mask)
    mask = rows.take(obs.action_mask)
    hidden, start, outputs, value = bank.forward(
        policies, rows.take(slots.hidden), rows.take(inputs), rows.take(slots.fresh), acting
    )
    distribution = bank.distribution
    action = distribution.mode(outputs, mask) if greedy else distribution.sample(key, outputs, mask)
    log_prob = distribution.log_prob(outputs, mask, action)
    decisions = Decisions(
        inputs=inputs,
        action_mask=obs.action_mask,
        action=rows.put(action, slots.last_action),
        log_prob=rows.put(log_prob, jnp.zeros_like(slots.last_reward)),
        value=rows.put(value, jnp.zeros_like(slots.last_reward)),
        hidden=rows.put(start, slots.hidden),
        life_start=slots.fresh,
        acted=obs.agent_mask,
        policy=slots.policy,
    )
    return rows.put(hidden, slots.hidden), decisions


def step(
    env: MultiAgentEnv,
    env_params: PyTree,
    encoder: AgentInputs,
    slots: Slots,
    hidden: PyTree,
    decisions: Decisions,
    key: jax.Array,
) -> tuple[Slots, Answer]:
    """Send decisions from `act` to the environments; those that are over begin anew.

    Returns:
        The slots after the tick and what the environments answered. `fresh` is still that of the
        lives which were played, as a value at their end needs it; `begin_lives` comes next.
    """
    keys = jax.random.split(key, slots.fresh.shape[0])
    action = encoder.env_action(decisions.action)
    obs, env_state, reward, terminated, truncated, info = env.step_batch(
        keys, slots.env_state, action, env_params
    )
    after = slots.replace(
        env_state=env_state,
        obs=obs,
        hidden=hidden,
        fresh=slots.fresh & ~decisions.acted,
        last_action=where_rows(decisions.acted, decisions.action, slots.last_action),
        last_reward=jnp.where(decisions.acted, 0.0, slots.last_reward) + reward,
    )
    return after, Answer(reward, terminated, truncated, info)


def begin_lives(slots: Slots, answer: Answer) -> Slots:
    """Whoever comes after a life that ended has decided nothing yet."""
    return slots.replace(fresh=slots.fresh | answer.terminated | answer.truncated)


class _Actors(NamedTuple):
    """The rows that a tick computes: all slots, or the few that can act at once."""

    slots: jax.Array | None  # [E, max_actors] int; None for all

    @classmethod
    def of(cls, bank: PolicyBank, encoder: AgentInputs, agent_mask: jax.Array) -> "_Actors":
        num_agents = agent_mask.shape[-1]
        # With several policies every slot has parameters of its own; picking rows saves nothing.
        if encoder.max_actors >= num_agents or bank.num_policies > 1:
            return cls(None)
        order = jnp.argsort(~agent_mask, axis=-1, stable=True)
        return cls(order[:, : encoder.max_actors])

    def take(self, rows: PyTree) -> PyTree:
        """`[E, A, ...]` leaves to `[E, max_actors, ...]`."""
        if self.slots is None:
            return rows
        return jax.tree.map(lambda x: jax.vmap(lambda x, i: x[i])(x, self.slots), rows)

    def put(self, rows: PyTree, others: PyTree) -> PyTree:
        """The rows at their slots, `others` everywhere else."""
        if self.slots is None:
            return rows
        write = jax.vmap(lambda x, i, y: y.at[i].set(x, unique_indices=True))
        return jax.tree.map(lambda x, y: write(x, self.slots, y), rows, others)


def _value(
    bank: PolicyBank, encoder: AgentInputs, policies: Policies, slots: Slots, obs: Observation
) -> jax.Array:
    """V of an observation, `[E, A]`, by one transient step from the held state.

    Where the observation is not finite neither is V: a clipping normaliser could hide it.
    """
    inputs = encoder(obs.features, slots)
    acting = jnp.ones_like(slots.fresh)
    value = bank.forward(policies, slots.hidden, inputs, slots.fresh, acting)[3]
    features = obs.features.reshape(*value.shape, -1)
    value = jnp.where(jnp.isinf(features).any(-1), jnp.inf, value)
    return jnp.where(jnp.isnan(features).any(-1), jnp.nan, value)


def _final_value(
    bank: PolicyBank,
    encoder: AgentInputs,
    policies: Policies,
    slots: Slots,
    obs: Observation,
    truncated: jax.Array,
) -> jax.Array:
    """V(final observation) where a life was truncated, else 0; costs nothing on other ticks."""

    def compute() -> jax.Array:
        return jnp.where(truncated, _value(bank, encoder, policies, slots, obs), 0.0)

    return jax.lax.cond(truncated.any(), compute, lambda: jnp.zeros_like(slots.last_reward))
