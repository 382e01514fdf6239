"""From a run to episodes that are worth watching: on a page, as an animation, as pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.episodes import check_num_episodes
from jaxmarl_ppo.evaluation.opponents import seat_against
from jaxmarl_ppo.evaluation.replay import Replay, replay_episodes
from jaxmarl_ppo.learner.summary import summarise_league
from jaxmarl_ppo.pages.page import Page
from jaxmarl_ppo.pages.replay_page import replay_page
from jaxmarl_ppo.runs.run_folder import load_run

WATCH_FILE = "watch.html"
# As many are played for each that is kept, so that there is something to choose from.
CANDIDATES = 8


@dataclass(frozen=True, eq=False)
class WatchedRun:
    """Holds episodes of a run, the most interesting first.

    Attributes:
        env: that they were played in.
        replays: the episodes.
        facts: where they come from and how they were played, as pairs of words.
        elo: ratings of the run's players, where it has any.
    """

    env: MultiAgentEnv
    replays: tuple[Replay, ...]
    facts: tuple[tuple[str, str], ...]
    elo: Mapping[str, float]

    def page(self) -> Page:
        """Make the page on which they are watched."""
        return replay_page(self.replays, self.env, self.env.name, self.facts, self.elo)


def watch_run(
    run_dir: str | Path,
    episodes: int = 4,
    seed: int = 0,
    greedy: bool = False,
    opponent: str | None = None,
    env: MultiAgentEnv | str | None = None,
) -> WatchedRun:
    """Play episodes of a run and keep those that are worth watching.

    Args:
        run_dir: the run's folder, or that of one of its checkpoints.
        episodes: how many are kept: of eight times as many the best, the worst, the longest, the
            most surprising and others.
        seed: the same seed gives the same episodes.
        greedy: take the most likely actions instead of samples.
        opponent: who plays all agents but one, which takes turns from episode to episode: a policy
            or snapshot of the run, `random`, or a script of the environment; None for whoever
            plays in training.
        env: as `load_run` needs it.

    Raises:
        ValueError: there is no such run or opponent, or no whole number of episodes.
    """
    check_num_episodes(episodes)
    run = load_run(run_dir, env=env)
    learner, population = run.learner, run.population
    num_candidates, players = CANDIDATES * episodes, None
    if opponent is not None:
        learner = with_baselines(learner)
        players = seat_against(learner, population, opponent, num_candidates)
    key = jax.random.key(seed)
    replays = replay_episodes(
        learner, population, episodes, key, greedy, players=players, num_candidates=num_candidates
    )
    facts = [
        ("run", str(run_dir)),
        ("actions", "the most likely ones" if greedy else "drawn"),
        ("seed", str(seed)),
    ]
    if opponent is not None:
        facts.append(("opponent", opponent))
    elo = {}
    if run.learner.rated:
        elo = summarise_league(population.league, run.learner.players)["elo"]
    return WatchedRun(run.env, tuple(replays), tuple(facts), elo)
