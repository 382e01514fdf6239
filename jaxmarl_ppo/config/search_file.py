"""Files that describe a search: a run, and beside it the tables `space` and `search`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.as_json import read_field
from jaxmarl_ppo.config.checks import field_hints, field_rules
from jaxmarl_ppo.config.keys import key_path, refuse_unknown, table_of
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.config.read_space import read_dimensions
from jaxmarl_ppo.config.run_file import Settings, naming, read_table, settings_of
from jaxmarl_ppo.config.search import (
    Dimension,
    SearchConfig,
    Space,
    check_space,
)


@dataclass(frozen=True)
class SearchFile:
    """What a file says of a search.

    Attributes:
        settings: of every run.
        space: what differs between runs.
        search: how it is searched.
    """

    settings: Settings
    space: Space
    search: SearchConfig


def read_search_file(path: Path, env: str | None = None) -> SearchFile:
    """Read a file of a run that has the tables `space` and `search` beside.

    Args:
        path: the file.
        env: the environment that the command line names; None to leave that to the file.

    Raises:
        ValueError: it cannot be read, has an unknown key, or describes no search.
    """
    data = parse_file(path)
    with naming(path):
        if "space" not in data:
            raise ValueError("it has no table `space`, which says what is searched")
        space = read_space(data.pop("space"))
        search = read_search(data.pop("search", {}))
        file = read_table(data)
    return SearchFile(settings_of(env, None, file, path), space, search)


def read_search(data: Any) -> SearchConfig:
    """Read how a space is searched from a table.

    Raises:
        ValueError: an unknown key or a bad value.
    """
    values = table_of(data, "search")
    for key in ("objective", "evaluation"):
        if key in values:
            raise ValueError(f"search has no {key!r}: it is a table of the run, [{key}]")
    refuse_unknown(values, [f.name for f in fields(SearchConfig)], "search")
    hints, rules = field_hints(SearchConfig), field_rules(SearchConfig)
    for name, value in values.items():
        path = key_path("search", name)
        values[name] = rules[name](path, read_field(name, hints[name], value, path))
    try:
        return SearchConfig(**values)
    except ValueError as error:  # of fields that do not fit each other
        raise ValueError(f"search: {error}") from error


def read_space(data: Any) -> dict[str, Dimension]:
    """Read what is searched from a table, whose keys are paths or tables of further keys.

    Raises:
        ValueError: an unknown key, a bad value, or nothing at all.
    """
    found = read_dimensions(data)
    check_space(found)
    return found
