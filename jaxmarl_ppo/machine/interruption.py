"""Ctrl-C and other signals as requests, handled between and during compiled calls.

Python runs signal handlers only in the main thread, between its instructions, and a compiled call
is a single one. So a thread also receives signals: it notifies calls that wait for an environment
in plain Python, and ends the process where the main thread cannot.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jaxmarl_ppo.machine.text import LINES, printable

if TYPE_CHECKING:  # commands that need no JAX start without it
    import jax

Result = TypeVar("Result")

# What ends a process, or warns it that its end is near: Ctrl-C, a closed terminal, the signal of
# `kill` and of schedulers, and the one that SLURM is usually asked to send ahead of its time limit.
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGHUP", "SIGTERM", "SIGUSR1")
    if hasattr(signal, name)
)

_POLL_COMPILE_S = 0.05
_POLL_RUN_S = 0.002
# Seconds that the main thread has to answer a signal that ends the process at once.
_ANSWER_S = 2.0
# What signals are written to in this process.
_opened: set[int] = set()
_AT_ONCE = "stopped at once; what was saved before stays"


class Stopped(KeyboardInterrupt):
    """Reports that a signal ended what was going on at once.

    Attributes:
        signal: which.
    """

    def __init__(self, message: str, signal: signal.Signals) -> None:
        super().__init__(message)
        self.signal = signal


class Interruption:
    """While entered, a signal to end only sets `requested`; a second Ctrl-C ends at once.

    Environments in plain Python hear of the request, and are given up where they do not answer; see
    `jaxmarl_envs.stop_request`. If the main thread has not answered a second Ctrl-C within two
    seconds, the process ends without it, unless it is an interactive one.

    Besides Ctrl-C these are the signals by which systems end or warn a process, see `SIGNALS`. One
    that is ignored, as Ctrl-C is in a job in the background, or that the program around handles
    itself, is left alone; outside the main thread, where Python allows no handlers, all are.

    Args:
        on_request: called at the first signal.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.requested: signal.Signals | None = None
        self._on_request = on_request
        self._previous: dict[signal.Signals, Any] = {}
        self._is_heard = self._is_at_once = False
        self._has_answered = threading.Event()
        self._ears = _Ears(self._hear)

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in SIGNALS:
            handler = _handler(number)
            # Python and notebooks have handlers of their own for Ctrl-C, which mean the same.
            ours = (
                handler != signal.SIG_IGN if number == signal.SIGINT else handler == signal.SIG_DFL
            )
            if ours:
                signal.signal(number, self._handle)
                self._previous[number] = handler
        self._ears.open()
        return self

    def __exit__(self, *error: object) -> None:
        self._ears.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        self._has_answered.set()
        stop_environments(None)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        # Two Ctrl-C that come while the main thread cannot answer arrive here as one.
        if self.requested is None and not self._is_at_once:
            self.requested = signal.Signals(signum)
            stop_environments(at_once=False)
            self._on_request()
        # A system that warns first sends another signal later, by which saving must not end.
        elif signum == signal.SIGINT:
            self._has_answered.set()
            raise Stopped(_AT_ONCE, signal.SIGINT)

    def _hear(self, signum: int) -> None:
        """Do in another thread what need not wait for the main one."""
        if signum not in self._previous:
            return
        if not self._is_heard:
            self._is_heard = True
            stop_environments(at_once=False)
        elif signum == signal.SIGINT:
            self._is_at_once = True
            stop_environments(at_once=True)
            if not self._has_answered.wait(_ANSWER_S) and not _is_interactive():
                end_process(_AT_ONCE, signal.SIGINT)


