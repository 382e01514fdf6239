"""Paths to values of a configuration, such as `default_ppo.gamma`, and their short names.

Files, the command line, searches and population-based training all name values by these paths, and
read and change them here.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.keys import key_path, table_of
from jaxmarl_ppo.config.networks import NETWORK_FIELDS
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig

Path = tuple[str, ...]
_Tree = TypeVar("_Tree")
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^."]+')

# Short names at the beginning of a path, and what they stand for.
ALIASES: dict[str, Path] = {
    "ppo": ("default_ppo",),
    "policy": ("default_policy",),
    "env_kwargs": ("env", "kwargs"),
    "env_params": ("env", "params"),
    **{field.name: ("default_ppo", field.name) for field in dataclasses.fields(PPOConfig)},
    **{
        field.name: ("default_policy", field.name)
        for field in dataclasses.fields(PolicySpec)
        if field.name != "ppo"
    },
    **{name: ("default_policy", "network", name) for name in NETWORK_FIELDS},
}


def split_path(path: str) -> Path:
    """Split a path into its parts; a part in quotation marks may hold dots."""
    parts = _PART.findall(path)
    if ".".join(parts) != path:
        raise ValueError(f"{show(path)} is no path; write it as default_ppo.gamma")
    return tuple(json.loads(part) if part.startswith('"') else part for part in parts)


def full_path(path: str) -> Path:
    """Split a path into its parts, with what its first part stands for."""
    return without_alias(split_path(path))


def without_alias(parts: Path) -> Path:
    """Replace the first part of a path by what it stands for."""
    return (*ALIASES.get(parts[0], parts[:1]), *parts[1:])


def join_path(parts: Path) -> str:
    """Write a path, such as `policies."a.b".ppo.gamma`."""
    path = ""
    for part in parts:
        path = key_path(path, part)
    return path


def value_at(tree: Any, parts: Path) -> Any:
    """Return the value at a path in a configuration or a table.

    Raises:
        KeyError, AttributeError: If there is none.
    """
    for part in parts:
        tree = tree[part] if isinstance(tree, Mapping) else getattr(tree, part)
    return tree


def put(tree: _Tree, parts: Path, value: Any) -> _Tree:
    """Copy a configuration or a table, with another value at a path.

    A table that is not there is made; a network that is a word becomes a table.

    Raises:
        ValueError: For a value that the configuration cannot have.
    """
    head, rest = parts[0], parts[1:]
    if isinstance(tree, Mapping):
        if rest:
            inner = tree.get(head, {})
            if head == "network" and isinstance(inner, str):
                inner = {"kind": inner}
            if not isinstance(inner, Mapping) and not dataclasses.is_dataclass(inner):
                raise ValueError(f"{head} is given as {show(inner)} and as a table; drop one")
            value = put(inner, rest, value)
        return {**tree, head: value}  # type: ignore[return-value]
    value = put(getattr(tree, head), rest, value) if rest else value
    return dataclasses.replace(tree, **{head: value})  # type: ignore[type-var]


def with_values(config: _Tree, values: Mapping[str, Any]) -> _Tree:
    """Copy a configuration or a table, with other values by path.

    Raises:
        ValueError: For a value that the configuration cannot have.
    """
    for path, value in values.items():
        config = put(config, full_path(path), value)
    return config


def leaves(
    table: Any, where: str, is_leaf: Callable[[Any], bool], path: str = ""
) -> dict[str, Any]:
    """List what stands in a table by path, whose keys are paths or tables of further keys.

    Args:
        table: with short or full names.
        where: it stands, for messages.
        is_leaf: whether a value is listed as it is.
        path: of the table, inside an outer one.

    Raises:
        ValueError: If it is no table, or a path is there twice.
    """
    found: dict[str, Any] = {}
    for key, value in table_of(table, f"{where}.{path}" if path else where).items():
        # In quotation marks TOML leaves a whole path to us.
        place = f"{path}.{join_path(split_path(key))}" if path else join_path(full_path(key))
        inner = {place: value} if is_leaf(value) else leaves(value, where, is_leaf, place)
        for twice in found.keys() & inner.keys():
            raise ValueError(f"{where} has {twice} twice")
        found |= inner
    return found


def expand(table: Mapping[str, Any]) -> dict[str, Any]:
    """Write a table of a file with full names, whose keys may be short ones.

    Raises:
        ValueError: For a value that is given twice, under a short and a full name.
    """
    result: dict[str, Any] = {}
    for key, value in table.items():
        *outer, last = without_alias((key,))
        addition = {last: value}
        for part in reversed(outer):
            addition = {part: addition}
        result = _add(result, addition)
    return result


def _add(table: Any, addition: Any, where: str = "") -> Any:
    """Merge two tables, in which no value may be there twice."""
    if where.rpartition(".")[2] == "network":
        table, addition = (
            {"kind": each} if isinstance(each, str) else each for each in (table, addition)
        )
    if not (isinstance(table, Mapping) and isinstance(addition, Mapping)):
        raise ValueError(f"{where} is given twice, as {show(table)} and as {show(addition)}")
    merged = dict(table)
    for key, value in addition.items():
        is_new = key not in merged
        merged[key] = value if is_new else _add(merged[key], value, key_path(where, key))
    return merged
