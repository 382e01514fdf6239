"""Elo ratings of players from the results between them."""

import numpy as np


def elo_ratings(score: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Compute the Elo ratings that explain results between players best, with mean 1,000.

    They maximise the Bradley-Terry likelihood (Bradley & Terry 1952) in which every player has
    also played one drawn game against an average one, so that nobody runs off to infinity. Games
    of a player with itself say nothing about it. A difference of 400 means odds of 10 to 1.

    Args:
        score: `[Q, Q]`, what the row won off the column; a draw is 1/2.
        games: `[Q, Q]`.

    Returns:
        `[Q]`; NaN for players without a game.
    """
    played = games.sum(1) > 0
    others = ~np.eye(len(games), dtype=bool)
    score, games = (np.where(others, x, 0.0).astype(np.float64) for x in (score, games))
    rating = np.zeros(len(games))
    for _ in range(1000):
        expected = _win_probability(rating[:, None] - rating)
        alone = _win_probability(rating)
        gradient = (score - games * expected).sum(1) + 0.5 - alone
        curvature = games * expected * (1.0 - expected)
        hessian = np.diag(curvature.sum(1) + alone * (1.0 - alone)) - curvature
        step = np.linalg.solve(hessian, gradient)
        # Newton's step, shortened so that the likelihood rises however far the maximum is: on the
        # way the curvature changes by no more than e to the power of the widest difference (Bach
        # 2010, "Self-concordant analysis for logistic regression").
        widest = max(np.ptp(step), np.abs(step).max())
        if widest < 1e-9:
            break
        rating += np.log1p(widest) / widest * step
    rating = 400.0 / np.log(10.0) * (rating - rating[played].mean() if played.any() else rating)
    return np.where(played, 1000.0 + rating, np.nan)


def _win_probability(difference: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * difference)
