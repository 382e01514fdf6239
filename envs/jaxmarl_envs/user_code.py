"""Errors in an environment's own code, in one sentence with file and line."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import ClassVar

from jaxmarl_envs.adapters import MissingExtraError
from jaxmarl_envs.core import MultiAgentEnv

# Packages whose lines do not explain errors of an environment.
_LIBRARIES = {"jax", "jaxlib", "flax", "numpy", "chex", "optax", "distrax"}
_THIS_PACKAGE = __name__.partition(".")[0]
_LIBRARIES |= {_THIS_PACKAGE, *sys.stdlib_module_names}


class UserCodeError(ValueError):
    """The user's own code raised an exception, which is this one's cause."""


class HostEnvironmentError(RuntimeError):
    """An environment in plain Python, or the process that it lives in, failed.

    Attributes:
        sentence: what happened, and where.
        trace: the user's own part of the traceback; empty where there is none.
        interrupt: what a signal raised meanwhile, which is to be raised instead; else None.
    """

    # What failed last; it reaches those who wait for a compiled program only as JAX's report of it.
    latest: ClassVar["HostEnvironmentError | None"] = None

    def __init__(
        self, sentence: str, trace: str = "", interrupt: KeyboardInterrupt | None = None
    ) -> None:
        self.sentence, self.trace, self.interrupt = sentence, trace, interrupt
        super().__init__(f"{sentence}\n\n{trace.rstrip()}" if trace else sentence)
        HostEnvironmentError.latest = self


@contextlib.contextmanager
def host_errors() -> Iterator[None]:
    """Raise what an environment in plain Python raised, instead of JAX's long report of it.

    Raises:
        HostEnvironmentError: If an environment failed in the body.
        KeyboardInterrupt: If a signal raised it while waiting for an environment.
    """
    try:
        yield
    except Exception as error:
        latest = HostEnvironmentError.latest
        if latest is None or latest.sentence not in str(error):
            raise
        if latest.interrupt is not None:
            raise latest.interrupt from None
        if latest is error:
            raise
        raise latest from None


@contextlib.contextmanager
def without_input() -> Iterator[None]:
    """Let whatever asks for a line of standard input meanwhile have an `EOFError` instead."""
    before = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


@contextlib.contextmanager
def telling_of(what: str) -> Iterator[None]:
    """Turn any exception of the user's code into a sentence that begins with `what`.

    Raises:
        UserCodeError: If the body raised something.
        HostEnvironmentError: As raised there, with its full message.
        MissingExtraError: As raised there.
    """
    try:
        yield
    except (HostEnvironmentError, MissingExtraError):
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{what} raises {describe_error(error)}") from error


def describe_error(error: BaseException, how: str = "") -> str:
    """Describe an exception by type, first line of its message, and the user's line.

    Args:
        error: what was raised and caught.
        how: under what circumstances, such as `" under jit"`.
    """
    if isinstance(error, SyntaxError):
        # Its own message repeats the place.
        reason, where = error.msg, _place(error.filename, error.lineno, error.text)
    else:
        reason, where = str(error).strip().split("\n")[0], _where(error.__traceback__)
    return f"{type(error).__name__}{how}: {reason or 'without a message'}{where}"


def is_ours(error: BaseException) -> bool:
    """Return whether this package raised an exception itself, with a complete message."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and _package(frames[-1]) == _THIS_PACKAGE


def own_traceback(error: BaseException) -> str:
    """Write the traceback of an exception from where the user's code begins."""
    if is_ours(error):
        return ""
    trace = error.__traceback__
    while trace is not None and _is_library(trace.tb_frame):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def describe_traced(error: BaseException) -> str | None:
    """Describe an exception that an environment raised while one of its methods was called.

    Returns:
        A sentence with the environment, the method, the exception and the user's line; None where
        no method of an environment of the user's own was under way.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        env = frame.f_locals.get("self")
        if isinstance(env, MultiAgentEnv) and not _is_library(frame):
            name, method = getattr(env, "name", type(env).__name__), frame.f_code.co_name
            return f"environment {name!r}, {method} raises {describe_error(error)}"
    return None


def _is_library(frame: FrameType) -> bool:
    return _package(frame) in _LIBRARIES


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _where(trace: TracebackType | None) -> str:
    """Name the innermost line that is no library's, where there is one."""
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(trace)
        if not _is_library(frame)
    ]
    if not places:
        return ""
    return _place(*places[-1])


def _place(path: str | None, line: int | None, text: str | None = None) -> str:
    if path is None or line is None:
        return ""
    text = (text or traceback.FrameSummary(path, line, "").line or "").strip()
    return f" ({path}, line {line}{': ' + text if text else ''})"
