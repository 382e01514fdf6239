"""What goes wrong in the code of an environment, in one sentence with its file and line."""

import contextlib
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

from jaxmarl_envs.core import MultiAgentEnv

# Packages whose lines say nothing of what is wrong with an environment.
_LIBRARIES = {"jax", "jaxlib", "flax", "numpy", "chex", "optax", "distrax"}
_LIBRARIES |= {__name__.partition(".")[0], *sys.stdlib_module_names}


class UserCodeError(ValueError):
    """The user's own code raised an exception, which is this one's cause."""


@contextlib.contextmanager
def telling_of(what: str) -> Iterator[None]:
    """Turn any exception of the user's code into a sentence that begins with `what`.

    Raises:
        UserCodeError: the body raised something.
    """
    try:
        yield
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
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES


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
