"""Evaluation of the newest policies during training, with separate random numbers."""

import copy
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.episodes import EpisodeTotals, play_episodes
from jaxmarl_ppo.evaluation.evaluate import DEFAULT_EPISODES, evaluate_policies
from jaxmarl_ppo.evaluation.scenarios.registry import find_scenario
from jaxmarl_ppo.evaluation.statistics import mean_and_se
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.summary import full_summary
from jaxmarl_ppo.types import Population, PyTree

# Entries of a report that describe the evaluation, not the policies' performance.
_NOT_RESULTS = ("seed", "episodes")


class MeanwhileEvaluator:
    """Evaluates the players of a run during training.

    Args:
        learner: of the run.
        config: of the run.

    Raises:
        ValueError: If the opponent does not exist, or cannot play all agents' seats.
    """

    def __init__(self, learner: Learner, config: TrainConfig) -> None:
        self._learner, self._config = learner, config.evaluation
        self._seed = config.seed
        self._against = with_baselines(learner) if self._config.opponents else learner
        self._lineups = {name: _lineups(self._against, name) for name in self._config.opponents}

    def for_seed(self, seed: int) -> "MeanwhileEvaluator":
        """Make an evaluator with other random numbers that shares the compiled programs."""
        other = copy.copy(self)
        other._seed = seed
        return other

    def numbers(self) -> list[str]:
        """List the paths of numbers that an evaluation may report; `*` stands for any part."""
        agents = full_summary(self._learner)["agents"]
        returns = ("return_mean", "return_se", "return_min", "return_max")
        found = ["unfinished", *(f"all/{name}" for name in returns)]
        for agent, numbers in agents.items():
            names = dict.fromkeys((*returns, "length_mean", "lives_mean", *numbers))
            found += [f"agents/{agent}/{name}" for name in names]
        for opponent, lineups in self._lineups.items():
            found += [f"opponents/{opponent}/{a}/{x}" for a in lineups for x in returns[:2]]
        scenario = find_scenario(self._learner.env)
        return found if scenario is None else [*found, *scenario.numbers]

    def evaluate(
        self, population: Population, iteration: int, *, env_params: PyTree | None = None
    ) -> dict[str, Any]:
        """Evaluate players and return the numbers of the report, nested alike.

        Args:
            population: the players.
            iteration: number of iterations that they have been trained.
            env_params: of their run; None for the learner's.
        """
        # Different episodes each time, but the same if a run is repeated or resumed.
        seed = int(np.random.SeedSequence((self._seed, iteration)).generate_state(1)[0])
        config = self._config
        report = evaluate_policies(
            self._learner, population, config.episodes, seed, config.greedy, env_params=env_params
        )
        result = _numbers({k: v for k, v in report.items() if k not in _NOT_RESULTS})
        if self._lineups:
            episodes = config.episodes or DEFAULT_EPISODES
            result["opponents"] = {
                name: self._meet(population, lineups, episodes, seed, env_params)
                for name, lineups in self._lineups.items()
            }
        return result

    def _meet(
        self,
        population: Population,
        lineups: dict[str, np.ndarray],
        episodes: int,
        seed: int,
        env_params: PyTree | None,
    ) -> dict[str, Any]:
        """Play each agent's policy among opponents and report its return."""
        key = jax.random.key(seed)
        result = {}
        for slot, (agent, players) in enumerate(lineups.items()):
            totals: EpisodeTotals = jax.device_get(
                play_episodes(
                    self._against,
                    population,
                    episodes,
                    jax.random.fold_in(key, 1 + slot),
                    self._config.greedy,
                    env_params=env_params,
                    players=players,
                )
            )
            own = self._against.env.agent_index(agent)
            stats = mean_and_se(totals.returns[:, own])
            result[agent] = {"return_mean": stats["mean"], "return_se": stats["se"]}
        return result


def _lineups(learner: Learner, opponent: str) -> dict[str, np.ndarray]:
    """List the line-ups: by trained agent, `[A]` players, all others the opponent."""
    players = learner.players
    if opponent not in players.names:
        raise ValueError(
            f"evaluation.opponents names {opponent!r}; valid: {', '.join(players.names)}"
        )
    other = players.names.index(opponent)
    lineups = {}
    for slot, agent in enumerate(learner.env.agents):
        if not players.learners(slot):
            continue
        lineup = np.full(learner.env.num_agents, other, np.int32)
        lineup[slot] = players.learners(slot)[0]
        for seat, name in enumerate(learner.env.agents):
            if lineup[seat] not in players.able(seat):
                raise ValueError(
                    f"evaluation.opponents names {opponent!r}, which cannot play agent {name!r}"
                )
        lineups[agent] = lineup
    return lineups


def _numbers(report: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the numbers of a report, and the tables that contain numbers."""
    result: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            inner = _numbers(value)
            if inner:
                result[name] = inner
        elif isinstance(value, int | float) and not isinstance(value, bool):
            result[name] = value
    return result
