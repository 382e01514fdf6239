"""Environments and players, tick by tick, as one scan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.threefry import split
from jaxmarl_ppo.config.mapping import Draw
from jaxmarl_ppo.ops.grouping import invert
from jaxmarl_ppo.ops.lanes import assign_lanes, put, take
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.players import BankSeats, Players
from jaxmarl_ppo.policies.tiles import envs_valued_at_once
from jaxmarl_ppo.rollout.episode_stats import Followed, follow, start_following
from jaxmarl_ppo.rollout.faults import INFINITE, NAN, check, health
from jaxmarl_ppo.rollout.noise import Noise, draw_noise
from jaxmarl_ppo.types import (
    Decisions,
    EpisodeStats,
    League,
    Outcomes,
    Pending,
    Policies,
    Population,
    PyTree,
    Slots,
)


class Rollout(NamedTuple):
    """What one rollout recorded."""

    decisions: tuple[Decisions, ...]  # per bank [T, E, M]
    lanes: tuple[jax.Array | None, ...]  # per bank [T, E, M] int, see `lanes.assign_lanes`
    outcomes: Outcomes  # [T, E, A]
    faults: jax.Array  # [T, E, A] uint8: see `faults.check`
    bootstrap_value: jax.Array  # [E, A]: V of the observation after the last tick
    start_hidden: tuple[PyTree, ...]  # per bank [E, S, H] leaves: held when the rollout began
    followed: Followed  # [E, ...]


class Answer(NamedTuple):
    """What the environments returned at one tick."""

    reward: jax.Array  # [E, A]
    terminated: jax.Array  # [E, A] bool: edge
    truncated: jax.Array  # [E, A] bool: edge; counts only where not terminated too
    info: dict[str, Any]  # of `MultiAgentEnv.step_batch`


class Choice(NamedTuple):
    """What all slots do at one tick."""

    hidden: tuple[PyTree, ...]  # per bank [E, S, H] leaves: the memory to hold from here on
    decisions: tuple[Decisions, ...]  # per bank [E, M]
    lanes: tuple[jax.Array | None, ...]  # per bank [E, M] int: the slots that they belong to
    action: jax.Array  # [E, A] or [E, A, N]: as networks gave it
    env_action: jax.Array  # [E, A] or [E, A, N]: as the environment takes it


def init_slots(
    env: MultiAgentEnv,
    env_params: PyTree,
    players: Players,
    league: League,
    key: jax.Array,
    num_envs: int,
) -> Slots:
    """Begin an episode in every environment; no agent has decided yet."""
    key_reset, key_draw = split(key)
    keys = split(key_reset, num_envs)
    obs, env_state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, env_params)
    shape = (num_envs, env.num_agents)
    episode = jnp.zeros(num_envs, jnp.int32)
    everyone = jnp.ones(shape, bool)
    draw = Draw(episode, everyone, jnp.zeros(shape, jnp.int32), obs.alive)
    return Slots(
        env_state=env_state,
        obs=obs,
        hidden=players.initial_hidden(num_envs),
        fresh=everyone,
        player=players.draw(key_draw, league, draw),
        last_action=players.no_action(num_envs),
        last_reward=jnp.zeros(shape),
        episode=episode,
    )


def nothing_pending(seats: BankSeats, slots: Slots) -> Pending:
    """No open decision in any of a bank's slots."""
    encoder = seats.encoder
    mask = encoder.action_mask(slots.obs)
    shape = mask.shape[:2]
    action = encoder.own(slots.last_action)
    decisions = Decisions(
        inputs=jnp.zeros((*shape, *encoder.input_shape)),
        action_mask=jnp.ones_like(mask),
        action=action[..., : encoder.action_width] if encoder.continuous else action,
        log_prob=jnp.zeros(shape),
        value=jnp.zeros(shape),
        hidden=seats.bank.initial_hidden(shape),
        life_start=jnp.zeros(shape, bool),
        acted=jnp.zeros(shape, bool),
        policy=jnp.zeros(shape, jnp.int32),
    )
    return Pending(decisions, jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape, jnp.int32))


