"""Search spaces read from tables: ranges and choices by their paths."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from jaxmarl_ppo.config.keys import reject_unknown, table_of
from jaxmarl_ppo.config.paths import leaves
from jaxmarl_ppo.config.search import Choices, Dimension, Range
from jaxmarl_ppo.config.text import NONE

_RANGE_KEYS = [field.name for field in fields(Range)]


def read_dimensions(data: Any, where: str = "space") -> dict[str, Dimension]:
    """Read ranges and choices from a table, whose keys are paths or tables of further keys.

    Args:
        data: the table.
        where: it stands.

    Raises:
        ValueError: For an unknown key or a bad value.
    """
    found: dict[str, Dimension] = {}
    for path, value in leaves(data, where, _is_dimension).items():
        try:
            found[path] = _read_dimension(value)
        except ValueError as error:
            raise ValueError(f"{where}.{path}: {error}") from error
    return found


def _is_dimension(value: Any) -> bool:
    """Return whether this describes values, rather than a table of further paths."""
    return not (isinstance(value, Mapping) and any(isinstance(x, Mapping) for x in value.values()))


def _read_dimension(value: Any) -> Dimension:
    values = table_of(value, "it")
    if "choices" in values:
        reject_unknown(values, ["choices"], "it")
        return Choices(values["choices"])
    reject_unknown(values, [*_RANGE_KEYS, "choices"], "it")
    missing = [key for key in ("low", "high") if key not in values]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}; a range has both, or there are choices")
    if values.get("step") == NONE:
        del values["step"]
    return Range(**values)
