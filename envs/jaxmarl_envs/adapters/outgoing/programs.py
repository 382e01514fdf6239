"""The functions of an environment that is stepped from Python, compiled, a table for each step."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation

# A step is fetched as one table `[A, F + W + 5]`: features, flat, and action mask, then these.
ALIVE, ACTS, REWARD, TERMINATED, TRUNCATED = range(-5, 0)
MOST_STEPS_WITHOUT_AN_AGENT = 10_000


@struct.dataclass
class RunningEpisode:
    """An episode on the device."""

    key: jax.Array  # [] of the episode
    time_step: jax.Array  # [] int32: steps done
    state: Any
    central: jax.Array | None  # [G] what a centralised critic may see
    table: jax.Array  # [A, F + W + 5] float: what agents see, and the last step brought
    final: jax.Array  # [A, F + W] float, in which an ended agent's row is its own


class Programs(NamedTuple):
    """The compiled functions of an environment."""

    reset: Callable[[jax.Array, Any, Any], RunningEpisode]
    step: Callable[[RunningEpisode, Any, Any], RunningEpisode]
    step_on: Callable[[RunningEpisode, Any, Any], RunningEpisode]


@functools.lru_cache(maxsize=32)
def programs(env: MultiAgentEnv) -> Programs:
    """Compile an environment's reset, its step, and its step on to the next event.

    `reset(series, episode, params)` begins an episode of the series of a key. `step(running,
    action, params)` makes one step; `action` is of all slots, see `ActionLayout`. `step_on` takes
    the same and makes steps until an agent must act or a life begins or ends, at most 10,000, in
    which those who are not asked send 0; rewards are summed over them. All are compiled once for
    an environment, however many step it.
    """

    def reset(series: jax.Array, episode: Any, params: Any) -> RunningEpisode:
        key = jax.random.fold_in(series, episode)
        obs, state = env.reset_env(jax.random.fold_in(key, 0), params)
        nothing = jnp.zeros(env.num_agents)
        table = _table(obs, nothing, nothing, nothing)
        return RunningEpisode(key, jnp.zeros((), jnp.int32), state, obs.state, table, _seen(obs))

    def step(running: RunningEpisode, action: Any, params: Any) -> RunningEpisode:
        time_step = running.time_step + 1
        obs, state, reward, terminated, truncated, info = env.step_env(
            jax.random.fold_in(running.key, time_step), running.state, action, params
        )
        table = _table(obs, reward, terminated, truncated & ~terminated)
        final = _seen(info.get("final_observation", obs))
        return RunningEpisode(running.key, time_step, state, obs.state, table, final)

    def step_on(running: RunningEpisode, action: Any, params: Any) -> RunningEpisode:
        first, alive = running.time_step, running.table[:, ALIVE]

        def nobody_concerned(running: RunningEpisode) -> jax.Array:
            changed = running.table[:, ALIVE] != alive
            told = running.table[:, jnp.array([ACTS, TERMINATED, TRUNCATED])] > 0
            num_steps = running.time_step - first
            waiting = ~changed.any() & ~told.any() & (num_steps < MOST_STEPS_WITHOUT_AN_AGENT)
            return (num_steps == 0) | waiting

        def once_more(running: RunningEpisode) -> RunningEpisode:
            earned = jnp.where(running.time_step == first, 0.0, running.table[:, REWARD])
            chosen = first_alone(running.time_step == first, action)
            running = step(running, chosen, params)
            return replace(running, table=running.table.at[:, REWARD].add(earned))

        return jax.lax.while_loop(nobody_concerned, once_more, running)

    return Programs(jax.jit(reset), jax.jit(step), jax.jit(step_on))


def first_alone(is_first: jax.Array, action: Any) -> Any:
    """Return the action at the first step, `is_first []`, and zeros at those after it."""
    return jax.tree.map(lambda x: jnp.where(is_first, x, jnp.zeros_like(x)), action)


def _seen(obs: Observation) -> jax.Array:
    """Join features and masks, `[A, F + W]` float32."""
    features = obs.features.reshape(len(obs.alive), -1)
    return jnp.concatenate([features, obs.action_mask], axis=1, dtype=jnp.float32)


def _table(
    obs: Observation, reward: jax.Array, terminated: jax.Array, truncated: jax.Array
) -> jax.Array:
    columns = [obs.alive, obs.agent_mask, reward, terminated, truncated]
    return jnp.column_stack([_seen(obs), *columns]).astype(jnp.float32)
