"""Plain Python environments as functions: any number of them, in this process or in others.

What an episode is now follows from its seed and from all that was played in it. Games are kept
going only to save playing that again: where none stands as it is asked for, one is reset with the
seed and the past is replayed.
"""

import functools
import logging
import threading
import warnings
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host_batch import Batch, Batches
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, GivenUp, Vigil
from jaxmarl_envs.adapters.incoming.host_process import PATIENCE_S, WorkerEnded, WorkerProcess
from jaxmarl_envs.adapters.incoming.host_standings import (
    BatchStandings,
    ForgottenEpisodeWarning,
    SeparateStandings,
    Standings,
)
from jaxmarl_envs.adapters.incoming.host_thread import HostThread
from jaxmarl_envs.adapters.incoming.host_worker import (
    NOT_BEGUN,
    Answer,
    Failure,
    Frame,
    Game,
    GameError,
    Games,
    GameStep,
    Request,
    read_mark,
)
from jaxmarl_envs.adapters.incoming.own_randomness import generators_kept
from jaxmarl_envs.user_code import HostEnvironmentError


def _is_no_host_error(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], HostEnvironmentError)


# JAX also writes a traceback to standard error, besides raising the error.
logging.getLogger("jax._src.callback").addFilter(_is_no_host_error)


class HostPool:
    """Steps `E` games at once, spread over processes; every call may ask for any episodes.

    Calls exclude each other. Processes start when they are first needed and end with `close`, with
    the pool, with the program, or when anything goes wrong; the next call starts new ones.

    Args:
        name: of the environment, for messages.
        make_game: makes one game, or a `Batch` of as many as it is given. Processes get it by
            cloudpickle, so it may be a lambda.
        num_workers: processes; 0 to step in this one.
        agents: names of the slots, for messages.
        step_timeout: seconds that one game may take for a step or a reset; None for no limit.
        in_batches: whether the games of a process are stepped together, as a `Batch`.
    """

    def __init__(
        self,
        name: str,
        make_game: Callable[[], Game] | Callable[[int], Batch],
        num_workers: int,
        agents: Sequence[str] = (),
        step_timeout: float | None = STEP_TIMEOUT_S,
        in_batches: bool = False,
    ) -> None:
        self.name, self.num_workers, self.step_timeout = name, num_workers, step_timeout
        self.make_game: Callable[..., Any] = make_game
        self.in_batches, self._agents = in_batches, tuple(agents)
        self._make_games = functools.partial(Batches if in_batches else Games, make_game)
        if num_workers:
            import_extra("cloudpickle", "gymnasium")  # here, before anything is compiled
        self._lock = threading.Lock()
        kind = BatchStandings if in_batches else SeparateStandings
        # Nothing here may refer to the pool, so that processes end at once with the last reference.
        self._standings: Standings = kind(functools.partial(_warn_of_forgotten, name))
        self._here: Games | Batches | None = None
        self._mark_here = array("q", [NOT_BEGUN])
        self._workers: dict[int, WorkerProcess] = {}
        weakref.finalize(self, _stop, self._workers)
        self._thread = None if num_workers else HostThread()
        self._hangs: str | None = None  # where the thread will not return from

    @property
    def pids(self) -> tuple[int, ...]:
        """List the ids of the worker processes that run now."""
        return tuple(worker.pid for worker in self._workers.values())

    def close(self) -> None:
        """End all processes and forget all games."""
        if not self._lock.acquire(timeout=PATIENCE_S):
            # Another thread waits for a game; it fails when the processes are gone.
            for worker in list(self._workers.values()):
                worker.kill()
            if not self._lock.acquire(timeout=PATIENCE_S):
                return  # one that this process plays cannot be ended
        try:
            self._forget()
        finally:
            self._lock.release()

    def reset(self, seeds: np.ndarray) -> Frame:
        """Begin episodes with `seeds [E]` int and return what all slots see, `[E, A, ...]`.

        The next call may overwrite these arrays.
        """
        with self._lock:
            asked = self._standings.begin(seeds)
            frame = self._play(Request(*asked, None, None)).frame
            self._standings.note_actors(frame.agent_mask.copy())
            return frame

    def step(
        self,
        seeds: np.ndarray,
        times: np.ndarray,
        past: np.ndarray,
        actions: np.ndarray,
        reset_seeds: np.ndarray | None = None,
    ) -> tuple[Frame, GameStep, Frame]:
        """Advance episodes by one step.

        Args:
            seeds: `[E]` int, what the episodes began with.
            times: `[E]` int, steps done.
            past: `[E, capacity, A, ...]`, what was played in them, as `ActionLayout.pack` has it;
                of longer episodes the first steps.
            actions: `[E, A, ...]`, likewise.
            reset_seeds: `[E]` int, to begin the next episodes with where these are over.

        Returns:
            What all slots see after the step, what it brought, and what all slots see after
            rebirths and with `reset_seeds` after resets, `[E, A, ...]` each. The next call may
            overwrite these arrays.
        """
        with self._lock:
            asked = self._standings.find(seeds, times, past)
            fresh = None if reset_seeds is None else reset_seeds.tolist()
            frame, outcome, finals = self._play(Request(*asked, actions, fresh))
            assert outcome is not None
            final = _with_rows(frame, finals)
            self._standings.advance(actions, ~np.any(final.alive, axis=-1), reset_seeds)
            self._standings.note_actors(frame.agent_mask.copy())
            return final, outcome, frame

    def _play(self, request: Request) -> Answer:
        """Let all games play, each in its own process."""
        try:
            if self._thread is not None:
                return self._play_here(self._thread, request)
            return self._play_elsewhere(request)
        except BaseException as error:
            # Nobody knows where the games stand now, and those that hang do not end by themselves.
            is_idle = isinstance(error, HostEnvironmentError) and not isinstance(error, GivenUp)
            self._forget(PATIENCE_S if is_idle else 0.0)
            raise

    def _play_here(self, thread: HostThread, request: Request) -> Answer:
        if self._hangs is not None:
            raise GivenUp(self._hangs)
        games = self._here = self._here or self._make_games(self._mark_here)
        self._mark_here[0] = NOT_BEGUN
        vigil = self._vigil(request, {0: self._mark_here})
        try:
            return thread.call(lambda: generators_kept()(games.play)(request), vigil.look)
        except GameError as error:
            raise self._error(error.failure) from error
        except GivenUp as error:
            self._hangs = (
                f"{error.sentence}; it runs in this process (num_workers=0), where it cannot be "
                "ended, so nothing is played in this environment any more"
            )
            raise GivenUp(self._hangs) from None

    def _play_elsewhere(self, request: Request) -> Answer:
        num_games = len(request.numbers)
        asked = range(min(self.num_workers, num_games))
        for index in asked:
            if index not in self._workers:
                cloudpickle = import_extra("cloudpickle", "gymnasium")
                self._workers[index] = WorkerProcess(cloudpickle.dumps(self._make_games))
        vigil = self._vigil(request, {index: self._workers[index].marks for index in asked})
        index = 0
        try:
            for index in asked:
                share = _share(request, index, self.num_workers)
                self._workers[index].send(share, vigil.look)
            parts = []
            for index in asked:
                parts.append(self._receive(index, vigil))
        except WorkerEnded as how:
            raise HostEnvironmentError(
                f"environment {self.name!r}: worker process {index} {how}; what it wrote to "
                "standard error is above. With num_workers=0 the environment runs in this process "
                "instead"
            ) from how
        return parts[0] if len(parts) == 1 else _joined(parts, num_games)

    def _receive(self, index: int, vigil: Vigil) -> Answer:
        fine, answer = self._workers[index].receive(vigil.look)
        if not fine:
            raise self._error(answer, index)
        return answer

    def _error(self, failure: Failure, process: int = 0) -> HostEnvironmentError:
        if failure.place is None:
            game = f"environment {self.name!r}"
        else:
            game = self._game(failure.place * (self.num_workers or 1) + process)
        return HostEnvironmentError(f"{game}, {failure.sentence}", failure.trace)

    def _game(self, number: int) -> str:
        return f"environment {self.name!r}, number {number} of the batch"

    def _vigil(self, request: Request, marks: dict[int, Any]) -> Vigil:
        def describe(process: int, mark: int) -> str:
            if mark == NOT_BEGUN:
                return f"environment {self.name!r}: worker process {process}, which begins to play,"
            place, time = read_mark(mark)
            number = place * (self.num_workers or 1) + process
            return f"{self._game(number)}, {self._call(request, number, time)}"

        return Vigil(self.step_timeout, marks, describe)

    def _call(self, request: Request, number: int, time: int) -> str:
        """Describe a call of a game, the one of number `number` in the batch."""
        if time < 0:
            return "being made,"
        if time == 0:
            return "reset"
        seed, time_now, acts_now = self._standings.latest(number)
        step = f"step {time} of the episode of seed {seed}"
        if request.actions is None or time != time_now + 1:
            return f"{step}, which is played again,"
        if acts_now is None:
            return step
        acting = [repr(agent) for agent, acts in zip(self._agents, acts_now, strict=False) if acts]
        names = ", ".join(acting[:8]) + (", ..." if len(acting) > 8 else "")
        return f"{step} (acting: {names or 'nobody'})"

    def _forget(self, patience_s: float = PATIENCE_S) -> None:
        _stop(self._workers, patience_s)
        self._standings.forget()
        self._here = None


