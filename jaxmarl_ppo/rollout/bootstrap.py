"""Values of observations without a decision: at the end of a life and of a rollout."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.backend import skip_unless
from jaxmarl_envs.core import Observation
from jaxmarl_ppo.ops.grouping import invert
from jaxmarl_ppo.policies.ask import ask
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.tile_sizes import envs_valued_at_once
from jaxmarl_ppo.rollout.faults import INFINITE, NAN, health, health_of_state
from jaxmarl_ppo.types import Population, RolloutState


def value_of(
    players: Players,
    population: Population,
    state: RolloutState,
    obs: Observation,
    wanted: jax.Array,
) -> jax.Array:
    """Compute V of an observation where `wanted [E, A]`, by one step that leaves memory unchanged.

    Where the observation is not finite, V is not either: a clipping normaliser could hide it.

    Returns:
        `[E, A]`, 0 where nothing is wanted.
    """
    total = jnp.zeros_like(state.last_reward)
    for group, stack, hidden in zip(
        players.policy_groups, population.policy_groups, state.hidden, strict=True
    ):
        response = ask(group, stack, hidden, state, obs, wanted)
        total = group.interface.spread(response.value, total, response.asked)
    kind = jnp.maximum(health(obs.features), health_of_state(players.seen(obs)))
    total = jnp.where(kind == INFINITE, jnp.inf, total)
    return jnp.where(kind == NAN, jnp.nan, total)


class Ending(NamedTuple):
    """Inputs to the values of final observations, for lives that end at one step."""

    state: RolloutState  # [E, ...]: after the step, but with the lives played in it
    obs: Observation  # [E, A, ...]: the final observation
    truncated: jax.Array  # [E, A] bool


def ending_of(state: RolloutState, obs: Observation, truncated: jax.Array) -> Ending:
    """Keep only what `final_value` needs and networks read.

    Args:
        state: after the step, with `is_first` and `player` still of the played lives.
        obs: `[E, A, ...]`, the final observation.
        truncated: `[E, A]` bool.
    """
    return Ending(state.replace(env_state=(), obs=(), episode=()), obs, truncated)


def final_value(players: Players, population: Population, ending: Ending) -> jax.Array:
    """Compute V of the final observation of truncated lives; other steps cost nothing.

    Where episodes are staggered, few end at a time: a loop values a few environments at once.

    Args:
        players: who can hold a slot.
        population: their parameters.
        ending: the lives that end.

    Returns:
        `[E, A]`, 0 where nothing was truncated.
    """
    truncated = ending.truncated
    num_envs = truncated.shape[0]
    size = envs_valued_at_once(num_envs)

    def values(ending: Ending) -> jax.Array:
        state, obs, truncated = ending
        return jnp.where(truncated, value_of(players, population, state, obs, truncated), 0.0)

    def compute() -> jax.Array:
        if size == num_envs:
            return values(ending)
        concerned = truncated.any(axis=1)
        rank = jnp.cumsum(concerned)
        # A multiple of `size`; otherwise the last slice would shift back and value some twice.
        order = invert(rank - 1, concerned, -(-num_envs // size) * size)

        def some_envs(index: jax.Array, total: jax.Array) -> jax.Array:
            ids = jax.lax.dynamic_slice(order, (index * size,), (size,))
            some = values(jax.tree.map(lambda x: x[ids], ending))
            return total.at[ids].set(some, mode="drop")

        zeros = jnp.zeros_like(ending.state.last_reward)
        return jax.lax.fori_loop(0, -(-rank[-1] // size), some_envs, zeros)

    return skip_unless(truncated.any(), compute, lambda: jnp.zeros_like(ending.state.last_reward))
