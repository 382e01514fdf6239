"""Values written as text: one grammar for the command line, and for words in files.

A value is TOML. Also valid are a bare word, which is a string; a JSON object; `1M` and `10k` for
whole numbers; `linear:1e-3:0` for a schedule; `x=red,o=blue` for a table; and `none` for None.
"""

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_origin

from jaxmarl_ppo.config.annotations import is_optional, plain_type

# What stands for None in a file whose format has no such value.
NONE = "none"
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_FACTORS = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_WORDS = {"True": True, "False": False, "None": None}
MAX_LENGTH = 10_000  # of a number or a table, in letters


def read_text(text: str, annotation: Any) -> Any:
    """Read a value as typed for a field.

    Args:
        text: what was typed.
        annotation: of the field, which decides whether a word is a string in any case.

    Raises:
        ValueError: If it begins as a list or a table, and is neither.
    """
    if text in (NONE, "None") and is_optional(annotation):
        return None
    plain = plain_type(annotation)
    if plain in (str, Path) or get_origin(plain) is Literal:
        return text
    return read_value(text)


def read_value(text: str) -> Any:
    """Read a value as typed where nothing tells its type.

    Raises:
        ValueError: If it begins as a list or a table, and is neither.
    """
    if text in _WORDS:
        return _WORDS[text]
    begins = text.lstrip()[:1]
    if len(text) > MAX_LENGTH and begins in ("[", "{"):
        raise ValueError(f"a list or a table of {len(text):,} letters; valid: {MAX_LENGTH:,}")
    if not text or len(text) > MAX_LENGTH:
        return text
    if _NUMBER.fullmatch(text):
        return _read_number(text)
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return _read_json(text) if begins in ("[", "{") else text
    value = parsed.pop("value")
    return value if not parsed and _is_plain(value) else text


def _read_number(text: str) -> int | float | str:
    try:
        return int(text)
    except ValueError:  # also of a number with too many digits
        return float(text)


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=table_of_pairs)
    except json.JSONDecodeError as error:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise ValueError(f"{shown!r} is neither TOML nor JSON: {error}") from None
    except RecursionError:
        raise ValueError("a list or a table is nested too deeply") from None


def table_of_pairs(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make a table, in which no key may be there twice.

    Raises:
        ValueError: If one is.
    """
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"{key!r} is there twice in one table")
        table[key] = value
    return table


def _is_plain(value: Any) -> bool:
    """Return whether a value is of the types that JSON has too."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def read_int(value: Any) -> Any:
    """Read a whole number, also 5e6, `5M` and `10k`; return anything else unchanged."""
    factor = 1
    if isinstance(value, str) and value[-1:] in _FACTORS and _NUMBER.fullmatch(value[:-1]):
        value, factor = _read_number(value[:-1]), _FACTORS[value[-1]]
        value = round(value * factor, 6)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_linear(value: Any) -> tuple[float, float] | None:
    """Read the start and the end of `linear:START:END`; return None for anything else."""
    if not isinstance(value, str) or not value.startswith("linear:"):
        return None
    ends = value.removeprefix("linear:").split(":")
    if len(ends) != 2 or not all(map(_NUMBER.fullmatch, ends)):
        return None
    return float(ends[0]), float(ends[1])


def read_pairs(text: str, name: str) -> dict[str, str]:
    """Read a table such as `x=red,o=blue`.

    Raises:
        ValueError: For a key that is there twice; the message begins with `name`.
    """
    pairs = [pair.partition("=") for pair in text.split(",")]
    try:
        return table_of_pairs((key.strip(), value.strip()) for key, _, value in pairs)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_assignment(text: str, name: str) -> tuple[str, Any]:
    """Read KEY=VALUE.

    Raises:
        ValueError: If it is something else; the message begins with `name`.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{name} takes KEY=VALUE, got {text!r}")
    return key, read_value(value)
