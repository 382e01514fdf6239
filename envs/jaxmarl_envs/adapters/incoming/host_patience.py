"""Limits of time for environments in plain Python: each call of a game has its own."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from jaxmarl_envs import stop_request
from jaxmarl_envs.adapters.incoming.host_thread import HostThread
from jaxmarl_envs.adapters.incoming.host_worker import DONE, NOT_BEGUN, read_mark
from jaxmarl_envs.user_code import HostEnvironmentError

T = TypeVar("T")

STEP_TIMEOUT_S = 600.0
# What processes and environments have at least to start, which is neither a step nor a reset.
START_S = 120.0
# A call causes a warning after this many seconds, or half its limit if less.
WARN_AFTER_S = 60.0


class HangingEnvironmentWarning(UserWarning):
    """An environment has not returned from a step or a reset for long."""


class GivenUp(HostEnvironmentError):  # noqa: N818
    """A call of a game has taken too long."""


def check_step_timeout(step_timeout: Any) -> None:
    """Check that an argument is a time limit in seconds.

    Raises:
        ValueError: If it is not.
    """
    if step_timeout is None:
        return
    is_number = isinstance(step_timeout, int | float) and not isinstance(step_timeout, bool)
    if not (is_number and math.isfinite(step_timeout) and step_timeout > 0):
        raise ValueError(
            f"step_timeout={step_timeout!r}: give seconds as a positive, finite number, or None "
            "to wait for ever"
        )


def try_out(function: Callable[[], T], step_timeout: float | None, what: str) -> T:
    """Call what makes an environment, or plays it for the first time, within a limit of time.

    Args:
        function: runs in a thread, so that one that hangs can be given up.
        step_timeout: seconds; those of a start are granted at least, None is for no limit.
        what: names the call, in messages.

    Warns:
        HangingEnvironmentWarning: the call has taken long.

    Raises:
        GivenUp: If it has taken too long.
    """
    vigil = Vigil(step_timeout, {0: [NOT_BEGUN]}, lambda *_: what)
    try:
        return HostThread().call(function, vigil.look)
    except (RuntimeError, ValueError) as error:
        # Signals, event loops and some libraries want the main thread, which workers have.
        if "thread" not in str(error) or isinstance(error, GivenUp):
            raise
        return function()


class Vigil:
    """Watches over the calls of games that one request leads to.

    Args:
        limit_s: seconds that a call may take; None for no limit.
        marks: by process, a number that changes with every call, see `host_worker.Games`.
        describe: writes which environment is at what call, of a process and its mark.
    """

    def __init__(
        self,
        limit_s: float | None,
        marks: Mapping[int, Sequence[int] | memoryview],
        describe: Callable[[int, int], str],
    ) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._marks, self._describe = marks, describe
        self._began = time.monotonic()
        self._seen: dict[int, tuple[int, float]] = {}  # by process: a mark, and since when
        self._warned: set[tuple[int, int]] = set()

    def look(self) -> None:
        """Look whether a call takes too long; to be called several times a second.

        Warns:
            HangingEnvironmentWarning: a call has taken long.

        Raises:
            GivenUp: If a call has taken too long, or continues although a stop is requested.
        """
        now = time.monotonic()
        for process, marks in self._marks.items():
            mark = marks[0]
            if mark == DONE:
                continue
            last, since = self._seen.get(process, (mark, self._began))
            since = since if mark == last else now
            self._seen[process] = mark, since
            self._check(process, mark, since, now - since)

    def _check(self, process: int, mark: int, since: float, waited_s: float) -> None:
        starts = mark == NOT_BEGUN or read_mark(mark)[1] < 0
        limit_s = max(self._limit_s, START_S) if starts else self._limit_s
        what = "" if starts else " (step_timeout)"
        if waited_s >= limit_s:
            raise GivenUp(
                f"{self._describe(process, mark)} did not return within {limit_s:g} s{what}"
            )
        if stop_request.is_due(since):
            raise GivenUp(
                f"{self._describe(process, mark)} had not returned after {waited_s:.0f} s, and a "
                "stop was requested"
            )
        if waited_s >= min(WARN_AFTER_S, limit_s / 2) and (process, mark) not in self._warned:
            self._warned.add((process, mark))
            ends = "" if limit_s == math.inf else f"; it is given up after {limit_s:g} s{what}"
            warnings.warn(
                f"{self._describe(process, mark)} has not returned for {waited_s:.0f} s{ends}",
                HangingEnvironmentWarning,
                stacklevel=2,
            )
