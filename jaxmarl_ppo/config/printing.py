"""Configurations as files to edit, with an explanation above every key."""

import dataclasses
import inspect
import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flax import linen as nn

from jaxmarl_ppo.config.annotations import attributes_of
from jaxmarl_ppo.config.as_json import (
    MAPPING_KINDS,
    POLICY_KINDS,
    to_plain,
    with_explicit_network,
)
from jaxmarl_ppo.config.keys import bare_key
from jaxmarl_ppo.config.networks import network_fields
from jaxmarl_ppo.config.run_file import EnvTable, RunFile, Settings
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.text import NONE
from jaxmarl_ppo.networks.actor_critic import NETWORKS

Format = Literal["toml", "yaml"]
_WIDTH = 100
_HEAD = {
    "toml": f"# A run for `jaxmarl-ppo train --config FILE`. None is written {json.dumps(NONE)}.",
    "yaml": "# A run for `jaxmarl-ppo train --config FILE`. None is written null.",
}
_POLICIES = tuple(POLICY_KINDS.values())


@dataclass(frozen=True)
class Entry:
    """Holds a key of a file, what it means, and its value or, if it is a table, its entries."""

    key: str
    comment: str
    value: Any
    table: list["Entry"] | None = None


def print_settings(settings: Settings, env_params: Any, form: Format) -> str:
    """Write a run as a file that `read_run_file` reads.

    Args:
        settings: of the run.
        env_params: the parameters of its environment, as `params_to_json` writes them.
        form: of the file.
    """
    about = attributes_of(RunFile)
    entries = []
    if settings.preset is not None:
        entries.append(Entry("preset", about["preset"], settings.preset))
    env = EnvTable(settings.env, settings.env_kwargs, env_params)
    entries.append(Entry("env", about["env"], None, _tree(env)))
    entries += _tree(with_explicit_network(settings.config))
    write = _toml if form == "toml" else _yaml
    return "\n".join([_HEAD[form], "", *write(entries)]) + "\n"


def _tree(value: Any, kinds: Mapping[str, type] = MAPPING_KINDS) -> list[Entry]:
    """List the entries of a dataclass or a network; `kinds` are those that a table names."""
    about = attributes_of(type(value))
    if isinstance(value, nn.Module):
        kinds, names = NETWORKS, network_fields(type(value))
    else:
        names = [f.name for f in dataclasses.fields(value)]
    kind = [kind for kind, cls in kinds.items() if type(value) is cls]
    entries = [Entry("kind", f"one of {', '.join(kinds)}", each) for each in kind]
    return entries + [_entry(name, about[name], getattr(value, name)) for name in names]


def _entry(key: str, comment: str, value: Any) -> Entry:
    """Write a field: as a table where it has fields of its own, or plain."""
    is_table = dataclasses.is_dataclass(value) and not isinstance(value, Linear)
    if is_table or isinstance(value, nn.Module):
        return Entry(key, comment, None, _tree(value))
    if isinstance(value, Mapping) and all(isinstance(spec, _POLICIES) for spec in value.values()):
        table = [
            Entry(name, _first_line(type(spec)), None, _tree(spec, POLICY_KINDS))
            for name, spec in value.items()
        ]
        return Entry(key, comment, None, table)
    return Entry(key, comment, to_plain(value))


def _first_line(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]


def _tables_last(entries: list[Entry]) -> list[Entry]:
    """Put single values before tables, as TOML needs it."""
    return sorted(entries, key=lambda entry: entry.table is not None)


def _comment(entry: Entry, indent: str = "") -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(entry.comment, _WIDTH, initial_indent=start, subsequent_indent=start)


def _toml(entries: list[Entry], path: str = "") -> Iterator[str]:
    for entry in _tables_last(entries):
        key = bare_key(entry.key)
        if entry.table is not None:
            yield ""
            yield from _comment(entry)
            yield f"[{path}{key}]"
            yield from _toml(entry.table, f"{path}{key}.")
        else:
            yield from _comment(entry)
            yield f"{key} = {_inline(entry.value, 'toml')}"


def _yaml(entries: list[Entry], indent: str = "") -> Iterator[str]:
    for entry in _tables_last(entries):
        key = bare_key(entry.key)
        if entry.table is not None:
            if not indent:
                yield ""
            yield from _comment(entry, indent)
            yield f"{indent}{key}:" + ("" if entry.table else " {}")
            yield from _yaml(entry.table, indent + "  ")
        else:
            yield from _comment(entry, indent)
            yield f"{indent}{key}: {_inline(entry.value, 'yaml')}"


def _inline(value: Any, form: Format) -> str:
    """Write a value within a line."""
    if value is None:
        return "null" if form == "yaml" else json.dumps(NONE)
    if isinstance(value, float):
        return _number(value, form)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(each, form) for each in value) + "]"
    if isinstance(value, Mapping):
        sign = ": " if form == "yaml" else " = "
        pairs = (f"{bare_key(k)}{sign}{_inline(v, form)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(value, ensure_ascii=False)


def _number(value: float, form: Format) -> str:
    if not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return text if form == "toml" else text.replace("inf", ".inf").replace("nan", ".nan")
    text = repr(value)
    # Other readers of YAML know a number by its dot.
    return text if "." in text else text.replace("e", ".0e")