def rollout(
    env: MultiAgentEnv,
    env_params: PyTree,
    players: Players,
    population: Population,
    slots: Slots,
    stats: EpisodeStats,
    key: jax.Array,
    num_steps: int,
) -> tuple[Slots, Rollout]:
    """Play `num_steps` ticks in every environment.

    Returns:
        The slots to go on from and the record. Of its `outcomes` only what is read is ever stored.
    """

    def tick(carry: tuple[Slots, Followed], noise: Noise):
        slots, followed = carry
        choice = act(players, population, slots, env_params, noise, as_mapped=True)
        after, answer = step(env, env_params, slots, choice, noise)
        truncated = answer.truncated & ~answer.terminated
        final = answer.info["final_observation"]
        # Whose life has just ended is still to be seen in it.
        final = final.replace(alive=final.alive | slots.obs.alive)
        outcomes = Outcomes(
            reward=answer.reward,
            terminated=answer.terminated,
            truncated=truncated,
            final_value=_final_value(players, population, after, final, truncated),
            alive=slots.obs.alive,
            acted=slots.obs.agent_mask,
            player=slots.player,
            credited=~after.fresh,
            episode_over=answer.info["episode_over"],
            extras=answer.info.get("metrics", {}),
        )
        faults = check(slots.obs, answer.reward, outcomes.final_value, env.max_actors)
        born = begin_lives(players, population.league, slots.obs.alive, after, answer, noise)
        followed = follow(players, followed, outcomes)
        return (born, followed), (choice.decisions, choice.lanes, outcomes, faults)

    start_hidden = slots.hidden
    noise = draw_noise(players, (num_steps, slots.fresh.shape[0]), key)
    (slots, followed), (decisions, lanes, outcomes, faults) = jax.lax.scan(
        tick, (slots, start_following(players, stats)), noise
    )
    value = _value(players, population, slots, slots.obs, slots.obs.agent_mask)
    record = Rollout(decisions, lanes, outcomes, faults, value, start_hidden, followed)
    return slots, record


def act(
    players: Players,
    population: Population,
    slots: Slots,
    env_params: PyTree,
    noise: Noise,
    greedy: bool = False,
    as_mapped: bool = False,
) -> Choice:
    """Every slot's decision on its current observation; those that wait decide nothing.

    Networks draw their actions, or with `greedy` take the most likely ones. `as_mapped` promises
    that slots are held by players that the mapping gives them.
    """
    hidden, decisions, lanes = [], [], []
    action = slots.last_action
    env_action = jnp.zeros_like(action)
    for seats, stack, held, noise_bank in zip(
        players.banks, population.banks, slots.hidden, noise.actions, strict=True
    ):
        encoder = seats.encoder
        moved, own, lane = _act_bank(seats, stack, held, slots, noise_bank, greedy, as_mapped)
        hidden.append(moved)
        decisions.append(own)
        lanes.append(lane)
        action = encoder.spread(own.action, action, own.acted, lane)
        to_env = encoder.env_action(own.action, lane)
        env_action = encoder.spread(to_env, env_action, own.acted, lane)
    env_action = players.scripted_actions(slots, env_params, noise.scripts, env_action)
    return Choice(tuple(hidden), tuple(decisions), tuple(lanes), action, env_action)


def _act_bank(
    seats: BankSeats,
    policies: Policies,
    hidden: PyTree,
    slots: Slots,
    noise: jax.Array,
    greedy: bool,
    as_mapped: bool,
) -> tuple[PyTree, Decisions, jax.Array | None]:
    """The memory to hold, the decisions `[E, M]` and the slots that they belong to."""
    encoder, distribution = seats.encoder, seats.bank.distribution
    row, plays = seats.rows(slots.player)
    acting = encoder.own(slots.obs.agent_mask) & plays
    lanes = assign_lanes(acting, seats.num_lanes)
    row, acting, fresh, held = take((row, acting, encoder.own(slots.fresh), hidden), lanes)
    inputs, mask = encoder(slots.obs, slots, lanes), encoder.action_mask(slots.obs, lanes)
    moved, start, outputs, value = seats.bank.forward(
        policies, row, held, inputs, fresh, acting, seats.fixed_lanes if as_mapped else None
    )
    if greedy:
        action = distribution.mode(outputs, mask)
    else:
        action = distribution.sample(noise, outputs, mask)
    decisions = Decisions(
        inputs=inputs,
        action_mask=mask,
        action=action,
        log_prob=distribution.log_prob(outputs, mask, action),
        value=value,
        hidden=start,
        life_start=fresh,
        acted=acting,
        policy=row,
    )
    return put(moved, lanes, hidden), decisions, lanes


