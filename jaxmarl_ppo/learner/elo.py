"""Elo ratings of players from the results between them."""

import numpy as np


def elo_ratings(score: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Elo ratings that explain the results best, with mean 1,000.

    The maximum of the Bradley-Terry likelihood (Bradley & Terry 1952) in which every player has
    also played one drawn game against an average one, so that nobody runs off to infinity. A
    difference of 400 means odds of 10 to 1.

    Args:
        score: `[Q, Q]`, what the row won off the column; a draw is 1/2.
        games: `[Q, Q]`.

    Returns:
        `[Q]`; NaN for players without a game.
    """
    played = games.sum(1) > 0
    rating = np.zeros(len(games))
    for _ in range(200):
        expected = 1.0 / (1.0 + np.exp(rating[None, :] - rating[:, None]))
        alone = 1.0 / (1.0 + np.exp(-rating))
        gradient = (score - games * expected).sum(1) + 0.5 - alone
        curvature = (games * expected * (1.0 - expected)).sum(1) + alone * (1.0 - alone)
        step = gradient / curvature
        # All players move at once, so each goes half of its own Newton step.
        rating += np.clip(0.5 * step, -1.0, 1.0)
        if np.abs(step[played]).max(initial=0.0) < 1e-6:
            break
    rating = 400.0 / np.log(10.0) * (rating - rating[played].mean() if played.any() else rating)
    return np.where(played, 1000.0 + rating, np.nan)
