"""Keys of tables that users write: checks of unknown ones, and the path to a key in messages."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jaxmarl_ppo.config.checks import show

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def table_of(data: Any, where: str) -> dict[str, Any]:
    """Return a copy of a table, and reject other values."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table, got {show(data)}")
    for key in data:
        if not isinstance(key, str):
            raise ValueError(f"{where} has the key {show(key)}, which is not a word")
    return dict(data)


def reject_unknown(data: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Reject the first key that is none of the valid ones, and name the closest of them."""
    valid = list(valid)
    for key in data:
        if key not in valid:
            close = difflib.get_close_matches(key, valid, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"{where} has no {show(key)}; {hint}valid: {', '.join(valid)}")


def bare_key(key: str) -> str:
    """Write a key as TOML does: as it is, or in quotation marks."""
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def key_path(where: str, key: str) -> str:
    """Name the place of a key in a table, such as `policies.past.ppo.gamma`."""
    return f"{where}.{bare_key(key)}" if where else bare_key(key)
