"""Connect four against the truth: what a solver says of a policy's moves.

BitBully, a perfect solver with a book of openings, tells the game-theoretic value of every move: a
win, a draw or a loss with best play of both. A move is right if none has a better value.
"""

from typing import Any

import jax
import numpy as np
from bitbully import BitBully, Board

from jaxmarl_ppo.deploy import Policy

COLS = 7


class Games:
    """Games side by side, of columns as they were played; yellow begins.

    Args:
        num_games: how many.
    """

    def __init__(self, num_games: int) -> None:
        self.boards = [Board() for _ in range(num_games)]

    def planes(self) -> np.ndarray:
        """Return the view of the player to move, `[games, 6, 7, 2]`: own stones, the other's."""
        columns = np.array([b.to_array() for b in self.boards])  # [games, 7, 6], from below
        stones = columns.swapaxes(1, 2)[:, ::-1]
        mine = np.array([b.current_player() for b in self.boards])[:, None, None]
        return np.stack([stones == mine, stones == 3 - mine], axis=-1).astype(np.float32)

    def legal(self) -> np.ndarray:
        """Return which columns are not full, `[games, 7]` bool; all where a game is over."""
        free = [[b.is_game_over() or b.is_legal_move(c) for c in range(COLS)] for b in self.boards]
        return np.array(free)

    def choose(self, policy: Policy, key: jax.Array | None = None) -> np.ndarray:
        """The policy's columns, `[games]`: the likeliest ones, or by a key drawn ones."""
        return np.asarray(policy.act(self.planes(), (), key, action_mask=self.legal())[0])

    def play_at_random(self, num_moves: int, key: jax.Array) -> None:
        """Play so many legal moves in every game, of all that are legal with one chance each."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        for board in self.boards:
            for _ in range(num_moves):
                if not board.is_game_over():
                    board.play(int(rng.choice(board.legal_moves())))


def right_moves(
    policy: Policy, num_games: int, key: jax.Array, random_moves: int = 0
) -> dict[str, Any]:
    """Play games of the policy against itself, by drawn moves, and check every move.

    Args:
        policy: plays both sides.
        num_games: how many.
        key: draws moves.
        random_moves: how many random legal moves each game begins with, which are not checked. A
            sure policy plays the same game over and over; so it has to play others.

    Returns:
        Shares of right moves among those that were drawn and among the likeliest ones of the same
        positions, over all positions and over those in which a move can be wrong; how many these
        are, and how many of all are distinct.
    """
    solver, games = BitBully(), Games(num_games)
    key, own = jax.random.split(key)
    games.play_at_random(random_moves, own)
    drawn, likeliest, matters, boards = [], [], [], set()
    while not all(b.is_game_over() for b in games.boards):
        key, own = jax.random.split(key)
        columns, best = games.choose(policy, own), games.choose(policy)
        for board, column, other in zip(games.boards, columns, best, strict=True):
            if board.is_game_over():
                continue
            values = {c: np.sign(score) for c, score in solver.score_all_moves(board).items()}
            optimum = max(values.values())
            drawn.append(values[int(column)] == optimum)
            likeliest.append(values[int(other)] == optimum)
            matters.append(min(values.values()) < optimum)
            boards.add(str(board))
            board.play(int(column))
    drawn, likeliest, matters = map(np.array, (drawn, likeliest, matters))
    return {
        "positions": len(drawn),
        "distinct_positions": len(boards),
        "drawn": float(drawn.mean()),
        "greedy": float(likeliest.mean()),
        "positions_that_matter": int(matters.sum()),
        "drawn_that_matter": float(drawn[matters].mean()),
        "greedy_that_matter": float(likeliest[matters].mean()),
    }


def against_perfect_play(policy: Policy) -> dict[str, Any]:
    """Let the policy begin, by its likeliest moves, against who answers best and loses latest."""
    solver, game = BitBully(), Games(1)
    board, columns = game.boards[0], []
    while not board.is_game_over():
        if len(columns) % 2 == 0:
            columns.append(int(game.choose(policy)[0]))
        else:
            columns.append(int(solver.best_move(board)))
        board.play(columns[-1])
    outcome = {1: "win", 2: "loss", None: "draw"}[board.winner()]
    return {"outcome": outcome, "columns": columns}