@contextlib.contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C end this process within two seconds, also while the main thread computes.

    Where the main thread answers, `KeyboardInterrupt` is raised as usual. While another handler of
    Ctrl-C is set, such as an `Interruption`, and outside the main thread, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    has_answered = threading.Event()

    def handle(signum: int, frame: FrameType | None) -> NoReturn:
        has_answered.set()
        stop_environments(None)
        raise KeyboardInterrupt

    def hear(signum: int) -> None:
        if signum != signal.SIGINT or signal.getsignal(signal.SIGINT) is not handle:
            return
        if not has_answered.wait(_POLL_COMPILE_S):
            stop_environments(at_once=True)
            if not has_answered.wait(_ANSWER_S):
                end_process("stopped at once", signal.SIGINT)
        has_answered.clear()

    ears = _Ears(hear)
    signal.signal(signal.SIGINT, handle)
    ears.open()
    try:
        yield
    finally:
        ears.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_process(message: str, number: int) -> NoReturn:
    """End this process at once, with the exit status of one that a signal ended.

    An ordinary exit would wait for threads that never return, and pull the ground from under a
    compilation that was given up.
    """
    with contextlib.suppress(Exception):
        print(printable(message, keep=LINES), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + number)


def stop_environments(at_once: bool | None) -> None:
    """Ask calls of environments in plain Python to stop; None withdraws the request."""
    stop_request = sys.modules.get("jaxmarl_envs.stop_request")
    if stop_request is None:  # no such environment is there
        return
    if at_once is None:
        stop_request.withdraw()
    else:
        stop_request.request(at_once)


def _handler(number: int) -> Any:
    """Return what happens at a signal, as `signal.getsignal` does.

    Native code can replace a handler, of which Python does not hear: after `ray.shutdown` (2.60)
    SIGTERM ends the process at once, while Python still names Ray's handler.
    """
    handler = signal.getsignal(number)
    try:
        with open("/proc/self/status") as lines:
            masks = dict(line.split(":\t") for line in lines if line.startswith("Sig"))
    except OSError:  # not Linux
        return handler
    is_caught = int(masks["SigCgt"], 16) >> (number - 1) & 1
    return signal.SIG_DFL if callable(handler) and not is_caught else handler


def _is_interactive() -> bool:
    """Return whether a person works in this process, who would lose more than a run."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


class _Ears:
    """Hears signals in a thread of its own.

    Args:
        hear: called there with the number of every signal that has a handler in Python.
    """

    def __init__(self, hear: Callable[[int], None]) -> None:
        self._hear = hear
        self._write_end = self._before = -1

    def open(self) -> None:
        """Begin to hear; in the main thread."""
        if os.name != "posix":
            return
        read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        _opened.add(self._write_end)
        threading.Thread(target=self._listen, args=(read_end,), name="signals", daemon=True).start()

    def close(self) -> None:
        """Hear no more."""
        if self._write_end >= 0:
            signal.set_wakeup_fd(self._before)
            _opened.discard(self._write_end)
            os.close(self._write_end)
            self._write_end = -1

    def _listen(self, read_end: int) -> None:
        with open(read_end, "rb", buffering=0) as signals:
            while found := signals.read(1):
                if self._before >= 0:  # whoever listened before hears it, too
                    with contextlib.suppress(OSError):
                        os.write(self._before, found)
                self._hear(found[0])


def _hear_nothing() -> None:
    """In a fork, leave alone the pipe of the process that was forked."""
    with contextlib.suppress(ValueError):
        if (before := signal.set_wakeup_fd(-1)) not in _opened:
            signal.set_wakeup_fd(before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hear_nothing)


def call_interruptibly(function: Callable[[], Result], interruption: Interruption) -> Result:
    """Call `function` in another thread, so that signals are handled meanwhile.

    Python runs signal handlers between instructions of the main thread alone, and a compilation is
    a single one. An abandoned call continues in its thread; its result is dropped.

    Raises:
        Stopped: If an interruption was requested.
    """
    outcome: dict[str, Any] = {}

    def target() -> None:
        try:
            outcome["result"] = function()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=target, name="compile", daemon=True)
    thread.start()
    while thread.is_alive():
        if interruption.requested is not None:
            raise Stopped("stopped during compilation; nothing was learnt", interruption.requested)
        thread.join(_POLL_COMPILE_S)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def wait_until_ready(array: "jax.Array") -> None:
    """Block until `array` is computed, in short sleeps between which signals are handled."""
    while not array.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_POLL_RUN_S)
