"""Games of one process: what a worker runs, and what it and its master tell each other.

A *game* is an environment in plain Python, as arrays over its agent slots. Its master counts games
by number and says what to do with each; whatever a game needs to get there, such as an earlier
episode played again, is part of the request.
"""

import contextlib
import functools
import mmap
import os
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxmarl_envs.adapters.incoming.host_channel import Channel
from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep, Rows, RowSpec
from jaxmarl_envs.adapters.incoming.own_randomness import numpy_generator_kept
from jaxmarl_envs.lifeline import hold
from jaxmarl_envs.user_code import describe_error, is_ours, own_traceback

# States in the mark of a process besides its present call, see `mark_of`.
NOT_BEGUN, DONE = 0, -1
# Signals that reach all processes of a job; the master decides what they mean.
_LEFT_TO_MASTER = (signal.SIGINT, signal.SIGTERM, *(
    getattr(signal, name) for name in ("SIGHUP", "SIGUSR1") if hasattr(signal, name)
))  # fmt: skip


class UnrepeatableEnvironmentWarning(UserWarning):
    """An environment does not do the same for the same seed and the same actions."""


class Game(Protocol):
    """One environment; the arrays that it returns may change at its next call.

    Attributes:
        repeats: whether the same seed and the same actions lead to the same episode.
        renews: whether they do so only in a game that has not been reset before.
    """

    repeats: bool
    renews: bool

    def reset(self, seed: int) -> Frame:
        """Begin an episode with a seed and return what all slots see."""
        ...

    def step(self, action: np.ndarray) -> tuple[Frame, GameStep, Frame]:
        """Advance one step; `action` is `[A, ...]`, as `ActionLayout.pack` has it.

        Returns:
            What all slots see, with the rows of agents whose lives ended still their own; what the
            step brought; and what all slots see in which others live by now.
        """
        ...

    def write_to(self, features: np.ndarray, action_mask: np.ndarray, outcome: GameStep) -> None:
        """Write frames and outcomes into these arrays from now on, rather than into its own."""
        ...

    def close(self) -> None:
        """Release what the environment holds."""
        ...


class Request(NamedTuple):
    """Request to `n` games: to begin an episode, to replay actions, or to step."""

    numbers: list[int]  # n: which games
    rows: list[int]  # n: theirs in `Rows`
    replays: dict[int, tuple[int, np.ndarray]]  # by place: seed and actions [t, A, ...]
    actions: np.ndarray | None  # [n, A, ...], packed; None to begin an episode and no more
    reset_seeds: list[int] | None  # n: reset with these where an episode ends


class Failure(NamedTuple):
    """An exception that an environment raised.

    Attributes:
        number: of the game; None where games are stepped together.
        sentence: the call, the step, the exception, and the user's line.
        trace: the user's own part of the traceback; empty where none is.
    """

    number: int | None
    sentence: str
    trace: str


class GameError(Exception):
    """A game failed, as its `failure` says."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.sentence)


def any_true(flags: np.ndarray) -> bool:
    """Return whether one of `flags [...]` bool is True; of few, several times as fast as `any`."""
    return b"\1" in flags.tobytes()


def all_true(flags: np.ndarray) -> bool:
    """Return whether all of `flags [...]` bool are True, likewise."""
    return b"\0" not in flags.tobytes()


def mark_of(number: int, time: int) -> int:
    """Write a call as a number.

    Args:
        number: of the game.
        time: of the step, from 1; 0 for a reset, -1 while the game is made.
    """
    return (number + 1 << 32) + time + 1


def read_mark(mark: int) -> tuple[int, int]:
    """Read the game's number and the time out of what `mark_of` wrote."""
    return (mark >> 32) - 1, (mark & 0xFFFFFFFF) - 1


@dataclass
class _Running:
    """A game, and where it stands."""

    make_game: Callable[[], Game]
    game: Game
    marks: MutableSequence[int] | memoryview
    number: int
    is_new: bool = True
    seed: int = 0
    time: int = 0

    def reset(self, seed: int) -> Frame:
        if self.game.renews and not self.is_new:
            self.game.close()
            self.game = self.make_game()
        self.seed, self.time, self.is_new = seed, 0, False
        self.marks[0] = mark_of(self.number, 0)
        return self.game.reset(seed)

    def step(self, action: np.ndarray) -> tuple[Frame, GameStep, Frame]:
        self.time += 1
        self.marks[0] = mark_of(self.number, self.time)
        return self.game.step(action)

    def replay(self, seed: int, past: np.ndarray, is_over: bool) -> Frame:
        """Play an episode again, up to where it was; where that cannot be, begin it anew.

        Args:
            seed: of the episode.
            past: actions, `[t, A, ...]`.
            is_over: whether it may be over by now.

        Warns:
            UnrepeatableEnvironmentWarning: it ends before it gets there.
        """
        frame = self.reset(seed)
        # Where this would give another episode, one is reset in the middle.
        for action in past if self.game.repeats else ():
            frame = self.step(action)[2]
            if not (is_over or any_true(frame.alive)):
                warnings.warn(
                    f"the episode of seed {seed}, played again, ended at step {self.time} of "
                    f"{len(past)} and begins anew: the environment does not do the same for the "
                    "same seed and actions",
                    UnrepeatableEnvironmentWarning,
                    stacklevel=2,
                )
                return self.reset(seed)
        return frame

    def describe(self, error: Exception) -> str:
        call = f"step {self.time}" if self.time else "reset"
        what = str(error) if is_ours(error) else f"raises {describe_error(error)}"
        joint = ":" if is_ours(error) else ""
        return f"{call} of the episode of seed {self.seed}{joint} {what}"


