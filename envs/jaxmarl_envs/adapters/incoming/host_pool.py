"""Plain Python environments as functions: any number of them, in this process or in others.

What an episode is now follows from its seed and from all that was played in it. Games are kept
going only to save playing that again: where none stands as it is asked for, one is reset with the
seed and the past is replayed.
"""

import logging
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host_worker import (
    Answer,
    Failure,
    Game,
    GameError,
    Games,
    Request,
)
from jaxmarl_envs.user_code import HostEnvironmentError

# Games kept per place in a batch, so that resets and evaluations leave an episode as it stands.
KEPT = 2
# Seconds that a worker has to end by itself once nothing more can reach it.
PATIENCE_S = 5.0
_WORKER = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from jaxmarl_envs.adapters.incoming.host_worker import serve; serve()"
)
# Workers share the cores out among themselves, and leave accelerators alone.
_WORKER_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


def _is_no_host_error(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], HostEnvironmentError)


# JAX writes a traceback of its own to standard error, besides raising the error.
logging.getLogger("jax._src.callback").addFilter(_is_no_host_error)


@dataclass
class _Standing:
    """How far a game has come."""

    number: int
    seed: int
    time: int
    past: np.ndarray | None = (
        None  # [max_ticks, A] or [max_ticks, A, N], of which `time` rows count
    )

    def is_at(self, seed: int, time: int, past: np.ndarray) -> bool:
        if self.seed != seed or self.time != time:
            return False
        # For a few numbers five times as fast as comparing them as arrays.
        return self.past is None or self.past[:time].tobytes() == past[:time].tobytes()


