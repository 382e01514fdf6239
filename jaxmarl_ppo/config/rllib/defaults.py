"""RLlib's keys with their defaults, as tables."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEPRECATED = -1  # what RLlib gives to a key that it no longer reads


@dataclass(frozen=True)
class Named:
    """A class or function, known by its name alone."""

    name: str


def is_default(value: Any, default: Any) -> bool:
    """Return whether a value is the default that a table gives."""
    if isinstance(default, Named):
        return getattr(value, "__name__", None) == default.name
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, Mapping) and isinstance(default, Mapping):
        same_keys = value.keys() == default.keys()
        return same_keys and all(is_default(value[key], default[key]) for key in value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return isinstance(default, Sequence) and list(value) == list(default)
    try:
        return bool(value == default)
    except ValueError:  # an array
        return False


def each(default: Any, keys: str) -> dict[str, Any]:
    """Make a table in which all keys, separated by blanks, have one default."""
    return dict.fromkeys(keys.split(), default)
