"""Plain Python environments as functions: any number of them, in this process or in others.

What an episode is now follows from its seed and from all that was played in it. Games are kept
going only to save playing that again: where none stands as it is asked for, one is reset with the
seed and the past is replayed.
"""

import contextlib
import functools
import logging
import os
import sys
import threading
import warnings
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host_batch import Batch, Batches
from jaxmarl_envs.adapters.incoming.host_episodes import (
    BatchEpisodes,
    Episodes,
    ForgottenEpisodeWarning,
    SeparateEpisodes,
    place_of,
)
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, GivenUp, Vigil
from jaxmarl_envs.adapters.incoming.host_process import PATIENCE_S, WorkerEnded, WorkerProcess
from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep, Rows, RowSpec, shared_file
from jaxmarl_envs.adapters.incoming.host_steps import Begun, Steps, share_of
from jaxmarl_envs.adapters.incoming.host_thread import HostThread
from jaxmarl_envs.adapters.incoming.host_worker import (
    NOT_BEGUN,
    Failure,
    Game,
    GameError,
    Games,
    Request,
    read_mark,
)
from jaxmarl_envs.adapters.incoming.own_randomness import generators_kept
from jaxmarl_envs.user_code import HostEnvironmentError
from jaxmarl_envs.user_envs import RENAMED


def _is_no_host_error(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], HostEnvironmentError)


# JAX also writes a traceback to standard error, besides raising the error.
logging.getLogger("jax._src.callback").addFilter(_is_no_host_error)