class HostPool:
    """Steps `E` games at once, spread over processes; every call may ask for any episodes.

    Calls exclude each other. Processes start when they are first needed and end with `close`, with
    the pool, with the program, or when anything goes wrong; the next call starts new ones.

    Args:
        name: of the environment, for messages.
        make_game: makes one game. Processes get it by cloudpickle, so it may be a lambda.
        num_workers: processes; 0 to step in this one.
    """

    def __init__(self, name: str, make_game: Callable[[], Game], num_workers: int) -> None:
        self.name, self.num_workers = name, num_workers
        self._make_game = make_game
        self._lock = threading.Lock()
        self._standings: dict[int, list[_Standing]] = {}  # by place, the latest first
        self._here: Games | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        weakref.finalize(self, _stop, self._workers)
        # A thread of its own begins here, where numbers have their full range: those that call back
        # from a compiled program may take the smallest ones for zero.
        self._thread = None if num_workers else ThreadPoolExecutor(1, "host-environment")
        if self._thread is not None:
            self._thread.submit(int).result()

    @property
    def pids(self) -> tuple[int, ...]:
        """List the ids of the worker processes that run now."""
        return tuple(worker.pid for worker in self._workers.values())

    def close(self) -> None:
        """End all processes and forget all games."""
        with self._lock:
            self._forget()

    def reset(self, seeds: np.ndarray) -> Answer:
        """Begin episodes with `seeds [E]` int and return their `Frame`, `[E, ...]` each."""
        with self._lock:
            replays = {place: (seed, np.empty(0)) for place, seed in enumerate(seeds.tolist())}
            numbers = [self._take(place, seed).number for place, (seed, _) in replays.items()]
            return self._play(Request(numbers, replays, None, None))

    def step(
        self,
        seeds: np.ndarray,
        times: np.ndarray,
        past: np.ndarray,
        actions: np.ndarray,
        reset_seeds: np.ndarray | None = None,
    ) -> Answer:
        """Advance episodes by one tick.

        Args:
            seeds: `[E]` int, what the episodes began with.
            times: `[E]` int, ticks done.
            past: `[E, max_ticks, A]` or `[E, max_ticks, A, N]`, what was played in them.
            actions: `[E, A]` or `[E, A, N]`.
            reset_seeds: `[E]` int, to begin the next episodes with where these are over.

        Returns:
            A `Frame`, an `Outcome`, and the `Frame` after rebirths and with `reset_seeds` after
            resets, `[E, ...]` each.
        """
        with self._lock:
            numbers, replays = [], {}
            for place, (seed, time) in enumerate(zip(seeds.tolist(), times.tolist(), strict=True)):
                standing = self._find(place, seed, time, past[place])
                if standing is None:
                    standing = self._take(place, seed, time)
                    replays[place] = (seed, past[place, :time])
                if standing.past is None:
                    standing.past = past[place].copy()
                numbers.append(standing.number)
            fresh = None if reset_seeds is None else reset_seeds.tolist()
            answer = self._play(Request(numbers, replays, actions, fresh))
            self._advance(actions, ~np.any(answer[2], axis=-1), fresh)
            return answer

    def _find(self, place: int, seed: int, time: int, past: np.ndarray) -> _Standing | None:
        """Find a place's game that stands at this tick of this episode, and make it the latest."""
        standings = self._standings.get(place, [])
        for standing in standings:
            if standing.is_at(seed, time, past):
                standings.remove(standing)
                standings.insert(0, standing)
                return standing
        return None

    def _take(self, place: int, seed: int, time: int = 0) -> _Standing:
        """Choose a place's game to be reset: a new one, or the one that has waited longest."""
        standings = self._standings.setdefault(place, [])
        full = len(standings) == KEPT
        number = standings.pop().number if full else KEPT * place + len(standings)
        standings.insert(0, _Standing(number, seed, time))
        return standings[0]

    def _advance(self, actions: np.ndarray, over: Any, fresh: list[int] | None) -> None:
        for place, action in enumerate(actions):
            standing = self._standings[place][0]
            assert standing.past is not None
            if standing.time < len(standing.past):
                standing.past[standing.time] = action
                standing.time += 1
            if fresh is not None and over[place]:
                standing.seed, standing.time = fresh[place], 0

    def _play(self, request: Request) -> Answer:
        """Let all games play, each in its own process."""
        try:
            if self._thread is not None:
                return self._thread.submit(self._play_here, request).result()
            return self._play_elsewhere(request)
        except BaseException:
            # Nobody knows where the games stand now.
            self._forget()
            raise

    def _play_here(self, request: Request) -> Answer:
        try:
            self._here = self._here or Games(self._make_game)
            return self._here.play(request)
        except GameError as error:
            raise self._error(error.failure, error.failure.place) from error

    def _play_elsewhere(self, request: Request) -> Answer:
        num_games = len(request.numbers)
        asked = range(min(self.num_workers, num_games))
        for index in asked:
            if index not in self._workers:
                self._workers[index] = self._start()
        for index in asked:
            self._send(index, _share(request, index, self.num_workers))
        parts = [self._receive(index) for index in asked]
        answer = tuple(np.empty((num_games, *x.shape[1:]), x.dtype) for x in parts[0])
        for index, part in enumerate(parts):
            for whole, own in zip(answer, part, strict=True):
                whole[index :: self.num_workers] = own
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        cloudpickle = import_extra("cloudpickle", "pettingzoo")
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_WORKER_VARIABLES},
        )
        assert worker.stdin is not None
        pickle.dump(cloudpickle.dumps(self._make_game), worker.stdin)
        return worker

    def _send(self, index: int, request: Request) -> None:
        stream = self._workers[index].stdin
        assert stream is not None
        try:
            pickle.dump(request, stream, pickle.HIGHEST_PROTOCOL)
            stream.flush()
        except OSError as error:
            raise self._ended(index) from error

    def _receive(self, index: int) -> Answer:
        stream = self._workers[index].stdout
        assert stream is not None
        try:
            fine, answer = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._ended(index) from error
        if not fine:
            raise self._error(answer, answer.place * self.num_workers + index)
        return answer

    def _error(self, failure: Failure, number: int) -> HostEnvironmentError:
        where = f"environment {self.name!r}, number {number} of the batch, "
        return HostEnvironmentError(where + failure.sentence, failure.trace)

    def _ended(self, index: int) -> HostEnvironmentError:
        status = self._workers[index].wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return HostEnvironmentError(
            f"environment {self.name!r}: worker process {index} {how}; what it wrote to standard "
            "error is above. With num_workers=0 the environment runs in this process instead"
        )

    def _forget(self) -> None:
        _stop(self._workers)
        self._standings.clear()
        self._here = None


def _share(request: Request, index: int, num_workers: int) -> Request:
    """Take every `num_workers`-th game of a request, beginning with number `index`."""
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


def _stop(workers: dict[int, subprocess.Popen[bytes]]) -> None:
    """End processes, gently if they let us, and wait until they are gone."""
    for worker in workers.values():
        assert worker.stdin is not None
        try:
            worker.stdin.close()
        except OSError:
            worker.kill()  # it is gone already, or does not listen
    for worker in workers.values():
        assert worker.stdout is not None
        try:
            worker.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        worker.stdout.close()
    workers.clear()