class Games:
    """The games of one process, made when they are first asked for.

    Args:
        make_game: makes one game.
        marks: a number, in which it is written at every call which game is at what, so that others
            see whether games move.
        rows: where games are written; a game's row is its number.
    """

    def __init__(
        self,
        make_game: Callable[[], Game],
        marks: MutableSequence[int] | memoryview,
        rows: Rows,
    ) -> None:
        self._make_game, self._marks, self._rows = make_game, marks, rows
        self._games: dict[int, _Running] = {}

    def play(self, request: Request) -> list[int]:
        """Play games according to a request; Python's global generator is left as it is then.

        Returns:
            The rows of those that also have one in `Rows.final`.

        Raises:
            GameError: If a game raised an exception.
        """
        self._rows.reach(max(request.rows) + 1)
        finals: list[int] = []
        with numpy_generator_kept():
            frames = [
                self._play_one(request, place, finals) for place in range(len(request.numbers))
            ]
        # The rest lies in the rows already; of small arrays, many are soonest written at once.
        self._rows.frame.alive[request.rows] = [frame.alive for frame in frames]
        self._rows.frame.agent_mask[request.rows] = [frame.agent_mask for frame in frames]
        self._marks[0] = DONE
        return finals

    def _play_one(self, request: Request, place: int, finals: list[int]) -> Frame:
        """Play one of the games, and return what is seen now."""
        number = request.numbers[place]
        try:
            if number not in self._games:
                self._marks[0] = mark_of(number, -1)
                make_game = functools.partial(self._make, number)
                self._games[number] = _Running(make_game, make_game(), self._marks, number)
            return self._advance(self._games[number], request, place, finals)
        except Exception as error:
            running = self._games.get(number)
            made = f"making it raises {describe_error(error)}"
            sentence = made if running is None else running.describe(error)
            raise GameError(Failure(number, sentence, own_traceback(error))) from error

    def _make(self, number: int) -> Game:
        game, rows = self._make_game(), self._rows
        outcome = GameStep(*(column[number] for column in rows.outcome))
        game.write_to(rows.frame.features[number], rows.frame.action_mask[number], outcome)
        return game

    def _advance(self, game: _Running, request: Request, place: int, finals: list[int]) -> Frame:
        begun = None
        if place in request.replays:
            # Episodes that are over are reset at once where there are seeds for that.
            begun = game.replay(*request.replays[place], is_over=request.reset_seeds is None)
        if request.actions is None:
            if begun is None:
                raise ValueError("a game without actions needs a seed to begin with")
            return begun
        final, _, frame = game.step(request.actions[place])
        seeds = request.reset_seeds
        is_over = seeds is not None and not any_true(frame.alive)
        if is_over or frame is not final:
            self._rows.keep_final(game.number, final)
            finals.append(game.number)
        return game.reset(seeds[place]) if seeds is not None and is_over else frame


def serve(lifeline: int, connection: int, marks: int, rows: int) -> None:
    """Answer requests until the connection closes.

    The first message is the `RowSpec` of games, and a function that makes `Games` or `Batches` of a
    mark and rows, pickled; each other one is a `Request`. An answer to it is a pair: whether all
    went well, and what `play` returns or else a `Failure`.

    Args:
        lifeline: file descriptor of `lifeline.hold`.
        connection: that of the socket over which messages come and go.
        marks: that of a file of 8 bytes, the number that `Games` writes.
        rows: that of the file of `Rows`.
    """
    hold(lifeline, _flush)
    _leave_signals_to_master()
    os.dup2(2, 1)  # the master's standard output has its own protocol
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    channel = Channel(socket.socket(fileno=connection))
    numbers, file = memoryview(mmap.mmap(marks, 8)).cast("q"), os.fdopen(rows, "rb+")
    games: Any = None
    first: tuple[RowSpec, bytes] | None = None

    def make_games(spec: RowSpec, pickled: bytes) -> Any:
        return pickle.loads(pickled)(numbers, Rows(spec, file))

    while True:
        try:
            request = channel.receive()
        except (EOFError, OSError):
            return
        if first is None:
            first = request
            with contextlib.suppress(Exception):  # it is told with the answer to a request
                games = make_games(*request)
            continue
        answer: tuple[bool, Any]
        try:
            if games is None:
                games = make_games(*first)
            answer = True, games.play(request)
        except GameError as error:
            answer = False, error.failure
        except Exception as error:
            answer = False, Failure(None, describe_error(error), traceback.format_exc())
        _flush()
        try:
            channel.send(answer)
        except OSError:  # closed while this was played
            return


def _leave_signals_to_master() -> None:
    """Hear signals to end without following them; what the environment forks or starts does."""
    before = {number: signal.getsignal(number) for number in _LEFT_TO_MASTER}
    # A handler, as what is ignored stays ignored in programs that are started.
    for number in before:
        signal.signal(number, lambda *_: None)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        let_pass()

    def let_pass() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)

    os.register_at_fork(
        # What comes in between waits until the fork has its handlers.
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, before),
        after_in_parent=let_pass,
        after_in_child=restore,
    )


def _flush() -> None:
    """Show what has been printed, also of a line that is not complete."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # an environment may have put anything there
            stream.flush()
