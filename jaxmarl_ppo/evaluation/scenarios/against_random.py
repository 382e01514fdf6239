"""Results against random play in games with wins, draws and losses."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.statistics import mean_and_se
from jaxmarl_ppo.policies.scripted import make_random_script

RESULTS = ("win", "draw", "loss")  # metrics of the environment, and their order in words


def play_against_random(evaluation: Evaluation) -> Report:
    """Report how often the trained policies win in each seat against random play."""
    acting = "greedy" if evaluation.greedy else "stochastic"
    learner, agents = evaluation.learner, evaluation.learner.env.agents
    script = make_random_script(learner.env, evaluation.env_params)
    longest = max(learner.players.names, key=len)
    players = learner.players.with_scripts({f"not {longest}": script})  # an unused name
    learner = dataclasses.replace(learner, players=players)
    results = {}
    for seat, agent in enumerate(agents):
        if not players.learners(seat):
            continue
        totals = play_episodes(
            learner,
            evaluation.population,
            evaluation.num_episodes,
            jax.random.fold_in(evaluation.key, seat),
            evaluation.greedy,
            env_params=evaluation.env_params,
            players=np.array(
                [
                    players.learners(seat)[0] if slot == seat else players.num_players - 1
                    for slot in range(len(agents))
                ]
            ),
        )
        metrics = jax.device_get(totals.metrics)
        results[agent] = {name: mean_and_se(metrics[name][:, seat])["mean"] for name in RESULTS}
    against = {"random": results}
    (words,) = results_in_words(against)
    headline = [f"{acting} policy, {evaluation.num_episodes:,} games in each seat, {words}"]
    note = f"by play, {evaluation.num_episodes} games in each seat"
    return {"against": {acting: against}, "against_note": note, "headline": headline}


def results_in_words(opponents: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Write wins, draws and losses of both seats, a line for each opponent."""

    def in_percent(result: Mapping[str, float]) -> str:
        return " / ".join(f"{100 * result[name]:.1f}" for name in RESULTS)

    return [
        f"against {opponent}: "
        + ", ".join(f"{seat} {in_percent(result)} %" for seat, result in results.items())
        + " (win / draw / loss)"
        for opponent, results in opponents.items()
    ]
