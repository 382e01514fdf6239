"""Files that describe a search: a run, and beside it the tables `space` and `search`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.as_json import make
from jaxmarl_ppo.config.keys import table_of
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.config.paths import split_path
from jaxmarl_ppo.config.read_space import read_dimensions
from jaxmarl_ppo.config.run_file import Settings, naming, read_table, settings_of
from jaxmarl_ppo.config.schema import check_space
from jaxmarl_ppo.config.search import Dimension, SearchConfig, Space


@dataclass(frozen=True)
class SearchFile:
    """Contents of a search file.

    Attributes:
        settings: of every run.
        space: what differs between runs.
        search: how it is searched.
    """

    settings: Settings
    space: Space
    search: SearchConfig


def read_search_file(
    path: Path,
    env: str | None = None,
    changes: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> SearchFile:
    """Read a file of a run that has the tables `space` and `search` beside.

    Args:
        path: the file.
        env: the environment that the command line names; None to leave that to the file.
        changes: of the table `search`, which override the file's.
        options: of the run, likewise.

    Raises:
        ValueError: If it cannot be read, has an unknown key, describes no search, or searches what
            an option says.
    """
    data = parse_file(path)
    with naming(path):
        if "space" not in data:
            raise ValueError("it has no table `space`, which says what is searched")
        space = read_space(data.pop("space"))
        search = read_search({**table_of(data.pop("search", {}), "search"), **(changes or {})})
        file = read_table(data)
    for searched in space:
        if _says(options or {}, split_path(searched)):
            raise ValueError(
                f"the option for {searched} has no effect, since {path} searches it; drop the "
                "option, or take it out of space"
            )
    return SearchFile(settings_of(env, None, file, path, options), space, search)


def _says(table: Any, path: Sequence[str]) -> bool:
    """Return whether a table says something at a path or within it."""
    for key in path:
        if not isinstance(table, Mapping) or key not in table:
            return False
        table = table[key]
    return True


def read_search(data: Any) -> SearchConfig:
    """Read how a space is searched from a table.

    Raises:
        ValueError: For an unknown key or a bad value.
    """
    values = table_of(data, "search")
    for key in ("objective", "evaluation"):
        if key in values:
            raise ValueError(f"search has no {key!r}: it is a table of the run, [{key}]")
    return make(SearchConfig, values, "search")


def read_space(data: Any) -> dict[str, Dimension]:
    """Read what is searched from a table, whose keys are paths or tables of further keys.

    Raises:
        ValueError: For an unknown key, a bad value, or nothing at all.
    """
    return check_space(read_dimensions(data))
