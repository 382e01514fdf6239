"""Evaluation of shuttles: deliveries, compared with scripted dispatchers."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.shuttle_grid import ShuttleGrid, evaluate_dispatcher
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.scenarios.known import KNOWN, SCRIPTED
from jaxmarl_ppo.evaluation.statistics import MeanAndSE, mean_and_se, plus_minus
from jaxmarl_ppo.types import PyTree


def report_shuttle_grid(evaluation: Evaluation) -> Report:
    """Report deliveries per shift, and those of scripted dispatchers on as many shifts."""
    env = evaluation.learner.env
    assert isinstance(env, ShuttleGrid)
    team = mean_and_se(evaluation.totals.metrics["deliveries"][:, 0])
    max_steps = int(evaluation.env_params.max_steps)
    shifts = _dispatched_shifts(
        env, max_steps, evaluation.num_episodes, evaluation.env_params, evaluation.key
    )
    dispatchers = {name: mean_and_se(row) for name, row in zip(env.baselines, shifts, strict=True)}
    best = max(dispatchers, key=lambda name: dispatchers[name]["mean"])
    headline = [
        f"{_deliveries_in_words(team)} deliveries per shift of "
        f"{max_steps} steps; best scripted dispatcher ({best}) "
        f"{_deliveries_in_words(dispatchers[best])}",
        *yardsticks(env, max_steps),
    ]
    return {"deliveries": {**team, "dispatchers": dispatchers}, "headline": headline}


def yardsticks(env: ShuttleGrid, max_steps: int) -> list[str]:
    """Return one sentence on known results of the default hall; none for another hall."""
    known = KNOWN["shuttle_grid"]
    if env.reference != "tuned" or max_steps != known.params["max_steps"]:
        return []
    others = [f"{name} {value}" for name, value in known.goals.items() if name != SCRIPTED]
    return [f"known of this hall: {'; '.join(others)}"]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _dispatched_shifts(
    env: ShuttleGrid, max_steps: int, num_episodes: int, env_params: PyTree, key: jax.Array
) -> jax.Array:
    """Count the deliveries of every scripted dispatcher, `[dispatchers, episodes]`.

    All dispatchers get the same starts and jobs, so their differences vary less; and all run
    through one compiled shift, since compiling costs more than running it.
    """
    env_params = env_params.replace(max_steps=max_steps)

    def evaluate(index: jax.Array) -> jax.Array:
        def dispatcher(*args: Any) -> jax.Array:
            return jax.lax.switch(index, tuple(env.baselines.values()), *args)

        return evaluate_dispatcher(env, env_params, dispatcher, key, num_episodes)

    return jax.lax.map(evaluate, jnp.arange(len(env.baselines)))


def _deliveries_in_words(stats: MeanAndSE) -> str:
    return plus_minus(stats["mean"], stats["se"], 2)
