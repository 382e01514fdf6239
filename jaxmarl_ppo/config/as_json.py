"""Configurations as JSON and back, without loss and without executing anything.

A schedule is a number, `{"linear": [start, end]}` or `[[step, value], ...]`. A network is its name,
or `{"kind": "lstm", "hidden_sizes": [...], ...}`. A custom module cannot be rebuilt from
a file: it is recorded as `{"kind": "custom", ...}` and has to be handed in again.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
from flax import linen as nn

from jaxmarl_ppo.config.annotations import field_hints, plain_type, without_none
from jaxmarl_ppo.config.checks import (
    check_number,
    check_sequence,
    field_rules,
    plain,
    rejection,
    show,
)
from jaxmarl_ppo.config.curriculum import Stage
from jaxmarl_ppo.config.keys import key_path, reject_unknown, table_of
from jaxmarl_ppo.config.mapping import Ensemble, MappingFunction, MappingSpec, Matchups
from jaxmarl_ppo.config.networks import NETWORK_RULES, kinds_with, network_fields
from jaxmarl_ppo.config.parsing import check_depth
from jaxmarl_ppo.config.paths import leaves
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.read_space import read_dimensions
from jaxmarl_ppo.config.schedules import Linear, ScheduleRule
from jaxmarl_ppo.config.search import Choices
from jaxmarl_ppo.config.text import NONE, read_int, read_linear, read_pairs
from jaxmarl_ppo.config.train import AnyPolicy, TrainConfig
from jaxmarl_ppo.machine.files import read_at_most, write_atomically
from jaxmarl_ppo.networks.actor_critic import NETWORKS

# Of what a run records; the first had other names for keys.
FORMAT = 2
READABLE_FORMATS = (1, FORMAT)
MAX_RECORD_BYTES = 64_000_000
CALL_FOR_NETWORK = "pass it from Python: load_run(run_dir, network=MyModule(...))"
CALL_FOR_CONFIG = "pass the whole configuration from Python: load_run(run_dir, config=...)"
_ROOT = "the configuration"
MAPPING_KINDS = {"ensemble": Ensemble, "matchups": Matchups}
POLICY_KINDS = {"network": PolicySpec, "snapshots": Snapshots, "scripted": Scripted}
KINDS = MAPPING_KINDS | POLICY_KINDS


def config_to_dict(config: TrainConfig) -> dict[str, Any]:
    """Write a configuration in terms of JSON."""
    result = to_plain(config)
    del result["default_policy"]["kind"]  # which can be nothing else
    return result


def config_from_dict(data: Mapping[str, Any], network: nn.Module | None = None) -> TrainConfig:
    """Make a configuration from what `config_to_dict` returned.

    Args:
        data: what `config_to_dict` returned, or the same read from JSON. Absent keys take their
            defaults.
        network: stands in for the recorded network of `default_policy`; needed where that is
            the user's own module.

    Raises:
        ValueError: For an unknown key, a value out of range, or something that cannot be rebuilt.
    """
    if network is not None:
        table = table_of(data, _ROOT)
        default = table_of(table.get("default_policy", {}), "default_policy")
        data = {**table, "default_policy": {**default, "network": network}}
    return make(TrainConfig, data)


def from_format_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a configuration of format 1, whose keys had other names, into the present one's.

    Of a run whose starts were staggered, format 1 does not tell whether somebody asked for that.
    """
    renamed = {
        "policies": "mapping",
        "specs": "policies",
        "policy": "default_policy",
        "ppo": "default_ppo",
    }
    values = {renamed.get(key, key): value for key, value in data.items()}
    if values.get("stagger_starts") is True:
        values["stagger_starts"] = None
    return values


def mapping_from_json(data: Any) -> MappingSpec:
    """Make a mapping from a word, a table, or `{"kind": "ensemble", ...}` and the like.

    Raises:
        ValueError: For a function of the user's own, or an unknown field.
    """
    if isinstance(data, str):
        return read_pairs(data, "mapping") if "=" in data else data
    fields = table_of(data, "mapping")
    kind = fields.get("kind")
    if kind == "custom" and "function" in fields:
        raise ValueError(
            f"the policy mapping of this run is a function of its own; {CALL_FOR_CONFIG}"
        )
    if not isinstance(kind, str) or kind not in MAPPING_KINDS:
        return {agent: _hashable(choice) for agent, choice in fields.items()}
    del fields["kind"]
    return make(MAPPING_KINDS[kind], fields, "mapping")


