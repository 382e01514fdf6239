"""Evaluation of scripted dispatchers: deliveries in a shift."""

from functools import partial

import jax

from jaxmarl_envs.core import Observation
from jaxmarl_envs.shuttle_grid.dispatchers import Dispatcher
from jaxmarl_envs.shuttle_grid.env import ShuttleGrid
from jaxmarl_envs.shuttle_grid.state import ShuttleParams, ShuttleState


def evaluate_dispatcher(
    env: ShuttleGrid,
    params: ShuttleParams,
    dispatcher: Dispatcher,
    key: jax.Array,
    num_episodes: int,
) -> jax.Array:
    """Count the team's deliveries in each of `num_episodes` independent shifts.

    Compiled once per environment, dispatcher and number of episodes. For the figure without any
    contention evaluate `ShuttleGrid(num_shuttles=1)` and multiply.

    Args:
        env: the environment.
        params: its parameters, with a concrete `max_steps`.
        dispatcher: one of `DISPATCHERS`, or any function of that signature.
        key: of starts, jobs and of the dispatcher's own draws.
        num_episodes: at least 1.

    Returns:
        `[num_episodes]` float32.

    Raises:
        ValueError: If `num_episodes` is below 1.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes={num_episodes}: must be at least 1")
    return _evaluate(env, dispatcher, int(params.max_steps), params, key, num_episodes)


@partial(jax.jit, static_argnums=(0, 1, 2, 5))
def _evaluate(
    env: ShuttleGrid,
    dispatcher: Dispatcher,
    num_steps: int,
    params: ShuttleParams,
    key: jax.Array,
    num_episodes: int,
) -> jax.Array:
    def step(
        carry: tuple[Observation, ShuttleState], key: jax.Array
    ) -> tuple[tuple[Observation, ShuttleState], jax.Array]:
        key_dispatcher, key_step = jax.random.split(key)
        obs, state = carry
        action = dispatcher(state, obs, params, key_dispatcher)
        obs, state, _, _, _, info = env.step_env(key_step, state, action, params)
        return (obs, state), info["metrics"]["deliveries"][0]

    def shift(key: jax.Array) -> jax.Array:
        key_reset, key_steps = jax.random.split(key)
        start = env.reset_env(key_reset, params)
        _, deliveries = jax.lax.scan(step, start, jax.random.split(key_steps, num_steps))
        return deliveries.sum()

    return jax.vmap(shift)(jax.random.split(key, num_episodes))