class HostPool:
    """Steps `E` games at once, spread over processes; every call may ask for any episodes.

    While a call waits for its games, others may begin the step that will be asked for next. What a
    call returns does not depend on that.

    Calls exclude each other. Processes start when they are first needed and end with `close`, with
    the pool, with the program, or when anything goes wrong; the next call starts new ones.

    Args:
        name: of the environment, for messages.
        make_game: makes one game, or a `Batch` of as many as it is given. Processes get it by
            cloudpickle, so it may be a lambda.
        spec: of the games' arrays.
        num_workers: processes; 0 to step in this one.
        agents: names of the slots, for messages.
        step_timeout: seconds that one game may take for a step or a reset; None for no limit.
        in_batches: whether the games of a process are stepped together, as a `Batch`.
    """

    def __init__(
        self,
        name: str,
        make_game: Callable[[], Game] | Callable[[int], Batch],
        spec: RowSpec,
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
        kind = BatchEpisodes if in_batches else SeparateEpisodes
        # Nothing here may refer to the pool, so that processes end at once with the last reference.
        self._episodes: Episodes = kind(functools.partial(_warn_of_forgotten, name))
        self._rows = Rows(spec, shared_file())
        self._here: Games | Batches | None = None
        self._mark_here = array("q", [NOT_BEGUN])
        self._workers: dict[int, WorkerProcess] = {}
        self._ahead: Begun | None = None  # begun before it was asked for
        weakref.finalize(self, _stop, self._workers)
        self._thread = None if num_workers else HostThread()
        self._hangs: str | None = None  # where the thread will not return from

    @property
    def pids(self) -> tuple[int, ...]:
        """List the ids of the worker processes that run now."""
        return tuple(worker.pid for worker in self._workers.values())

    def start(self, num_games: int) -> None:
        """Start the processes that so many games need, and do not wait for them."""
        with self._lock, self._forgetting():
            for index in range(min(self.num_workers, num_games)):
                self._start(index)

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
        with self._lock, self._forgetting():
            self._settle()
            request = self._request(*self._episodes.begin(seeds))
            _, _, frame = self._finish(self._begin(request))
            self._episodes.note_actors(frame.agent_mask.copy())
            return frame

    def step(self, steps: Steps, ahead: Steps | None = None) -> tuple[Frame, GameStep, Frame]:
        """Advance episodes by one step.

        Args:
            steps: the episodes, and what is played in them.
            ahead: what is asked for next, of other places in the batch, so that their games can
                begin it at once.

        Returns:
            What all slots see after the step, what it brought, and what all slots see after
            rebirths and with `reset_seeds` after resets, `[E, A, ...]` each. The next call may
            overwrite these arrays.
        """
        with self._lock, self._forgetting():
            if self._ahead is None or not self._ahead.is_of(steps):
                self._settle()
                begun = self._begin_steps(steps)
            else:
                begun, self._ahead = self._ahead, None
            if ahead is not None and self._thread is None:
                self._ahead = self._begin_steps(ahead)._replace(steps=ahead.copied())
            return self._finish_steps(begun, steps)

    def _settle(self) -> None:
        """Finish what was begun and is not asked for."""
        begun, self._ahead = self._ahead, None
        if begun is not None and begun.steps is not None:
            self._finish_steps(begun, begun.steps)

    def _begin_steps(self, steps: Steps) -> Begun:
        asked = self._episodes.find(steps.seeds, steps.times, steps.past, steps.first)
        fresh = None if steps.reset_seeds is None else steps.reset_seeds.tolist()
        return self._begin(self._request(*asked, steps.actions, fresh), steps)

    def _request(
        self,
        numbers: list[int],
        replays: dict[int, tuple[int, np.ndarray]],
        actions: np.ndarray | None = None,
        reset_seeds: list[int] | None = None,
    ) -> Request:
        rows = list(range(len(numbers))) if self.in_batches else numbers
        self._rows.reach(max(rows) + 1)
        return Request(numbers, rows, replays, actions, reset_seeds)

    def _finish_steps(self, begun: Begun, steps: Steps) -> tuple[Frame, GameStep, Frame]:
        final, outcome, frame = self._finish(begun)
        over = ~np.any(final.alive, axis=-1)
        self._episodes.advance(steps.actions, over, steps.reset_seeds, steps.first)
        self._episodes.note_actors(frame.agent_mask.copy(), steps.first)
        return final, outcome, frame

    @contextlib.contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget all games where anything goes wrong."""
        try:
            yield
        except BaseException as error:
            # Nobody knows where the games stand now, and those that hang do not end by themselves.
            is_idle = isinstance(error, HostEnvironmentError) and not isinstance(error, GivenUp)
            self._forget(PATIENCE_S if is_idle else 0.0)
            raise

    def _begin(self, request: Request, steps: Steps | None = None) -> Begun:
        """Send every process its share of a request."""
        if self._thread is not None:
            return Begun(steps, request, [])
        first = 0 if steps is None else steps.first
        rows = {(first + row) % self.num_workers: row for row in range(self.num_workers)}
        num_games = len(request.numbers)
        shares = [(index, rows[index]) for index in sorted(rows) if rows[index] < num_games]
        for index, _ in shares:
            self._start(index)
        begun = Begun(steps, request, shares)
        vigil = self._vigil(begun)
        for index, row in shares:
            with self._telling_of_ends(index):
                share = share_of(request, row, self.num_workers)
                self._workers[index].send(share, vigil.look)
        return begun

    def _finish(self, begun: Begun) -> tuple[Frame, GameStep, Frame]:
        """Wait for all games, each in its own process, and read what they have played."""
        finals = []
        if self._thread is not None:
            finals += self._play_here(self._thread, begun)
        vigil = self._vigil(begun)
        for index, _ in begun.shares:
            with self._telling_of_ends(index):
                fine, answer = self._workers[index].receive(vigil.look)
            if not fine:
                raise self._error(answer)
            finals += answer
        return self._rows.read(begun.request.rows, finals)

    def _start(self, index: int) -> None:
        if index not in self._workers:
            cloudpickle = import_extra("cloudpickle", "gymnasium")
            for name in RENAMED & sys.modules.keys():
                cloudpickle.register_pickle_by_value(sys.modules[name])
            make_games = cloudpickle.dumps(self._make_games)
            self._workers[index] = WorkerProcess(make_games, self._rows, self._core_of(index))

    def _core_of(self, index: int) -> int | None:
        """Return the core that a worker keeps to, where there is one for each of several."""
        # Woken by the same process one after the other, they would often be put on its own core.
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return cores[index] if self.num_workers == len(cores) > 1 else None

    @contextlib.contextmanager
    def _telling_of_ends(self, index: int) -> Iterator[None]:
        """Tell the user of a process that has ended."""
        try:
            yield
        except WorkerEnded as how:
            raise HostEnvironmentError(
                f"environment {self.name!r}: worker process {index} {how}; what it wrote to "
                "standard error is above. With num_workers=0 the environment runs in this process "
                "instead"
            ) from how

    def _play_here(self, thread: HostThread, begun: Begun) -> list[int]:
        if self._hangs is not None:
            raise GivenUp(self._hangs)
        games = self._here = self._here or self._make_games(self._mark_here, self._rows)
        self._mark_here[0] = NOT_BEGUN
        try:
            play = generators_kept()(games.play)
            return thread.call(lambda: play(begun.request), self._vigil(begun).look)
        except GameError as error:
            raise self._error(error.failure) from error
        except GivenUp as error:
            self._hangs = (
                f"{error.sentence}; it runs in this process (num_workers=0), where it cannot be "
                "ended, so nothing is played in this environment any more"
            )
            raise GivenUp(self._hangs) from None

    def _error(self, failure: Failure) -> HostEnvironmentError:
        if failure.number is None:
            game = f"environment {self.name!r}"
        else:
            game = self._game(place_of(failure.number))
        return HostEnvironmentError(f"{game}, {failure.sentence}", failure.trace)

    def _game(self, place: int) -> str:
        return f"environment {self.name!r}, number {place} of the batch"

    def _vigil(self, begun: Begun) -> Vigil:
        def describe(process: int, mark: int) -> str:
            if mark == NOT_BEGUN:
                return f"environment {self.name!r}: worker process {process}, which begins to play,"
            number, time = read_mark(mark)
            place = process if self.in_batches else place_of(number)
            return f"{self._game(place)}, {self._call(begun.request, place, time)}"

        if self._thread is not None:
            return Vigil(self.step_timeout, {0: self._mark_here}, describe)
        marks = {index: self._workers[index].marks for index, _ in begun.shares}
        return Vigil(self.step_timeout, marks, describe)

    def _call(self, request: Request, place: int, time: int) -> str:
        """Describe a call of the game at a place in the batch."""
        if time < 0:
            return "being made,"
        if time == 0:
            return "reset"
        seed, time_now, acts_now = self._episodes.latest(place)
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
        self._episodes.forget()
        self._here = self._ahead = None


def _warn_of_forgotten(name: str, time: int, remembered: int) -> None:
    warnings.warn(
        f"environment {name!r}: an episode of {time:,} steps begins anew, since only "
        f"{remembered:,} of its steps are remembered; give horizon=, the most steps of an "
        "episode, to play such episodes again",
        ForgottenEpisodeWarning,
        stacklevel=2,
    )


def _stop(workers: dict[int, WorkerProcess], patience_s: float = PATIENCE_S) -> None:
    """End processes, gently if they let us, and wait until they are gone."""
    for worker in workers.values():
        worker.stop()
    for worker in workers.values():
        worker.end(patience_s)
    workers.clear()
