"""Parameters of an environment by their names, nested ones as `outer.inner`."""

from collections.abc import Iterator, Mapping
from typing import Any

from flax import serialization

from jaxmarl_ppo.types import PyTree


def parameters(env_params: PyTree) -> dict[str, Any]:
    """Return all parameters by name, without those that are None; nothing has none."""
    tables = serialization.to_state_dict(env_params)
    return dict(_leaves(tables)) if isinstance(tables, Mapping) else {}


def with_parameters(env_params: PyTree, values: Mapping[str, Any]) -> PyTree:
    """Copy parameters, with other values of some that there are."""
    if not values:
        return env_params
    tables = serialization.to_state_dict(env_params)
    for name, value in values.items():
        *outer, key = name.split(".")
        table = tables
        for each in outer:
            table = table[each]
        table[key] = value
    return serialization.from_state_dict(env_params, tables)


def _leaves(tables: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value