def with_explicit_network(config: TrainConfig) -> TrainConfig:
    """Replace networks given by name with their modules.

    A record of the result keeps its meaning when defaults change.
    """

    def explicit(spec: Any) -> Any:
        if not isinstance(spec, PolicySpec) or not isinstance(spec.network, str):
            return spec
        return dataclasses.replace(spec, network=NETWORKS[spec.network]())

    specs = {name: explicit(spec) for name, spec in config.policies.items()}
    return dataclasses.replace(
        config, default_policy=explicit(config.default_policy), policies=specs
    )


def network_kind(network: str | nn.Module) -> str:
    """Return a network's kind, a key of `NETWORKS`, or `"custom"` for any other module."""
    if isinstance(network, str):
        return network
    kinds = {cls: kind for kind, cls in NETWORKS.items()}
    return kinds.get(type(network), "custom")  # type: ignore[arg-type]


def dump_json(data: Any, *, indent: int | None = None) -> str:
    """Write strict JSON, in which a number that is not finite becomes null."""
    return json.dumps(_finite(data), allow_nan=False, indent=indent)


def write_json(path: Path, data: Any, make_folder: bool = True) -> None:
    """Write readable strict JSON into a file, atomically."""
    write_atomically(path, (dump_json(data, indent=2) + "\n").encode(), make_folder)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises:
        ValueError: If there is no such file, or it is not a JSON object.
    """
    try:
        data = json.loads(read_at_most(path, MAX_RECORD_BYTES).decode())
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; is {path.parent} the folder of a run?") from None
    except RecursionError:
        raise ValueError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    check_depth(data, f"{path} cannot be read: it")
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a JSON object")
    return data


def to_plain(value: Any) -> Any:
    """Write whatever a configuration holds in terms of JSON."""
    if isinstance(value, nn.Module):
        return _plain_network(value)
    if isinstance(value, Linear):
        return {"linear": [value.start, value.end]}
    if isinstance(value, MappingFunction):
        return {"kind": "custom", "function": repr(value.function)}
    if isinstance(value, Choices):
        return {"choices": list(value.values)}
    if callable(value):
        return {"custom": repr(value)}
    if dataclasses.is_dataclass(value):
        kind = [("kind", kind) for kind, cls in KINDS.items() if isinstance(value, cls)]
        fields = [(f.name, to_plain(getattr(value, f.name))) for f in dataclasses.fields(value)]
        return dict(kind + fields)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic | jax.Array) else value


def _plain_network(network: nn.Module) -> dict[str, Any]:
    kind = network_kind(network)
    if kind == "custom":
        name = f"{type(network).__module__}:{type(network).__qualname__}"
        return {"kind": kind, "class": name, "repr": repr(network)}
    names = network_fields(NETWORKS[kind])
    return {"kind": kind, **{name: to_plain(getattr(network, name)) for name in names}}


def make(cls: type, data: Any, where: str = "") -> Any:
    """Make a dataclass from what was written of one; `where` is empty for the outermost."""
    here = where or _ROOT
    values = table_of(data, here)
    fields = dataclasses.fields(cls)
    reject_unknown(values, [f.name for f in fields], here)
    absent = dataclasses.MISSING
    needed = [f.name for f in fields if f.default is absent and f.default_factory is absent]
    missing = [name for name in needed if name not in values]
    if missing:
        raise ValueError(f"{here} lacks {', '.join(missing)}")
    hints, rules = field_hints(cls), field_rules(cls)
    for name, value in values.items():
        path = key_path(where, name)
        values[name] = rules[name](path, read_field(name, hints[name], value, path))
    try:
        return cls(**values)
    except ValueError as error:  # of fields that do not fit each other
        raise ValueError(f"{where}: {error}" if where else str(error)) from error


def read_field(name: str, hint: Any, value: Any, path: str) -> Any:
    """Read the value of a field, as its name or its annotation determines."""
    optional, hint = without_none(hint)
    if optional and (value is None or value == NONE):
        return None
    if dataclasses.is_dataclass(hint):
        return make(hint, value, path)  # type: ignore[arg-type]
    if name in _READERS:
        return _READERS[name](value, path)
    if any(isinstance(part, ScheduleRule) for part in get_args(hint)):
        return _read_schedule(value, path)
    return read_int(value) if plain_type(hint) is int else value


def _read_policy(data: Any, where: str) -> AnyPolicy:
    fields = table_of(data, where)
    if "kind" not in fields:
        raise ValueError(
            f"{where} lacks kind; valid: {', '.join(POLICY_KINDS)}. {where}.kind = 'network' makes "
            "a policy that shares no value with default_policy"
        )
    kind = fields.pop("kind")
    if kind not in list(POLICY_KINDS):
        raise ValueError(f"{where} has the kind {show(kind)}; valid: {', '.join(POLICY_KINDS)}")
    if kind == "scripted" and isinstance(fields.get("script"), Mapping):
        raise ValueError(f"{where} of this run is a function of its own; {CALL_FOR_CONFIG}")
    return make(POLICY_KINDS[kind], fields, where)


def _read_imitate(data: Any, where: str) -> Any:
    if isinstance(data, Mapping):
        raise ValueError(f"{where} of this run is a function of its own; {CALL_FOR_CONFIG}")
    return data


def _read_network(data: Any, where: str) -> str | nn.Module:
    if isinstance(data, str | nn.Module):
        return data
    fields = table_of(data, where)
    kind = fields.pop("kind", None)
    if kind == "custom":
        named = show(fields.get("class")).strip("'")
        how = CALL_FOR_NETWORK if where == "default_policy.network" else CALL_FOR_CONFIG
        raise ValueError(f"the network of this run is a module of its own, {named}; {how}")
    if kind not in list(NETWORKS):
        raise ValueError(
            f"{where}: unknown network kind {show(kind)}; valid: {', '.join(NETWORKS)}"
        )
    here, valid = f"{where} (network {kind!r})", network_fields(NETWORKS[kind])
    for name in fields:
        if name not in valid and kinds_with(name):
            kinds = ", ".join(kinds_with(name))
            raise ValueError(
                f"{here} has no {name!r}, which is of {kinds}; valid: {', '.join(valid)}"
            )
    reject_unknown(fields, valid, here)
    return NETWORKS[kind](
        **{
            name: NETWORK_RULES[name](f"{where}.{name}", _hashable(value))
            for name, value in fields.items()
        }
    )


def _read_schedule(data: Any, where: str) -> Any:
    """Read a schedule as files and the command line write it."""
    ends = read_linear(data)
    if ends is not None:
        return Linear(*ends)
    if isinstance(plain(data), str | bool) or data is None:
        raise rejection(where, "a number, linear:START:END or [[step, value], ...]", data)
    if not isinstance(data, Mapping):
        return data
    reject_unknown(table_of(data, where), ("linear",), where)
    ends = data.get("linear")
    if not (isinstance(ends, list | tuple) and len(ends) == 2):
        raise ValueError(f"{where} must be {{'linear': [start, end]}}, got {show(dict(data))}")
    for end in ends:
        check_number(f"an end of {where}", end)
    return Linear(*ends)


def _each(read: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    """Make a function that reads a table, each value by a function of itself and its place."""
    return lambda data, where: {
        name: read(value, key_path(where, name)) for name, value in table_of(data, where).items()
    }


def _read_curriculum(data: Any, where: str) -> tuple[Stage, ...]:
    stages = check_sequence(where, data, "a list of stages, each a table")
    return tuple(
        stage if isinstance(stage, Stage) else make(Stage, stage, f"{where}[{index}]")
        for index, stage in enumerate(stages)
    )


# By the name of a field that holds more than plain values: from what was written, and where.
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "mapping": lambda data, where: mapping_from_json(data),
    "policies": _each(_read_policy),
    "network": _read_network,
    "imitate": _read_imitate,
    "env_schedules": _each(_read_schedule),
    "space": read_dimensions,
    "curriculum": _read_curriculum,
    "values": lambda data, where: leaves(data, where, lambda x: not isinstance(x, Mapping)),
}


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
