"""Evaluation of small poker games: exploitability and value, both exact."""

import jax
import numpy as np

from jaxmarl_envs.poker import InformationTable, Poker
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.scenarios.tabulated import (
    PERFECT,
    action_probabilities,
    exploitability_report,
    policies_by_seat,
    why_not_tabulated,
)
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population, PyTree


def report_poker(evaluation: Evaluation) -> Report:
    """Report the winnings of best responses and of the first player per game, in antes."""
    learner, env = evaluation.learner, evaluation.learner.env
    assert isinstance(env, Poker)
    obstacle = why_not_tabulated(learner, "information state")
    if obstacle is not None:
        return {"exploitability_note": obstacle, "headline": [f"exploitability {obstacle}"]}
    table = InformationTable(env)
    seats = policies_by_seat(
        learner,
        lambda player: bet_probabilities(
            learner, evaluation.env_params, evaluation.population, table, player
        ),
    )
    # Sampled play comes first: bluffs are random, and greedy play never or always bluffs.
    ways = {"stochastic": lambda policy: policy, "greedy": table.greedy}
    exploitability = exploitability_report(env.agents, seats, ways, table.best_response_value)
    headline = [
        f"{name} policy: exact exploitability {exploitability[name]:.4f} antes per game"
        + (" (an equilibrium)" if exploitability[name] < PERFECT else "")
        for name in ways
    ]
    report: Report = {"exploitability": exploitability, "headline": headline}
    if len(seats) == len(env.agents):
        # If a seat has several policies, the first one represents all.
        first, second = (next(iter(seats[agent].values())) for agent in env.agents)
        report["value"] = table.expected_value(first, second)
        headline.append(f"the first player wins {report['value']:.4f} antes per game, exactly")
    return report


def bet_probabilities(
    learner: Learner,
    env_params: PyTree,
    population: Population,
    table: InformationTable,
    player: int,
) -> np.ndarray:
    """Compute a network's action probabilities at every information state, `[I, N]`.

    It is evaluated in every seat that it can play; rows of other seats are uniform. It must depend
    on nothing but the observation.
    """
    obs = jax.jit(jax.vmap(table.env.observe))(table.states())
    return action_probabilities(learner, env_params, population, obs, table.mover, player)
