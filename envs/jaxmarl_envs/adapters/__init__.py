"""Adapters of other libraries: their environments brought in, and ours taken out.

Each module needs its own library, which the package does not install by itself, and is imported
only when it is asked for.
"""

import importlib
from collections.abc import Callable
from typing import Any


class MissingExtraError(ImportError):
    """A library that an extra installs is not installed; the message says how to install it."""


def how_to_install(extra: str) -> str:
    """Write the command that installs an extra of this package, which no package index has."""
    return f"pip install './envs[{extra}]' in a clone of the repository"


def import_extra(module: str, extra: str, advice: Callable[[str], str] = how_to_install) -> Any:
    """Import a module of a library that is an extra of this package, or of another.

    Args:
        module: full name.
        extra: the extra that installs it.
        advice: writes the command that installs an extra.

    Raises:
        MissingExtraError: If the module is not installed; the message ends with the advice.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Something else that an installed library misses is that library's own message.
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        library = module.split(".")[0]
        raise MissingExtraError(f"{library!r} is not installed: {advice(extra)}") from error
