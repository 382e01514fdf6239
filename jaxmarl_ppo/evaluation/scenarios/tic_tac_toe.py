"""Evaluation of tic-tac-toe: exploitability, and results against scripted play."""

from collections.abc import Mapping

import jax
import numpy as np

from jaxmarl_envs.tic_tac_toe import MAX_CELLS, GameTable, Outcome, TicTacToe
from jaxmarl_ppo.evaluation.scenarios.against_random import (
    play_against_random,
    results_in_words,
)
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.scenarios.tabulated import (
    action_probabilities,
    exploitability_report,
    observe_all,
    policies_by_seat,
    why_not_tabulated,
)
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population, PyTree


def report_tic_tac_toe(evaluation: Evaluation) -> Report:
    """Report exploitability and results against scripted play, exact for solvable boards."""
    learner, env = evaluation.learner, evaluation.learner.env
    assert isinstance(env, TicTacToe)
    obstacle = why_not_exact(learner)
    if obstacle is not None:
        return {"exploitability_note": obstacle, **play_against_random(evaluation)}
    table = GameTable(env.board)
    seats = policies_by_seat(
        learner,
        lambda player: move_probabilities(
            learner, evaluation.env_params, evaluation.population, table, player
        ),
    )
    ways = {"greedy": table.greedy, "stochastic": lambda policy: policy}
    exact = exploitability_report(
        env.agents, seats, ways, table.best_response_value, "", "perfect play"
    )
    # If a seat has several policies, the first one represents all.
    first = {agent: next(iter(policies.values())) for agent, policies in seats.items()}
    against = {
        name: _exact_results(table, {agent: way(policy) for agent, policy in first.items()})
        for name, way in ways.items()
    }
    headline = [
        f"{name} policy, exactly, {words}"
        for name, opponents in against.items()
        for words in results_in_words(opponents)
    ]
    return {**exact, "against": against, "headline": exact["headline"] + headline}


def move_probabilities(
    learner: Learner, env_params: PyTree, population: Population, table: GameTable, player: int
) -> np.ndarray:
    """Compute a network's move probabilities at every position, `[D, N]`, for `GameTable`.

    It is evaluated in every seat that it can play; rows of other seats are uniform. It must depend
    on nothing but the position.
    """
    states = jax.tree.map(lambda x: x[table.decisions], table.states())
    obs = observe_all(table.board.observe, states)
    return action_probabilities(learner, env_params, population, obs, table.mover, player)


def why_not_exact(learner: Learner) -> str | None:
    """Explain why a table of positions cannot represent these policies; None if it can."""
    assert isinstance(learner.env, TicTacToe)
    board = learner.env.board
    if board.num_cells > MAX_CELLS:
        return (
            f"left out: a {board.rows} x {board.cols} board has too many positions to list "
            f"(at most {MAX_CELLS} cells can be solved)"
        )
    return why_not_tabulated(learner, "position")


def _exact_results(
    table: GameTable, policies: Mapping[str, np.ndarray]
) -> dict[str, dict[str, dict[str, float]]]:
    """Compute each seat's exact results against random and against minimax play."""

    def result(agent: str, policy: np.ndarray, opponent: np.ndarray) -> dict[str, float]:
        if agent == "x":
            return table.expected_outcome(policy, opponent)._asdict()
        return Outcome(*reversed(table.expected_outcome(opponent, policy)))._asdict()

    opponents = {"random": table.uniform_policy(), "minimax": table.minimax_policy()}
    return {
        name: {agent: result(agent, policy, opponent) for agent, policy in policies.items()}
        for name, opponent in opponents.items()
    }
