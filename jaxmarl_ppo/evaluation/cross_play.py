"""Cross-play: a matrix of players in one side's seats against players in the other's.

With two agents each is a side. With more, one side holds the named agents and the other the rest. A
side of several agents plays first with each agent's first policy, then with each agent's second,
and so on.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.policies import RANDOM
from jaxmarl_ppo.evaluation.episodes import check_learner, check_num_episodes, play_episodes
from jaxmarl_ppo.evaluation.statistics import mean_and_ci
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.scripted import make_random_script
from jaxmarl_ppo.types import Population

DEFAULT_EPISODES = 256
# Environments stepped at once.
MAX_ENVS = 16_384

Lineup = tuple[int, ...]  # one player for each agent of a side


def cross_play(
    learner: Learner,
    population: Population,
    episodes: int = DEFAULT_EPISODES,
    seed: int = 0,
    greedy: bool = False,
    *,
    row_agents: Sequence[str] | None = None,
    baselines: bool = True,
) -> dict[str, Any]:
    """Play every pairing and return a report of plain data.

    Args:
        learner: of the environment and the players.
        population: the players.
        episodes: of each pairing.
        seed: the same seed gives the same report.
        greedy: networks take the most likely actions instead of samples.
        row_agents: the agents of the first side; None for the first agent.
        baselines: whether random play and the environment's scripted policies take part.

    Returns:
        `{"episodes", "acting", "seed", "rows": {"agents", "players"}, "columns": {...},
        "returns": {agent: {"mean": [[...]], "ci95": [[...]]}}, "win_rate": {"mean", "ci95"}}`.
        `ci95` is half the width of a 95 % confidence interval; `win_rate` is how often the first
        row agent's return exceeds the first column agent's, half for equal ones. Snapshots of a
        pool that is not full yet are left out.

    Raises:
        ValueError: If the number of episodes is not a whole number, an agent is unknown, or a side
            has no agents.
    """
    check_learner(learner)
    episodes = check_num_episodes(episodes)
    env = learner.env
    rows = env.agents[:1] if row_agents is None else tuple(row_agents)
    sides = [
        [env.agent_index(agent) for agent in rows],
        [slot for slot, agent in enumerate(env.agents) if agent not in rows],
    ]
    if not all(sides):
        raise ValueError(
            f"cross-play needs agents on both sides, got the row agents {', '.join(rows) or 'none'}"
            f" of {', '.join(env.agents)}"
        )
    if baselines:
        learner = with_baselines(learner)
    lineups = [_lineups(learner, population, side) for side in sides]
    pairs = [(first, second) for first in lineups[0] for second in lineups[1]]
    players = np.zeros((len(pairs), env.num_agents), np.int32)
    for index, pair in enumerate(pairs):
        for side, lineup in zip(sides, pair, strict=True):
            players[index, side] = lineup
    returns = _play_pairs(learner, population, players, episodes, greedy, seed)
    shape = (len(lineups[0]), len(lineups[1]), episodes)
    by_agent = {
        agent: mean_and_ci(returns[..., slot].reshape(shape))
        for slot, agent in enumerate(env.agents)
    }
    ahead = np.sign(returns[..., sides[0][0]] - returns[..., sides[1][0]])
    called = learner.players.names_now(population.league)
    names = [[_lineup_name(called, lineup) for lineup in side] for side in lineups]
    return {
        "episodes": episodes,
        "acting": "greedy" if greedy else "sample",
        "seed": int(seed),
        "rows": {"agents": [env.agents[slot] for slot in sides[0]], "players": names[0]},
        "columns": {"agents": [env.agents[slot] for slot in sides[1]], "players": names[1]},
        "returns": by_agent,
        "win_rate": mean_and_ci((0.5 + 0.5 * ahead).reshape(shape)),
    }


def with_baselines(learner: Learner) -> Learner:
    """Add random play and the environment's scripted policies to the players."""
    scripts = {
        RANDOM: make_random_script(learner.env, learner.env_params),
        **learner.env.baselines,
    }
    new = {name: fn for name, fn in scripts.items() if name not in learner.players.names}
    return dataclasses.replace(learner, players=learner.players.with_scripts(new))


def _lineups(learner: Learner, population: Population, side: list[int]) -> list[Lineup]:
    """List a side's line-ups: its agents' policies in step, then scripted policies in all seats."""
    players = learner.players
    drawn = [
        [q for q in players.drawn(slot, population.league) if q < players.first_script]
        for slot in side
    ]
    longest = max(len(own) for own in drawn)
    lineups = [
        tuple(own[index % len(own)] for own in drawn) for index in range(longest) if all(drawn)
    ]
    return lineups + [
        (script,) * len(side) for script in range(players.first_script, players.num_players)
    ]


def _lineup_name(names: tuple[str, ...], lineup: Lineup) -> str:
    return " + ".join(dict.fromkeys(names[player] for player in lineup))


def _play_pairs(
    learner: Learner,
    population: Population,
    players: np.ndarray,
    episodes: int,
    greedy: bool,
    seed: int,
) -> np.ndarray:
    """Play all pairs, as many at once as fit, and return the episodes' returns.

    The result is `[pairs, episodes, A]`.
    """
    at_once = max(1, min(len(players), MAX_ENVS // episodes))
    key, results = jax.random.key(seed), []
    for first in range(0, len(players), at_once):
        # The last slice is padded, so that all share one compilation.
        chosen = np.resize(players[first : first + at_once], (at_once, players.shape[1]))
        totals = play_episodes(
            learner,
            population,
            at_once * episodes,
            jax.random.fold_in(key, first),
            greedy,
            players=np.repeat(chosen, episodes, axis=0),
        )
        results.append(np.asarray(totals.returns).reshape(at_once, episodes, -1))
    return np.concatenate(results)[: len(players)]
