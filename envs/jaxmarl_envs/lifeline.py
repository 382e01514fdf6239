"""Processes that end with the process that started them, whatever ends it.

The starter holds one end of a pipe and its child the other; nothing is ever written. When the
starter is gone, the system closes its end. Linux then kills the child's complete process group by
itself, even while C code holds the interpreter. Where it cannot, and where a fork of the starter
keeps the pipe open, a thread of the child does so within a second.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

_POLL_MS = 1000


class BoundProcess(subprocess.Popen[bytes]):
    """A Python process in a process group of its own that ends with this process.

    Args:
        code: what it runs; `sys.argv[1]` is the file descriptor that it is to pass to `hold` first.
        args: what follows in `sys.argv`.
        pass_fds: further file descriptors that it inherits.
        **options: of `subprocess.Popen`.
    """

    def __init__(
        self, code: str, args: Sequence[str], pass_fds: Sequence[int] = (), **options: Any
    ) -> None:
        read_end, self._held = os.pipe()
        try:
            super().__init__(
                [sys.executable, "-c", code, str(read_end), *args],
                pass_fds=(read_end, *pass_fds),
                # So that Ctrl-C in the terminal does not reach it, and all that it forks can be
                # killed with it. Not a session of its own: Linux groups tasks by session when it
                # shares out a core (autogroups), and a worker and its master wait for each other.
                process_group=0,
                **options,
            )
        finally:
            os.close(read_end)

    def end(self, patience_s: float = 0.0) -> None:
        """Wait for it to end by itself, then kill it with all processes of its group."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(patience_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def hold(fd: int, each_second: Callable[[], object] = lambda: None) -> None:
    """End this process and its group when the process that started it has ended.

    To be called by a `BoundProcess`, whose group is its own.

    Args:
        fd: its end of the pipe.
        each_second: called about every second, in another thread.
    """
    parent = os.getppid()
    _let_the_system_kill(fd)
    threading.Thread(
        target=_watch, args=(fd, parent, each_second), name="lifeline", daemon=True
    ).start()


def _let_the_system_kill(fd: int) -> None:
    """Have SIGKILL sent to this process group when the other end of the pipe closes."""
    import fcntl  # only Unix has it

    if not hasattr(fcntl, "F_SETSIG"):
        return
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def _watch(fd: int, parent: int, each_second: Callable[[], object]) -> None:
    poller = select.poll()
    poller.register(fd, 0)  # reports no more than that the other end is closed
    while not poller.poll(_POLL_MS) and os.getppid() == parent:
        each_second()
    os.killpg(os.getpgrp(), signal.SIGKILL)
