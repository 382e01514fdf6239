"""What a solver says of connect four: positions as policies see them, right moves, perfect play."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from bitbully import BitBully, Board

import jaxmarl_envs

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from connect_four_truth import Games, against_perfect_play, right_moves  # noqa: E402


class Sure:
    """Plays by a rule of a board's values, and stands where a policy would."""

    def __init__(self, choose):
        self.choose, self.solver = choose, BitBully()

    def act(self, planes, hidden, key, *, action_mask):
        return np.array([self.column(*x) for x in zip(planes, action_mask, strict=True)]), hidden

    def column(self, planes, legal):
        own, others = planes[..., 0], planes[..., 1]
        mine, theirs = (1, 2) if own.sum() == others.sum() else (2, 1)
        stones = (mine * own + theirs * others).astype(int)
        board = Board.from_array(stones[::-1].T.tolist())
        if board.is_game_over():
            return int(np.argmax(legal))
        scores = self.solver.score_all_moves(board)
        return self.choose(scores, key=lambda column: (scores[column], -abs(column - 3)))


def test_positions_are_what_policies_see():
    env, params = jaxmarl_envs.make("pgx", env_id="connect_four", planes=True)
    reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
    for seed in range(3):
        games, rng = Games(1), np.random.default_rng(seed)
        obs, state = reset(jax.random.key(seed), params)
        for _ in range(42):
            mover = int(np.argmax(obs.agent_mask))
            np.testing.assert_array_equal(
                games.planes()[0], np.asarray(obs.features[mover]).reshape(6, 7, 2)
            )
            np.testing.assert_array_equal(games.legal()[0], obs.action_mask[mover])
            column = int(rng.choice(np.flatnonzero(games.legal()[0])))
            assert games.boards[0].play(column)
            obs, state, *_ = step(jax.random.key(0), state, np.full(2, column), params)
            assert bool(obs.alive.any()) == (not games.boards[0].is_game_over())
            if games.boards[0].is_game_over():
                break
        else:
            pytest.fail("no game goes on for more than 42 moves")


def test_the_best_moves_are_all_right_and_win():
    best = Sure(max)
    found = right_moves(best, 1, jax.random.key(0))
    assert found["drawn"] == found["greedy"] == 1.0
    assert found["drawn_that_matter"] == found["greedy_that_matter"] == 1.0
    assert found["positions"] >= found["positions_that_matter"] > 5
    won = against_perfect_play(best)
    assert won["outcome"] == "win"
    assert won["columns"][0] == 3
    assert len(won["columns"]) == 41  # the first player wins with its last stone but one


def test_games_that_begin_at_random_are_checked_from_there_on():
    stones = []

    class Counting(Sure):
        def act(self, planes, *args, **kwargs):
            stones.append(planes.sum((1, 2, 3)).astype(int).tolist())
            return super().act(planes, *args, **kwargs)

    found = right_moves(Counting(max), 3, jax.random.key(0), random_moves=14)
    assert stones[0] == [14, 14, 14]
    assert found["drawn"] == 1.0
    assert len({*map(tuple, stones)}) < found["distinct_positions"] <= found["positions"] <= 3 * 28
    same = right_moves(Sure(max), 2, jax.random.key(0))
    assert 2 * same["distinct_positions"] == same["positions"]


def test_the_worst_moves_are_not():
    worst = Sure(min)
    found = right_moves(worst, 1, jax.random.key(0))
    assert found["drawn_that_matter"] == 0.0
    assert found["drawn"] < 1.0
    assert against_perfect_play(worst)["outcome"] == "loss"