def _warn_of_forgotten(name: str, time: int, remembered: int) -> None:
    warnings.warn(
        f"environment {name!r}: an episode of {time:,} steps begins anew, since only "
        f"{remembered:,} of its steps are remembered; give horizon=, the most steps of an "
        "episode, to play such episodes again",
        ForgottenEpisodeWarning,
        stacklevel=2,
    )


def _share(request: Request, index: int, num_workers: int) -> Request:
    """Take every `num_workers`-th game of a request, beginning with number `index`."""
    if num_workers == 1:
        return request
    mine = slice(index, None, num_workers)
    return Request(
        request.numbers[mine],
        {
            place // num_workers: replay
            for place, replay in request.replays.items()
            if place % num_workers == index
        },
        None if request.actions is None else request.actions[mine],
        None if request.reset_seeds is None else request.reset_seeds[mine],
    )


def _joined(parts: Sequence[Answer], num_games: int) -> Answer:
    """Join the answers to shares of a request."""

    def join(rows: Sequence[Any]) -> Any:
        whole = [np.empty((num_games, *x.shape[1:]), x.dtype) for x in rows[0]]
        for index, part in enumerate(rows):
            for column, own in zip(whole, part, strict=True):
                column[index :: len(rows)] = own
        return type(rows[0])(*whole)

    finals = {
        place * len(parts) + index: final
        for index, part in enumerate(parts)
        for place, final in part.finals.items()
    }
    outcomes = [part.outcome for part in parts if part.outcome is not None]
    return Answer(
        join([part.frame for part in parts]), join(outcomes) if outcomes else None, finals
    )


def _with_rows(frame: Frame, rows: Mapping[int, Frame]) -> Frame:
    """Replace the rows of some games, `[A, ...]` each."""
    if not rows:
        return frame
    frame = Frame(*map(np.copy, frame))
    for place, own in rows.items():
        for column, row in zip(frame, own, strict=True):
            column[place] = row
    return frame


def _stop(workers: dict[int, WorkerProcess], patience_s: float = PATIENCE_S) -> None:
    """End processes, gently if they let us, and wait until they are gone."""
    for worker in workers.values():
        worker.stop()
    for worker in workers.values():
        worker.end(patience_s)
    workers.clear()
