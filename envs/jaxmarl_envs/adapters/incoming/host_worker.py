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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxmarl_envs.adapters.incoming.own_randomness import generators_kept
from jaxmarl_envs.user_code import describe_error, is_ours, own_traceback


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
    """One environment; the arrays that it returns may change at its next call.

    Attributes:
        repeats: whether the same seed and the same actions lead to the same episode.
    """

    repeats: bool

    def reset(self, seed: int) -> Frame:
        """Begin an episode with a seed and return what all slots see."""
        ...

    def step(self, action: np.ndarray) -> tuple[Frame, Outcome, Frame]:
        """Advance one tick; `action` is `[A]` int or `[A, N]` float.

        Returns:
            What all slots see, with the rows of agents whose lives ended still their own; what the
            tick brought; and what all slots see in which others live by now.
        """
        ...


class Request(NamedTuple):
    """What `n` games are to do."""

    numbers: list[int]  # n: which games
    replays: dict[int, tuple[int, np.ndarray]]  # by place: seed and [t, A] or [t, A, N] actions
    actions: np.ndarray | None  # [n, A] or [n, A, N]; None to begin an episode and no more
    reset_seeds: list[int] | None  # n: begin anew with these where an episode ends


Answer = tuple[np.ndarray, ...]  # a `Frame`, an `Outcome`, and another `Frame`


class Failure(NamedTuple):
    """What an environment raised.

    Attributes:
        place: of the game in its request.
        sentence: the call, the tick, the exception, and the user's line.
        trace: the user's own part of the traceback; empty where none is.
    """

    place: int
    sentence: str
    trace: str


class GameError(Exception):
    """A game failed, as its `failure` says."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.sentence)


@dataclass
class _Running:
    """A game, and where it stands."""

    game: Game
    seed: int = 0
    time: int = 0

    def reset(self, seed: int) -> Frame:
        self.seed, self.time = seed, 0
        return self.game.reset(seed)

    def step(self, action: np.ndarray) -> tuple[Frame, Outcome, Frame]:
        self.time += 1
        return self.game.step(action)

    def describe(self, error: Exception) -> str:
        call = f"step {self.time}" if self.time else "reset"
        what = str(error) if is_ours(error) else f"raises {describe_error(error)}"
        joint = ":" if is_ours(error) else ""
        return f"{call} of the episode of seed {self.seed}{joint} {what}"


class _Rows:
    """What `n` games return, a row each of arrays `[n, ...]`."""

    def __init__(self, num_games: int) -> None:
        self.columns: list[np.ndarray] = []
        self._num_games = num_games

    def write(self, place: int, parts: Sequence[np.ndarray], at: int = 0) -> None:
        """Copy one game's arrays into the columns from number `at` on."""
        for number, part in enumerate(parts, at):
            if number == len(self.columns):
                self.columns.append(np.empty((self._num_games, *part.shape), part.dtype))
            self.columns[number][place] = part


class Games:
    """The games of one process, made when they are first asked for."""

    def __init__(self, make_game: Callable[[], Game]) -> None:
        self._make_game = make_game
        self._games: dict[int, _Running] = {}

    def play(self, request: Request) -> Answer:
        """Let games play as a request says.

        Returns:
            Arrays with a leading axis `n`: the frames at the start of an episode where there are no
            actions; else what `Game.step` returns, in whose last frames with `reset_seeds` those
            episodes in which nobody is alive any more have begun anew.

        Raises:
            GameError: a game raised an exception.
        """
        rows = _Rows(len(request.numbers))
        with generators_kept():
            for place in range(len(request.numbers)):
                self._play_one(request, place, rows)
        return tuple(rows.columns)

    def _play_one(self, request: Request, place: int, rows: _Rows) -> None:
        number = request.numbers[place]
        try:
            if number not in self._games:
                self._games[number] = _Running(self._make_game())
            self._advance(self._games[number], request, place, rows)
        except Exception as error:
            running = self._games.get(number)
            made = f"making it raises {describe_error(error)}"
            sentence = made if running is None else running.describe(error)
            raise GameError(Failure(place, sentence, own_traceback(error))) from error

    def _advance(self, game: _Running, request: Request, place: int, rows: _Rows) -> None:
        begun = None
        if place in request.replays:
            seed, past = request.replays[place]
            begun = game.reset(seed)
            # Where another episode would come of it, one begins anew in the middle.
            for action in past if game.game.repeats else ():
                game.step(action)
        if request.actions is None:
            if begun is None:
                raise ValueError("a game without actions needs a seed to begin with")
            rows.write(place, begun)
            return
        final, outcome, frame = game.step(request.actions[place])
        rows.write(place, (*final, *outcome))
        if request.reset_seeds is not None and not frame.alive.any():
            frame = game.reset(request.reset_seeds[place])
        rows.write(place, frame, at=len(final) + len(outcome))


def serve() -> None:
    """Answer requests from standard input until it closes.

    The first message is a function that makes a game, each further one a `Request`. An answer is a
    pair: whether all went well, and the arrays or else a `Failure`.
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
        except GameError as error:
            answer = False, error.failure
        except Exception as error:
            answer = False, Failure(0, describe_error(error), traceback.format_exc())
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
