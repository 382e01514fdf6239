"""What an evaluation says beyond returns, for the environments whose optimum is known.

A report function gets an `Evaluation` and returns entries for the report, all of them plain data;
`headline`, a list of sentences, is what people are shown first. To add a scenario, write one such
function and enter it in `SCENARIOS`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.crypto import Crypto
from jaxmarl_envs.shuttle_grid import DISPATCHERS, ShuttleGrid, evaluate_dispatcher
from jaxmarl_envs.tic_tac_toe import TicTacToe
from jaxmarl_ppo.evaluation.scenarios.base import (
    Evaluation,
    MeanAndSE,
    Report,
    mean_and_se,
    plus_minus,
)
from jaxmarl_ppo.evaluation.scenarios.tic_tac_toe import report_tic_tac_toe
from jaxmarl_ppo.types import PyTree


class Scenario(NamedTuple):
    """How an environment is evaluated."""

    env_type: type[MultiAgentEnv]
    report_fn: Callable[[Evaluation], Report]
    num_episodes: int  # unless the caller says otherwise


def report_crypto(evaluation: Evaluation) -> Report:
    """How often the listeners name the goal."""
    agents = evaluation.learner.env.agents
    accuracy = {
        agent: mean_and_se(evaluation.totals.metrics["accuracy"][:, agents.index(agent)])["mean"]
        for agent in ("bob_0", "eve_0")
    }
    headline = (
        f"bob_0 names the goal at {100 * accuracy['bob_0']:.1f} % of the ticks, "
        f"eve_0 at {100 * accuracy['eve_0']:.1f} % (a perfect cipher: 100 % and 50 %)"
    )
    return {"accuracy": accuracy, "headline": [headline]}


def report_shuttle_grid(evaluation: Evaluation) -> Report:
    """Deliveries of a shift, beside those of the scripted dispatchers on as many shifts."""
    env = evaluation.learner.env
    assert isinstance(env, ShuttleGrid)
    team = mean_and_se(evaluation.totals.metrics["deliveries"][:, 0])
    max_steps = int(evaluation.env_params.max_steps)
    shifts = _dispatched_shifts(
        env, max_steps, evaluation.num_episodes, evaluation.env_params, evaluation.key
    )
    dispatchers = {name: mean_and_se(row) for name, row in zip(DISPATCHERS, shifts, strict=True)}
    best = max(dispatchers, key=lambda name: dispatchers[name]["mean"])
    headline = (
        f"{_deliveries_in_words(team)} deliveries per shift of "
        f"{max_steps} ticks; best scripted dispatcher ({best}) "
        f"{_deliveries_in_words(dispatchers[best])}"
    )
    return {"deliveries": {**team, "dispatchers": dispatchers}, "headline": [headline]}


@partial(jax.jit, static_argnums=(0, 1, 2))
def _dispatched_shifts(
    env: ShuttleGrid, max_steps: int, num_episodes: int, env_params: PyTree, key: jax.Array
) -> jax.Array:
    """Deliveries `[dispatchers, episodes]`.

    All dispatchers get the same starts and jobs, so their differences vary less; and all run
    through one compiled shift, since compiling costs more than running it.
    """
    env_params = env_params.replace(max_steps=max_steps)

    def evaluate(index: jax.Array) -> jax.Array:
        def dispatcher(*args: Any) -> jax.Array:
            return jax.lax.switch(index, tuple(DISPATCHERS.values()), *args)

        return evaluate_dispatcher(env, env_params, dispatcher, key, num_episodes)

    return jax.lax.map(evaluate, jnp.arange(len(DISPATCHERS)))


def _deliveries_in_words(stats: MeanAndSE) -> str:
    return plus_minus(stats["mean"], stats["se"], 2)


SCENARIOS: dict[str, Scenario] = {
    "crypto": Scenario(Crypto, report_crypto, 1024),
    "shuttle_grid": Scenario(ShuttleGrid, report_shuttle_grid, 256),
    "tic_tac_toe": Scenario(TicTacToe, report_tic_tac_toe, 1024),
}


def find_scenario(env: MultiAgentEnv) -> Scenario | None:
    """The entry for an environment; None where there is none, or the name is all they share."""
    scenario = SCENARIOS.get(env.name)
    return scenario if scenario and isinstance(env, scenario.env_type) else None
