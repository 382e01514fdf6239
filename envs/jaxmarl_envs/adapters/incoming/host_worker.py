"""Games of one process: what a worker runs, and what it and its master tell each other.

A *game* is an environment in plain Python, as arrays over its agent slots. Its master counts games
by number and says what to do with each; whatever a game needs to get there, such as an earlier
episode played again, is part of the request.
"""

import contextlib
import mmap
import os
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxmarl_envs.adapters.incoming.host_channel import Channel, SharedMemory
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


class Frame(NamedTuple):
    """Observation of all slots: an `Observation` as NumPy arrays."""

    features: np.ndarray  # [A, ...] float32
    action_mask: np.ndarray  # [A, W] bool
    alive: np.ndarray  # [A] bool
    agent_mask: np.ndarray  # [A] bool


class GameStep(NamedTuple):
    """Result of an environment step."""

    reward: np.ndarray  # [A] float32
    terminated: np.ndarray  # [A] bool
    truncated: np.ndarray  # [A] bool
    metrics: np.ndarray  # [A, metrics] float32: the environment's own numbers


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

    def close(self) -> None:
        """Release what the environment holds."""
        ...


class Request(NamedTuple):
    """Request to `n` games: to begin an episode, to replay actions, or to step."""

    numbers: list[int]  # n: which games
    replays: dict[int, tuple[int, np.ndarray]]  # by place: seed and actions [t, A, ...]
    actions: np.ndarray | None  # [n, A, ...], packed; None to begin an episode and no more
    reset_seeds: list[int] | None  # n: reset with these where an episode ends


class Finals(NamedTuple):
    """What all slots saw right after a step, of the `k` games in which they see something else now.

    Attributes:
        places: `[k]` int, of these games in their request.
        frame: arrays have a leading axis `k`.
    """

    places: np.ndarray
    frame: Frame


class Answer(NamedTuple):
    """What `n` games have played; arrays have a leading axis `n`.

    Attributes:
        frame: what all slots see in which others live by now, and after resets.
        outcome: what the step brought; None where episodes have only been begun.
        finals: None where no game has any.
    """

    frame: Frame
    outcome: GameStep | None
    finals: Finals | None


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


def _stack(
    parts: Sequence[Sequence[np.ndarray]], empty: Callable[..., np.ndarray]
) -> Iterator[np.ndarray]:
    """Stack arrays of `n` games, the same ones of each, to arrays `[n, ...]`."""
    for rows in zip(*parts, strict=True):
        column = empty((len(rows), *rows[0].shape), rows[0].dtype)
        column[...] = rows
        yield column


class Games:
    """The games of one process, made when they are first asked for.

    Args:
        make_game: makes one game.
        marks: a number, in which it is written at every call which game is at what, so that others
            see whether games move.
    """

    def __init__(
        self, make_game: Callable[[], Game], marks: MutableSequence[int] | memoryview
    ) -> None:
        self._make_game, self._marks = make_game, marks
        self._games: dict[int, _Running] = {}

    def play(self, request: Request, empty: Callable[..., np.ndarray] = np.empty) -> Answer:
        """Play games according to a request; Python's global generator is left as it is then.

        Args:
            request: what to play.
            empty: makes an array of a shape and a dtype for the answer.

        Raises:
            GameError: If a game raised an exception.
        """
        with numpy_generator_kept():
            played = [self._play_one(request, place) for place in range(len(request.numbers))]
        frames, outcomes, finals = zip(*played, strict=True)
        self._marks[0] = DONE
        places = [place for place, final in enumerate(finals) if final is not None]
        return Answer(
            Frame(*_stack(frames, empty)),
            None if request.actions is None else GameStep(*_stack(outcomes, empty)),
            Finals(np.array(places), Frame(*_stack([finals[place] for place in places], empty)))
            if places
            else None,
        )

    def _play_one(
        self, request: Request, place: int
    ) -> tuple[Frame, GameStep | None, Frame | None]:
        number = request.numbers[place]
        try:
            if number not in self._games:
                self._marks[0] = mark_of(number, -1)
                game = self._make_game()
                self._games[number] = _Running(self._make_game, game, self._marks, number)
            return self._advance(self._games[number], request, place)
        except Exception as error:
            running = self._games.get(number)
            made = f"making it raises {describe_error(error)}"
            sentence = made if running is None else running.describe(error)
            raise GameError(Failure(number, sentence, own_traceback(error))) from error

    def _advance(
        self, game: _Running, request: Request, place: int
    ) -> tuple[Frame, GameStep | None, Frame | None]:
        """Return what `Answer` has of a game."""
        begun = None
        if place in request.replays:
            # Episodes that are over are reset at once where there are seeds for that.
            begun = game.replay(*request.replays[place], is_over=request.reset_seeds is None)
        if request.actions is None:
            if begun is None:
                raise ValueError("a game without actions needs a seed to begin with")
            return begun, None, None
        final, outcome, frame = game.step(request.actions[place])
        seeds = request.reset_seeds
        is_over = seeds is not None and not any_true(frame.alive)
        last = Frame(*map(np.copy, final)) if is_over or frame is not final else None
        if seeds is not None and is_over:
            frame = game.reset(seeds[place])
        return frame, outcome, last


def serve(lifeline: int, connection: int, marks: int, *arrays: int) -> None:
    """Answer requests until the connection closes.

    The first message is a function that makes `Games` or `Batches` of a mark, pickled; each other
    one is a `Request`. An answer to it is a pair: whether all went well, and an `Answer` or else a
    `Failure`.

    Args:
        lifeline: file descriptor of `lifeline.hold`.
        connection: that of the socket over which messages come and go.
        marks: that of a file of 8 bytes, the number that `Games` writes.
        arrays: those of files for the arrays of answers.
    """
    hold(lifeline, _flush)
    _leave_signals_to_master()
    os.dup2(2, 1)  # the master's standard output has its own protocol
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    memories = [SharedMemory(os.fdopen(file, "rb+")) for file in arrays]
    channel = Channel(socket.socket(fileno=connection), outgoing=memories)
    numbers = memoryview(mmap.mmap(marks, 8)).cast("q")
    games: Any = None
    make_games: bytes | None = None
    while True:
        try:
            request = channel.receive()
        except (EOFError, OSError):
            return
        if make_games is None:
            make_games = request
            with contextlib.suppress(Exception):  # it is told with the answer to a request
                games = pickle.loads(request)(numbers)
            continue
        answer: tuple[bool, Any]
        try:
            if games is None:
                games = pickle.loads(make_games)(numbers)
            answer = True, games.play(request, channel.empty)
        except GameError as error:
            answer = False, error.failure
        except Exception as error:
            answer = False, Failure(None, describe_error(error), traceback.format_exc())
        _flush()
        channel.send(answer)


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
