"""Files of TOML, YAML and JSON as tables. Reading one executes nothing."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.text import table_of_pairs
from jaxmarl_ppo.machine.files import read_at_most

# What a file may have at most. Each of YAML's values takes some hundred bytes while it is read, and
# an alias counts with all that it stands for.
MAX_BYTES, MAX_YAML_VALUES, MAX_DEPTH = 4_000_000, 100_000, 100
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_INFINITE = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")
_INT = re.compile(r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")


class _Loader(yaml.SafeLoader):
    """Reads YAML by the core schema of version 1.2, where `off` is a word and `1e-3` a number."""

    # The inherited rules are those of version 1.1.
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_values = 0
        self._sizes: dict[str, int] = {}  # of what anchors name, in values

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a value, unless there are more of them than a file may have."""
        event = self.peek_event()
        before = self._num_values
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._sizes:
                raise _error(f"alias {event.anchor!r} is part of the value it stands for", event)
            self._num_values += self._sizes[event.anchor]
        else:
            self._num_values += 1
        if self._num_values > MAX_YAML_VALUES:
            raise _error(f"more than {MAX_YAML_VALUES:,} values, aliases written out", event)
        if getattr(event, "anchor", None) is not None:
            self._sizes[event.anchor] = self._num_values - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a table, in which no key may be there twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _error(f"{key.value!r} is there twice", key)
                seen.add(key.value)
        return super().construct_mapping(node, deep=True)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Read a whole number; `017` is seventeen and `0o17` fifteen."""
        text = node.value
        if not _INT.match(text):
            raise ValueError(f"{text!r} is no whole number of YAML 1.2")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _error(problem: str, place: Any) -> yaml.MarkedYAMLError:
    """Make the error for an event or a node."""
    return yaml.MarkedYAMLError(None, None, problem, place.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)

for _tag, _pattern, _first in (
    ("null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("float", _INFINITE, list("-+.")),
    ("merge", re.compile(r"<<$"), ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)


def is_run_file(name: str | None) -> bool:
    """Return whether a name's ending is that of a file that describes a run."""
    return name is not None and Path(name).suffix.lower() in _PARSERS


def parse_file(path: Path) -> dict[str, Any]:
    """Read a table from a file whose name ends in .toml, .yaml, .yml or .json.

    Raises:
        ValueError: If there is no such file, or it cannot be read; the message names line and
            column.
    """
    if not is_run_file(str(path)):
        raise ValueError(f"{str(path)!r} must end in one of {', '.join(_PARSERS)}")
    try:
        content = read_at_most(path, MAX_BYTES)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    try:
        data = _PARSERS[path.suffix.lower()](_decode(content))
    except _UnreadableError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
    except RecursionError:
        raise ValueError(f"{str(path)!r} cannot be read: it is nested too deeply") from None
    check_depth(data, f"{str(path)!r} cannot be read: it")
    if not isinstance(data, dict):
        raise ValueError(f"{str(path)!r} must hold a table, got {show(data)}")
    return data


def check_depth(data: Any, what: str) -> None:
    """Reject tables and lists that are nested too deeply to handle.

    Raises:
        ValueError: If there are more than `MAX_DEPTH`; the message begins with `what`.
    """
    level, depth = [data], 1
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"{what} is nested too deeply, by more than {MAX_DEPTH} levels")
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, dict | list)
        ]
        depth += 1


class _UnreadableError(Exception):
    """Says what is wrong with a text, and where."""


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", errors="replace")
        raise _UnreadableError(f"it is not UTF-8 {_place(before)}") from error


def _place(before: str) -> str:
    """Name the line and the column that a text ends at."""
    return f"(at line {before.count(chr(10)) + 1}, column {len(before.rpartition(chr(10))[2]) + 1})"


def _parse_toml(text: str) -> Any:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except ValueError as error:
        message = str(error).replace("(at end of document)", _place(text))
        raise _UnreadableError(_one_line(message)) from error


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=table_of_pairs)
    except json.JSONDecodeError as error:
        raise _UnreadableError(
            f"{error.msg} (at line {error.lineno}, column {error.colno})"
        ) from error
    except ValueError as error:
        raise _UnreadableError(_one_line(str(error))) from error


def _parse_yaml(text: str) -> Any:
    loader = None
    try:
        loader = _Loader(text)
        loader.deep_construct = True  # so that what contains itself is rejected
        data = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise _UnreadableError(_one_line(f"{error.problem or error.context}{where}")) from error
    except yaml.reader.ReaderError as error:
        raise _UnreadableError(f"{error.reason} {_place(text[: error.position])}") from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        # A value whose type differs from its tag.
        mark = loader.get_mark() if loader is not None else None
        where = f" (before line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise _UnreadableError(
            _one_line(f"a value does not fit its tag: {error}{where}")
        ) from error
    finally:
        if loader is not None:
            loader.dispose()
    return {} if data is None else data


def _one_line(message: str) -> str:
    return " ".join(message.split())


# By the endings of names.
_PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": _parse_toml,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".json": _parse_json,
}
