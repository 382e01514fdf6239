"""Episodes of a run worth watching: as a page, an animation, or pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.policies import RANDOM
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.episodes import check_num_episodes
from jaxmarl_ppo.evaluation.opponents import seat_against
from jaxmarl_ppo.evaluation.replay import Replay, replay_episodes
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.summary import summarise_league
from jaxmarl_ppo.pages.page import Page
from jaxmarl_ppo.pages.replay_page import page_of, replay_data
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.types import Population

WATCH_FILE = "watch.html"
# Episodes played per episode kept, to have a choice.
CANDIDATES = 8


@dataclass(frozen=True, eq=False)
class WatchedRun:
    """Holds episodes of a run, the most interesting first.

    Attributes:
        env: that they were played in.
        replays: the episodes.
        facts: their origin and way of playing, as pairs of strings.
        elo: ratings of the run's players, if any.
    """

    env: MultiAgentEnv
    replays: tuple[Replay, ...]
    facts: tuple[tuple[str, str], ...]
    elo: Mapping[str, float]

    def data(self) -> dict[str, Any]:
        """Return the episodes as plain data for `page_of`."""
        found = replay_data(self.replays, self.env, self.elo)
        return {"title": self.env.name, "facts": self.facts, **found}

    def page(self) -> Page:
        """Make the page for watching them."""
        return page_of(self.data())


def watch_run(
    run_dir: str | Path,
    episodes: int = 4,
    seed: int = 0,
    greedy: bool = False,
    opponent: str | None = None,
    env: MultiAgentEnv | str | None = None,
    allow_imports: Sequence[str] = (),
) -> WatchedRun:
    """Play episodes of a run and keep those that are worth watching.

    Args:
        run_dir: the run's folder, or that of one of its checkpoints.
        episodes: number to keep: of eight times as many the best, the worst, the longest, the most
            surprising and others.
        seed: the same seed gives the same episodes.
        greedy: take the most likely actions instead of samples.
        opponent: player of all agents but one, which changes from episode to episode: a policy or
            snapshot of the run, `random`, or a scripted policy of the environment; None for the
            players of training, with `random` in half of the episodes of a zero-sum game of turns
            for two trained players (and without pools or a policy called `random`).
        env: as `load_run` needs it.
        allow_imports: as `load_run` needs it.

    Raises:
        ValueError: If there is no such run or opponent, or the number of episodes is not a whole
            number.
    """
    check_num_episodes(episodes)
    run = load_run(run_dir, env=env, allow_imports=allow_imports)
    play = partial(_play, run.learner, run.population, seed=seed, greedy=greedy)
    replays = play(opponent, episodes)
    if opponent is None and episodes > 1 and _is_duel(run.learner, replays):
        num_against = episodes // 2
        replays = [*play(RANDOM, num_against), *replays[: episodes - num_against]]
    facts = [
        ("run", str(run_dir)),
        ("actions", "the most likely ones" if greedy else "sampled"),
        ("seed", str(seed)),
    ]
    policies = {r.names[player] for r in replays for player in np.unique(r.players[r.alive])}
    if len(policies) == 1:
        facts.append(("policy", policies.pop()))
    if opponent is not None:
        facts.append(("opponent", opponent))
    elo = {}
    if run.learner.rated:
        elo = summarise_league(run.population.league, run.learner.players)["elo"]
    return WatchedRun(run.env, tuple(replays), tuple(facts), elo)


def _play(
    learner: Learner,
    population: Population,
    opponent: str | None,
    episodes: int,
    *,
    seed: int,
    greedy: bool,
) -> list[Replay]:
    """Play episodes, against an opponent or as in training, and keep those worth watching."""
    num_candidates, players, subjects = CANDIDATES * episodes, None, None
    if opponent is not None:
        learner = with_baselines(learner)
        players, subjects = seat_against(learner, population, opponent, num_candidates)
    replays = replay_episodes(
        learner,
        population,
        episodes,
        jax.random.key(seed),
        greedy,
        players=players,
        subjects=subjects,
        num_candidates=num_candidates,
    )
    if opponent is None:
        return replays
    # First, since it distinguishes these episodes from others.
    return [replace(r, interest=(f"against {opponent}", *r.interest)) for r in replays]


def _is_duel(learner: Learner, replays: Sequence[Replay]) -> bool:
    """Return whether two trained agents take turns in a zero-sum game.

    Good players may show little there, since no mistakes are made that could be punished.
    """
    env, players = learner.env, learner.players
    if env.num_agents != 2 or env.max_actors != 1 or players.pools or RANDOM in players.names:
        return False
    trained = [p for p in range(players.num_players) if players.is_trainable(p)]
    drawn = {policy for slot in players.mapping.candidates for policy in slot}
    return {players.first_player_of[policy] for policy in drawn} <= set(trained) and all(
        np.allclose(replay.reward.sum(axis=1), 0.0) for replay in replays
    )
