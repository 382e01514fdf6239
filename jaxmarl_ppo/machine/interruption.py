"""Ctrl-C as a request that is heard between and during compiled calls."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

import jax

Result = TypeVar("Result")

_POLL_COMPILE_S = 0.05
_POLL_RUN_S = 0.002


class Interruption:
    """While entered, a first Ctrl-C only sets `requested`; a second one raises KeyboardInterrupt.

    Outside the main thread, where Python allows no signal handlers, and where Ctrl-C is ignored
    altogether, as in a job in the background, nothing is installed.

    Args:
        on_request: called at the first Ctrl-C.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.requested = False
        self._on_request = on_request
        self._previous: Any = None

    def __enter__(self) -> "Interruption":
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._on_request()


def call_interruptibly(function: Callable[[], Result], interruption: Interruption) -> Result:
    """Call `function` in another thread, so that signals are handled meanwhile.

    Python runs signal handlers between instructions of the main thread alone, and a compilation is
    a single one. A call that is given up goes on in its thread; its result is dropped.

    Raises:
        KeyboardInterrupt: an interruption was requested.
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
        if interruption.requested:
            raise KeyboardInterrupt("stopped during compilation; nothing was learnt")
        thread.join(_POLL_COMPILE_S)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def wait_until_ready(array: jax.Array) -> None:
    """Block until `array` is computed, in short sleeps between which signals are handled."""
    while not array.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_POLL_RUN_S)
