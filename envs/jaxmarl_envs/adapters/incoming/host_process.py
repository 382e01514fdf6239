"""One worker process of a pool: started, asked, and ended."""

import contextlib
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from jaxmarl_envs.adapters.incoming.host_channel import Channel
from jaxmarl_envs.adapters.incoming.host_rows import Rows, shared_file
from jaxmarl_envs.adapters.incoming.host_worker import NOT_BEGUN
from jaxmarl_envs.lifeline import BoundProcess

# Seconds that a worker has to end by itself once nothing more can reach it.
PATIENCE_S = 5.0
_CODE = (
    "import sys; fds = [int(fd) for fd in sys.argv[1:5]]; sys.path[:] = sys.argv[5:]; "
    "from jaxmarl_envs.adapters.incoming.host_worker import serve; serve(*fds)"
)
# Workers share the cores out among themselves, and leave accelerators alone.
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


class WorkerEnded(Exception):  # noqa: N818
    """A worker process has ended, as the text says."""


class WorkerProcess:
    """A process that plays games, as they are asked for; its standard input is empty.

    Answers come in the order of requests, of which two may be unanswered at a time.

    Args:
        make_games: a function that makes `Games` or `Batches` of a mark and rows, pickled.
        rows: where they are written.
        core: the CPU core that it keeps to; None for any.

    Attributes:
        marks: a number, the call that the process is in; see `host_worker.Games`.
    """

    def __init__(self, make_games: bytes, rows: Rows, core: int | None = None) -> None:
        own, theirs = socket.socketpair()
        self._channel = Channel(own, is_watched=True)
        self._unanswered = 0
        with theirs, shared_file(8) as marks:
            self.marks = memoryview(mmap.mmap(marks.fileno(), 8)).cast("q")
            fds = theirs.fileno(), marks.fileno(), rows.file.fileno()
            self._process = BoundProcess(
                _CODE,
                [*map(str, fds), *sys.path],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_VARIABLES},
            )
        if core is not None:
            with contextlib.suppress(OSError):  # where the system does not allow it
                os.sched_setaffinity(self.pid, {core})
        with contextlib.suppress(ConnectionError):  # if it has ended, requests say so
            self._channel.send((rows.spec, make_games))

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def send(self, request: Any, on_wait: Callable[[], None]) -> None:
        """Ask for games to be played.

        Raises:
            WorkerEnded: If the process is gone.
        """
        if not self._unanswered:
            self.marks[0] = NOT_BEGUN
        self._unanswered += 1
        on_wait = self._or_ended(on_wait)
        try:
            self._channel.send(request, on_wait)
        except (EOFError, ConnectionError) as error:
            raise self._ended() from error

    def receive(self, on_wait: Callable[[], None]) -> Any:
        """Receive the answer to the earliest request that has none.

        Raises:
            WorkerEnded: If the process is gone.
        """
        try:
            answer = self._channel.receive(self._or_ended(on_wait))
            self._unanswered -= 1
            return answer
        except (EOFError, ConnectionError) as error:
            raise self._ended() from error

    def kill(self) -> None:
        """Kill the process, and all that it has forked, while another thread may wait for it."""
        self._process.end()

    def stop(self) -> None:
        """Let the process end by itself; `end` waits for it."""
        self._channel.close()

    def end(self, patience_s: float) -> None:
        """End the process, and all that it has forked, after so long at the latest."""
        self._channel.close()
        self._process.end(patience_s)

    def _or_ended(self, on_wait: Callable[[], None]) -> Callable[[], None]:
        """Look as well whether the process lives: what it forked keeps its connection open."""
        has_ended = False

        def look() -> None:
            nonlocal has_ended
            if has_ended:  # for a complete interval without further data
                raise EOFError
            has_ended = self._process.poll() is not None
            on_wait()

        return look

    def _ended(self) -> WorkerEnded:
        self._process.end(PATIENCE_S)
        status = self._process.returncode
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return WorkerEnded(how)
