"""Ctrl-C and other signals as requests that are heard between and during compiled calls."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

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


class Stopped(KeyboardInterrupt):
    """Tells that a signal ended what was going on at once.

    Attributes:
        signal: which.
    """

    def __init__(self, message: str, signal: signal.Signals) -> None:
        super().__init__(message)
        self.signal = signal


class Interruption:
    """While entered, a signal to end only sets `requested`; a second Ctrl-C ends at once.

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

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in SIGNALS:
            handler = signal.getsignal(number)
            # Python and notebooks have handlers of their own for Ctrl-C, which mean the same.
            ours = (
                handler != signal.SIG_IGN if number == signal.SIGINT else handler == signal.SIG_DFL
            )
            if ours:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signal.Signals(signum)
            self._on_request()
        # A system that warns first sends another signal later, by which saving must not end.
        elif signum == signal.SIGINT:
            raise Stopped("stopped at once; what was saved before stays", signal.SIGINT)


def call_interruptibly(function: Callable[[], Result], interruption: Interruption) -> Result:
    """Call `function` in another thread, so that signals are handled meanwhile.

    Python runs signal handlers between instructions of the main thread alone, and a compilation is
    a single one. A call that is given up goes on in its thread; its result is dropped.

    Raises:
        Stopped: an interruption was requested.
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


def wait_until_ready(array: jax.Array) -> None:
    """Block until `array` is computed, in short sleeps between which signals are handled."""
    while not array.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_POLL_RUN_S)
