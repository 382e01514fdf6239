"""Doors to other libraries: their environments brought in, and ours taken out.

Each module needs its own library, which the package does not install by itself, and is imported
only when it is asked for.
"""

import importlib
from typing import Any


def import_extra(module: str, extra: str) -> Any:
    """Import a module of a library that is an extra of this package.

    Args:
        module: full name.
        extra: the extra that installs it.

    Raises:
        ImportError: it is not there; the message says which extra to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Something else that an installed library misses is that library's own message.
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise ImportError(
            f"{module.split('.')[0]!r} is not installed: pip install 'jaxmarl-ppo[{extra}]'"
        ) from error
