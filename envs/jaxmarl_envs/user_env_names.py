"""Names of environments that give the location of their code, read without importing anything."""

import re
from pathlib import Path

HOW_TO_NAME = "package.module:Class or path/to/file.py:Class"
_NAME = re.compile(r"(?P<place>.+\.py|\w+(?:\.\w+)*):(?P<attribute>[^\W\d]\w*(?:\.\w+)*)")


def is_own(name: object) -> bool:
    """Return whether a name gives the location of code, instead of being registered."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def full_name(name: str) -> str:
    """Write a name with the absolute path of its file; a module's stays as it is."""
    place, _, attribute = name.rpartition(":")
    return f"{_path(place)}:{attribute}" if place.endswith(".py") else name


def missing_file(name: str) -> Path | None:
    """Find the file that a name speaks of and that is not there."""
    place, _, _ = name.rpartition(":")
    return _path(place) if place.endswith(".py") and not _path(place).is_file() else None


def _path(place: str) -> Path:
    return Path(place).expanduser().resolve()