def step(
    env: MultiAgentEnv, env_params: PyTree, slots: Slots, choice: Choice, noise: Noise
) -> tuple[Slots, Answer]:
    """Send what `act` chose to the environments; those that are over begin anew.

    Returns:
        The slots after the tick and what the environments answered. `fresh` and `player` are still
        those of the lives which were played, as a value at their end needs them; `begin_lives`
        comes next.
    """
    obs, env_state, reward, terminated, truncated, info = env.step_batch(
        noise.env, slots.env_state, choice.env_action, env_params
    )
    acted = slots.obs.agent_mask
    after = slots.replace(
        env_state=env_state,
        obs=obs,
        hidden=choice.hidden,
        fresh=slots.fresh & ~acted,
        last_action=where_rows(acted, choice.action, slots.last_action),
        last_reward=jnp.where(acted, 0.0, slots.last_reward) + reward,
    )
    return after, Answer(reward, terminated, truncated, info)


def begin_lives(
    players: Players,
    league: League,
    alive_before: jax.Array,
    slots: Slots,
    answer: Answer,
    noise: Noise,
) -> Slots:
    """Give every new life a player; it has decided nothing yet.

    Args:
        players: all of them.
        league: what opponents are drawn by.
        alive_before: `[E, A]` bool, before the tick.
        slots: from `step`.
        answer: from `step`.
        noise: of the tick.
    """
    ended = answer.terminated | answer.truncated
    over = answer.info["episode_over"]
    fresh = slots.fresh | ended
    slots = slots.replace(fresh=fresh, episode=slots.episode + over)
    key = noise.lives
    if key is None:
        return slots
    born = slots.obs.alive & (ended | ~alive_before)
    needed = born | over[:, None]

    def draw() -> jax.Array:
        return players.draw(key, league, Draw(slots.episode, needed, slots.player, slots.obs.alive))

    return slots.replace(player=jax.lax.cond(needed.any(), draw, lambda: slots.player))


def _value(
    players: Players,
    population: Population,
    slots: Slots,
    obs: Observation,
    wanted: jax.Array,
) -> jax.Array:
    """V of an observation where `wanted [E, A]`, by one transient step from the held state.

    Where the observation is not finite neither is V: a clipping normaliser could hide it.
    """
    total = jnp.zeros_like(slots.last_reward)
    for seats, stack, hidden in zip(players.banks, population.banks, slots.hidden, strict=True):
        encoder = seats.encoder
        row, plays = seats.rows(slots.player)
        inputs, fresh = encoder(obs, slots), encoder.own(slots.fresh)
        asked = plays & encoder.own(wanted)
        # Where not all can act, hardly any is asked.
        fixed = seats.fixed_rows if seats.num_lanes == len(encoder.slots) else None
        value = seats.bank.forward(stack, row, hidden, inputs, fresh, asked, fixed)[3]
        total = encoder.spread(value, total, asked)
    kind = health(obs.features)
    total = jnp.where(kind == INFINITE, jnp.inf, total)
    return jnp.where(kind == NAN, jnp.nan, total)


def _final_value(
    players: Players,
    population: Population,
    slots: Slots,
    obs: Observation,
    truncated: jax.Array,
) -> jax.Array:
    """V(final observation) where a life was truncated, else 0; costs nothing on other ticks.

    Where episodes begin staggered, few end at a time: computed are a few environments at once, for
    as long as there are more.
    """
    num_envs = truncated.shape[0]
    size = envs_valued_at_once(num_envs)
    seen = slots.replace(env_state=()), obs, truncated

    def values(slots: Slots, obs: Observation, truncated: jax.Array) -> jax.Array:
        return jnp.where(truncated, _value(players, population, slots, obs, truncated), 0.0)

    def compute() -> jax.Array:
        if size == num_envs:
            return values(*seen)
        concerned = truncated.any(axis=1)
        rank = jnp.cumsum(concerned)
        order = invert(rank - 1, concerned, -(-num_envs // size) * size)

        def some_envs(index: jax.Array, total: jax.Array) -> jax.Array:
            ids = jax.lax.dynamic_slice(order, (index * size,), (size,))
            some = values(*jax.tree.map(lambda x: x[ids], seen))
            return total.at[ids].set(some, mode="drop")

        zeros = jnp.zeros_like(slots.last_reward)
        return jax.lax.fori_loop(0, -(-rank[-1] // size), some_envs, zeros)

    return jax.lax.cond(truncated.any(), compute, lambda: jnp.zeros_like(slots.last_reward))
