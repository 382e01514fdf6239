"""Games of one process: what a worker runs, and what it and its master tell each other.

A *game* is an environment in plain Python, as arrays over its agent slots. Its master counts games
by number and says what to do with each; whatever a game needs to get there, such as an earlier
episode played again, is part of the request.
"""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np


class Frame(NamedTuple):
    """What all slots see: an `Observation` as NumPy arrays."""

    features: np.ndarray  # [A, ...] float32
    action_mask: np.ndarray  # [A, N] bool
    alive: np.ndarray  # [A] bool
    agent_mask: np.ndarray  # [A] bool


class Outcome(NamedTuple):
    """What a tick brought."""

    reward: np.ndarray  # [A] float32
    terminated: np.ndarray  # [A] bool
    truncated: np.ndarray  # [A] bool


class Game(Protocol):
    """One environment; the arrays that it returns are not changed afterwards."""

    def reset(self, seed: int) -> Frame:
        """Begin an episode with a seed and return what all slots see."""
        ...

    def step(self, action: np.ndarray) -> tuple[Frame, Outcome]:
        """Advance one tick; `action` is `[A]` int or `[A, N]` float."""
        ...


class Request(NamedTuple):
    """What `n` games are to do."""

    numbers: list[int]  # n: which games
    replays: dict[int, tuple[int, np.ndarray]]  # by place: seed and [t, A] or [t, A, N] actions
    actions: np.ndarray | None  # [n, A] or [n, A, N]; None to begin an episode and no more
    reset_seeds: list[int] | None  # n: begin anew with these where an episode ends


Answer = tuple[np.ndarray, ...]  # a `Frame`, an `Outcome`, and with `reset_seeds` another `Frame`


class Games:
    """The games of one process, made when they are first asked for."""

    def __init__(self, make_game: Callable[[], Game]) -> None:
        self._make_game = make_game
        self._games: dict[int, Game] = {}

    def play(self, request: Request) -> Answer:
        """Let games play as a request says.

        Returns:
            Arrays with a leading axis `n`: the frames at the start of an episode where there are no
            actions; else the frames and outcomes after the tick, and with `reset_seeds` then the
            frames after resets, which differ where nobody was alive any more.
        """
        rows = [self._play_one(request, place) for place in range(len(request.numbers))]
        return tuple(np.stack(column) for column in zip(*rows, strict=True))

    def _play_one(self, request: Request, place: int) -> tuple[np.ndarray, ...]:
        number = request.numbers[place]
        if number not in self._games:
            self._games[number] = self._make_game()
        game, begun = self._games[number], None
        if place in request.replays:
            seed, past = request.replays[place]
            begun = game.reset(seed)
            for action in past:
                game.step(action)
        if request.actions is None:
            if begun is None:
                raise ValueError("a game without actions needs a seed to begin with")
            return tuple(begun)
        frame, outcome = game.step(request.actions[place])
        if request.reset_seeds is None:
            return (*frame, *outcome)
        over = not frame.alive.any()
        return (*frame, *outcome, *(game.reset(request.reset_seeds[place]) if over else frame))


def serve() -> None:
    """Answer requests from standard input until it closes.

    The first message is a function that makes a game, each further one a `Request`. An answer is a
    pair: whether all went well, and the arrays or else a traceback.
    """
    # Ctrl-C reaches all processes of a terminal; the master decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an environment prints must not mix with the answers
    games: Games | None = None
    function = pickle.load(source)
    while True:
        try:
            request = pickle.load(source)
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            if games is None:
                games = Games(pickle.loads(function))
            answer = True, games.play(request)
        except Exception:
            answer = False, traceback.format_exc()
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
