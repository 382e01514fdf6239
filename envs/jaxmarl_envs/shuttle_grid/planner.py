"""A central planner: looks ahead with a dispatcher, and departs from it where that surely pays.

Before every step it tries joint actions on copies of the shift: what the dispatcher would do, and
departures from it, in which some of the idle shuttles take their other exit or hold. From there on
all go by the dispatcher, for `horizon` steps and through several draws of the jobs to come, since
nobody knows those. A departure is taken if its progress is greater by more than `bound` standard
errors (a rollout algorithm: Bertsekas, Tsitsiklis & Wu 1997, "Rollout algorithms for combinatorial
optimization"). It says what is possible with all in one hand; a step of it costs thousands.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import Observation
from jaxmarl_envs.shuttle_grid.dispatchers import Dispatcher
from jaxmarl_envs.shuttle_grid.env import ShuttleGrid
from jaxmarl_envs.shuttle_grid.progress import progress
from jaxmarl_envs.shuttle_grid.routes import is_int
from jaxmarl_envs.shuttle_grid.state import ShuttleParams, ShuttleState

DEPARTS = 0.3  # probability that an idle shuttle deviates from the dispatcher


def make_planner(
    env: ShuttleGrid,
    dispatcher: Dispatcher,
    horizon: int = 60,
    num_departures: int = 15,
    num_futures: int = 4,
    bound: float = 1.0,
) -> Dispatcher:
    """Make a dispatcher that plans by another one.

    Args:
        env: the environment, by which it looks ahead.
        dispatcher: what all are taken to do from the next step on.
        horizon: steps that it looks ahead, at least 1.
        num_departures: joint actions that are tried beside the dispatcher's, at least 1.
        num_futures: draws of the jobs to come, the same for all that is tried, at least 2.
        bound: standard errors over these draws by which a departure has to be better.

    Raises:
        ValueError: If an argument is out of range.
    """
    for name, value, minimum in (
        ("horizon", horizon, 1),
        ("num_departures", num_departures, 1),
        ("num_futures", num_futures, 2),
    ):
        if not is_int(value) or value < minimum:
            raise ValueError(f"{name}={value!r}: must be an integer of at least {minimum}")
    if not bound >= 0:
        raise ValueError(f"bound={bound!r}: must be a number of at least 0")

    def look_ahead(
        state: ShuttleState, action: jax.Array, params: ShuttleParams, key: jax.Array
    ) -> jax.Array:
        """Sum up the team's progress over the horizon, `()`; `key` draws the jobs to come."""
        future = replace(state, job_keys=jax.random.split(key, env.num_agents))

        def step(carry: tuple[ShuttleState, jax.Array], _: None):
            before, action = carry
            obs, after = env.step_env(key, before, action, params)[:2]
            delivered = after.num_delivered > before.num_delivered
            time_left = params.max_steps - after.time
            gained = progress(before, after, delivered, time_left, env.guidepath).sum()
            return (after, dispatcher(after, obs, params, key)), gained

        return jax.lax.scan(step, (future, action), None, length=horizon)[1].sum()

    def plan(
        state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array
    ) -> jax.Array:
        key_base, key_who, key_what, key_jobs = jax.random.split(key, 4)
        base = dispatcher(state, obs, params, key_base)
        shape = (num_departures, env.num_agents)
        departs = jax.random.uniform(key_who, shape) < DEPARTS
        # One of the two other actions each.
        other = (base + jax.random.randint(key_what, shape, 1, 3)) % 3
        tried = jnp.concatenate([base[None], jnp.where(departs, other, base)])
        futures = jax.random.split(key_jobs, num_futures)
        gained = jax.vmap(
            lambda action: jax.vmap(lambda k: look_ahead(state, action, params, k))(futures)
        )(tried)  # [1 + departures, futures]
        better = gained - gained[0]
        error = better.std(axis=1, ddof=1) / num_futures**0.5
        return tried[jnp.argmax(better.mean(axis=1) - bound * error)]

    return plan
