"""Evaluation of small games of imperfect information: exploitability and value, both exact."""

from collections.abc import Callable

import numpy as np

from jaxmarl_envs.core import Observation
from jaxmarl_envs.phantom_tic_tac_toe import InformationTable as PhantomTable
from jaxmarl_envs.phantom_tic_tac_toe import PhantomTicTacToe
from jaxmarl_envs.poker import InformationTable as PokerTable
from jaxmarl_envs.poker import Poker
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.scenarios.tabulated import (
    action_probabilities,
    exploitability_report,
    observe_all,
    policies_by_seat,
    why_not_tabulated,
)

_BATCH_SIZE = 1 << 13  # information states at a time; bounds memory


def report_poker(evaluation: Evaluation) -> Report:
    """Report the winnings of best responses and of the first player per game, in antes."""
    env = evaluation.learner.env
    assert isinstance(env, Poker)
    obstacle = why_not_tabulated(evaluation.learner, "information state")
    if obstacle is not None:
        return {"exploitability_note": obstacle, "headline": [f"exploitability {obstacle}"]}
    return _report(evaluation, PokerTable(env), env.observe, "antes per game")


def report_phantom(evaluation: Evaluation) -> Report:
    """Report the winnings of best responses and of x per game, of policies without memory."""
    env = evaluation.learner.env
    assert isinstance(env, PhantomTicTacToe)
    return _report(evaluation, PhantomTable(), env.observe, "per game")


def _report(
    evaluation: Evaluation,
    table: PokerTable | PhantomTable,
    observe: Callable[..., Observation],
    unit: str,
) -> Report:
    learner, env = evaluation.learner, evaluation.learner.env
    seats = policies_by_seat(learner, lambda player: tabulate(evaluation, table, observe, player))
    # Sampled play comes first: bluffs are random, and greedy play never or always bluffs.
    ways = {"stochastic": lambda policy: policy, "greedy": table.greedy}
    report = exploitability_report(env.agents, seats, ways, table.best_response_value, f" {unit}")
    if len(seats) == len(env.agents):
        # If a seat has several policies, the first one represents all.
        first, second = (next(iter(seats[agent].values())) for agent in env.agents)
        report["value"] = table.expected_value(first, second)
        report["headline"].append(f"the first player wins {report['value']:.4f} {unit}, exactly")
    return report


def tabulate(
    evaluation: Evaluation,
    table: PokerTable | PhantomTable,
    observe: Callable[..., Observation],
    player: int,
) -> np.ndarray:
    """Compute a network's action probabilities at every information state, `[I, N]`.

    It is evaluated in every seat that it can play; rows of other seats are uniform. It must depend
    on nothing but the observation.

    Args:
        evaluation: of the network.
        table: the information states.
        observe: the environment's observation of a state.
        player: the network.
    """
    policy = np.empty(table.action_mask.shape)
    size = min(_BATCH_SIZE, len(policy))
    inputs = evaluation.learner, evaluation.env_params, evaluation.population
    for begin in range(0, len(policy), size):
        # The last batch is filled up with its last row, so that all are of one compiled program.
        rows = np.minimum(np.arange(begin, begin + size), len(policy) - 1)
        obs = observe_all(observe, table.states(rows))
        policy[rows] = action_probabilities(*inputs, obs, table.mover[rows], player)
    return policy
