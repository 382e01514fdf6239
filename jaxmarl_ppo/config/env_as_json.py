"""Environments as JSON: their parameters, and how they were made."""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import serialization

from jaxmarl_ppo.config.checks import (
    check_bool,
    check_name,
    check_number,
    check_sequence,
    rejection,
    show,
    whole_number,
)
from jaxmarl_ppo.config.keys import key_path, reject_unknown, table_of
from jaxmarl_ppo.config.text import NONE
from jaxmarl_ppo.types import PyTree

_ARRAY = {"array", "dtype"}
_check_whole = whole_number(-(2**63), 2**63 - 1)


def params_to_json(env_params: PyTree) -> Any:
    """Write environment parameters as nested tables; arrays keep their element type."""

    def encode(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: encode(child) for key, child in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        array = np.asarray(value)
        return {"array": array.tolist(), "dtype": str(array.dtype)}

    return encode(serialization.to_state_dict(env_params))


def params_from_json(data: Any, default: PyTree, *, partial: bool = False) -> PyTree:
    """Make environment parameters from what was written of some.

    Args:
        data: what was written; a number or a list does for an array of the default's type.
        default: parameters of the same structure and types.
        partial: whether absent ones are those of `default`.

    Raises:
        ValueError: For parameters that `default` does not have, of another type, or missing ones.
    """
    try:
        state = _decode(data, params_to_json(default), "env.params", partial)
        return serialization.from_state_dict(default, state)
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"the environment parameters do not fit: {error}") from error


def check_env_record(record: Any) -> None:
    """Reject an invalid record of a run's environment.

    Raises:
        ValueError: If something is missing, or of another type.
    """
    fields = table_of(record, "env")
    missing = [key for key in ("name", "make", "params", "agents") if key not in fields]
    if missing:
        raise ValueError(f"env lacks {', '.join(missing)}")
    check_name("env.name", fields["name"])
    for agent in check_sequence("env.agents", fields["agents"], "a list of names"):
        check_name("an element of env.agents", agent)
    if fields["make"] is None:
        return
    made = table_of(fields["make"], "env.make")
    missing = [key for key in ("name", "kwargs") if key not in made]
    if missing:
        raise ValueError(f"env.make lacks {', '.join(missing)}")
    check_name("env.make.name", made["name"])
    table_of(made["kwargs"], "env.make.kwargs")


def _decode(data: Any, default: Any, where: str, partial: bool) -> Any:
    """Read a parameter, or a table of them, of the same type as `default`."""
    if not isinstance(default, Mapping):
        return _decode_leaf(data, default, where)
    if set(default) == _ARRAY:
        return _decode_array(data, default, where)
    values = table_of(data, where)
    reject_unknown(values, default, where)
    missing = [key for key in default if key not in values]
    if missing and not partial:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return {
        key: _decode(values.get(key, old), old, key_path(where, key), partial)
        for key, old in default.items()
    }


def _decode_leaf(value: Any, default: Any, where: str) -> Any:
    if isinstance(value, Mapping) and set(value) == _ARRAY:  # numbers may be given as arrays
        return _decode_array(value, {"array": default, "dtype": None}, where)
    if isinstance(default, bool):
        return check_bool(where, value)
    if isinstance(default, int):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return _check_whole(where, value)
    if isinstance(default, float):
        if isinstance(value, float) and math.isinf(value):
            return value
        return float(check_number(where, value))
    if default is None and value == NONE:
        return None
    if isinstance(default, str) and not isinstance(value, str):
        raise rejection(where, "a text", value)
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise rejection(where, "a number, a text or nothing", value)
    return value


def _decode_array(data: Any, default: Mapping[str, Any], where: str) -> Any:
    written = data if isinstance(data, Mapping) else {"array": data, "dtype": default["dtype"]}
    if set(written) != _ARRAY:
        raise rejection(where, "{'array': numbers, 'dtype': their type} or numbers", data)
    try:
        array = jnp.asarray(written["array"], check_name("dtype", written["dtype"]))
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{where} holds no numbers of one type, got {show(data)}") from None
    dims = np.ndim(default["array"])
    if array.ndim != dims:
        raise ValueError(f"{where} must have {dims} dimensions, got {show(data)}")
    return array
