"""Elo ratings of players from the results between them."""

import numpy as np


def elo_ratings(score: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Compute the Elo ratings, with mean 1,000, that best explain results between players.

    They maximise the Bradley-Terry likelihood (Bradley & Terry 1952). Every player has one
    additional drawn game against an average player, which keeps ratings finite. Games of a player
    with itself do not count. A difference of 400 means odds of 10 to 1.

    Args:
        score: `[Q, Q]`, wins of the row against the column; a draw is 1/2.
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
        # A damped Newton step, so that the likelihood rises however far the maximum is. On the way
        # the curvature changes by at most e to the power of the widest difference (Bach 2010,
        # "Self-concordant analysis for logistic regression").
        widest = max(np.ptp(step), np.abs(step).max())
        if widest < 1e-9:
            break
        rating += np.log1p(widest) / widest * step
    rating = 400.0 / np.log(10.0) * (rating - rating[played].mean() if played.any() else rating)
    return np.where(played, 1000.0 + rating, np.nan)


def _win_probability(difference: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * difference)
