"""Seats for a chosen opponent in watched or played games."""

import numpy as np

from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population


def find_player(learner: Learner, population: Population, name: str) -> int:
    """Find a policy, a snapshot or a scripted policy by its present name.

    Raises:
        ValueError: If there is none.
    """
    players = learner.players
    found = players.find_now(name, population.league)
    if found is None:
        names = players.names_now(population.league)
        raise ValueError(f"unknown opponent {name!r}; valid: {', '.join(names)}")
    return found


def seat_opponent(learner: Learner, population: Population, opponent: str) -> np.ndarray:
    """Seat an opponent where it can play, and a slot's own policy elsewhere, `[A]` int.

    Raises:
        ValueError: If there is no such player.
    """
    player, players = find_player(learner, population, opponent), learner.players
    slots = range(learner.env.num_agents)
    return np.array(
        [player if player in players.able(s) else players.learners(s)[0] for s in slots]
    )


def seat_against(
    learner: Learner, population: Population, opponent: str, episodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Seat one slot's own policy against an opponent in all others.

    Returns:
        The players, `[episodes, A]` int, and the policy's slot, `[episodes]` int, which varies from
        episode to episode.

    Raises:
        ValueError: If there is no such player, or no slot for it as an opponent.
    """
    seats = seat_opponent(learner, population, opponent)
    players, num_agents = learner.players, learner.env.num_agents
    against = seats == find_player(learner, population, opponent)
    slots = [s for s in range(num_agents) if np.delete(against, s).any()]
    if not slots:
        raise ValueError(
            f"opponent {opponent!r} is alone: there is nobody that it could be against"
        )
    found = np.tile(seats, (episodes, 1))
    subjects = np.array([slots[e % len(slots)] for e in range(episodes)])
    for e, slot in enumerate(subjects):
        found[e, slot] = players.learners(slot)[0]
    return found.astype(np.int32), subjects
