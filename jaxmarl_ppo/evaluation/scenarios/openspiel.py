"""Evaluation of OpenSpiel's small games for two: exploitability by OpenSpiel's own best responses.

Letters: `D` decisions, `N` actions.
"""

import importlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.adapters.incoming.openspiel import MAX_HISTORIES, Decisions, OpenSpiel
from jaxmarl_envs.core import Observation
from jaxmarl_envs.policy_table import checked_policy, most_probable
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report, Scenario
from jaxmarl_ppo.evaluation.scenarios.tabulated import (
    EXPLOITABILITY_PATHS,
    action_probabilities,
    exploitability_report,
    policies_by_seat,
    why_not_tabulated,
)


def report_openspiel(evaluation: Evaluation) -> Report:
    """Report what best responses win per game of a zero-sum game for two, if it is small enough."""
    learner, env = evaluation.learner, evaluation.learner.env
    assert isinstance(env, OpenSpiel)
    obstacle = _why_not(env) or why_not_tabulated(learner, "information state")
    if obstacle is not None:
        return {"exploitability_note": obstacle, "headline": [f"exploitability {obstacle}"]}
    decisions = env.decisions
    assert decisions is not None
    obs = _observations(env, decisions)
    seats = policies_by_seat(
        learner,
        lambda player: action_probabilities(
            learner,
            evaluation.env_params,
            evaluation.population,
            obs,
            decisions.mover,
            player,
        ),
    )

    def best_response_value(policy: np.ndarray, responder: str) -> float:
        return _best_response_value(env, decisions, policy, env.agent_index(responder))

    ways = {"stochastic": lambda policy: policy, "greedy": most_probable}
    return exploitability_report(env.agents, seats, ways, best_response_value, " per game")


SCENARIO = Scenario(OpenSpiel, report_openspiel, 1024, EXPLOITABILITY_PATHS)


def _why_not(env: OpenSpiel) -> str | None:
    """Explain why the exploitability of a game cannot be computed; None if it can."""
    spiel, kind = _pyspiel(), env.game.get_type()
    if kind.dynamics != spiel.GameType.Dynamics.SEQUENTIAL:
        return "left out: the players decide at the same time"
    if env.num_agents != 2 or kind.utility != spiel.GameType.Utility.ZERO_SUM:
        return "left out: not a zero-sum game of two players"
    if not kind.provides_information_state_string:
        return "left out: OpenSpiel does not tell the information states of this game apart"
    if kind.chance_mode == spiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        return "left out: the game does not tell the probabilities of chance"
    if env.decisions is None:
        return f"left out: the game has over {MAX_HISTORIES:,} histories"
    return None


def _observations(env: OpenSpiel, decisions: Decisions) -> Observation:
    """Put what the mover of each decision sees into its row, `[D, A, ...]`."""
    moves = decisions.mover[:, None] == np.arange(env.num_agents)
    rows = moves.reshape(*moves.shape, *(1,) * (decisions.features.ndim - 1))
    return Observation(
        features=jnp.asarray(np.where(rows, decisions.features[:, None], 0)),
        action_mask=jnp.asarray(np.where(moves[..., None], decisions.legal[:, None], True)),
        alive=jnp.ones(moves.shape, bool),
        agent_mask=jnp.asarray(moves),
    )


def _best_response_value(
    env: OpenSpiel, decisions: Decisions, policy: np.ndarray, responder: int
) -> float:
    """Return the most that a player can win per game against a policy `[D, N]`."""
    policy = checked_policy(policy, decisions.legal, "actions")
    rows = {
        key: [(int(action), row[action]) for action in np.flatnonzero(legal)]
        for key, row, legal in zip(decisions.keys, policy, decisions.legal, strict=True)
    }
    spiel = _pyspiel()
    table = spiel.TabularPolicy(rows)  # named, since a best response does not keep it alive
    response = spiel.TabularBestResponse(env.game, responder, table)
    return response.value_from_state(env.game.new_initial_state())


def _pyspiel() -> Any:
    return importlib.import_module("pyspiel")  # there, since the game is
