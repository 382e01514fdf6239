"""Configurations as JSON and back, without loss and without executing anything.

A schedule is a number, `{"linear": [start, end]}` or `[[step, value], ...]`. A network is its name,
or `{"kind": "lstm", "hidden_sizes": [...], ...}`. A module of the user's own cannot be rebuilt from
a file: it is recorded as `{"kind": "custom", ...}` and has to be handed in again.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import serialization

from jaxmarl_ppo.config.mapping import Ensemble, MappingFunction, MappingSpec, Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.train import AnyPolicy, TrainConfig
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.networks.actor_critic import NETWORKS
from jaxmarl_ppo.types import PyTree

# Fields of a network that the environment decides, and those of every flax module.
_TOLD_FIELDS = ("num_outputs", "continuous", "actor_width", "parent", "name")
CALL_FOR_NETWORK = "pass it from Python: load_run(run_dir, network=MyModule(...))"
CALL_FOR_CONFIG = "pass the whole configuration from Python: load_run(run_dir, config=...)"
_ROOT = "the configuration"
_MAPPING_KINDS = {"ensemble": Ensemble, "matchups": Matchups}
_POLICY_KINDS = {"network": PolicySpec, "snapshots": Snapshots, "scripted": Scripted}
_KINDS = _MAPPING_KINDS | _POLICY_KINDS


def config_to_dict(config: TrainConfig) -> dict[str, Any]:
    """Write a configuration in terms of JSON."""
    result = _plain(config)
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
        ValueError: an unknown key, a value out of range, or something that cannot be rebuilt.
    """
    if network is not None:
        table = _table(data, _ROOT)
        default = _table(table.get("default_policy", {}), "default_policy")
        data = {**table, "default_policy": {**default, "network": network}}
    return _make(TrainConfig, data)


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


def mapping_to_json(mapping: MappingSpec) -> Any:
    """Write a mapping as a word, a table, or `{"kind": "ensemble", ...}` and the like."""
    return _plain(mapping)


def mapping_from_json(data: Any) -> MappingSpec:
    """Make a mapping from what `mapping_to_json` returned.

    Raises:
        ValueError: a function of the user's own, or an unknown field.
    """
    if isinstance(data, str):
        return data
    fields = _table(data, "mapping")
    kind = fields.get("kind")
    if kind == "custom" and "function" in fields:
        raise ValueError(
            f"the policy mapping of this run is a function of its own; {CALL_FOR_CONFIG}"
        )
    if not isinstance(kind, str) or kind not in _MAPPING_KINDS:
        return {agent: _hashable(choice) for agent, choice in fields.items()}
    del fields["kind"]
    return _make(_MAPPING_KINDS[kind], fields, f"mapping ({kind})")


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
    """Tell a network's kind: `"mlp"`, `"lstm"`, `"cnn"`, or `"custom"` for any other module."""
    if isinstance(network, str):
        return network
    kinds = {cls: kind for kind, cls in NETWORKS.items()}
    return kinds.get(type(network), "custom")  # type: ignore[arg-type]


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


def params_from_json(data: Any, default: PyTree) -> PyTree:
    """Make environment parameters, in the structure of `default`, from what was written of some.

    Raises:
        ValueError: parameters that `default` does not have, or that are missing.
    """

    def decode(value: Any) -> Any:
        if isinstance(value, Mapping) and set(value) == {"array", "dtype"}:
            return jnp.asarray(value["array"], value["dtype"])
        if isinstance(value, Mapping):
            return {key: decode(child) for key, child in value.items()}
        return value

    try:
        return serialization.from_state_dict(default, decode(data))
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"the recorded environment parameters do not fit: {error}") from error


def dump_json(data: Any, *, indent: int | None = None) -> str:
    """Write strict JSON, in which a number that is not finite becomes null."""
    return json.dumps(_finite(data), allow_nan=False, indent=indent)


def write_json(path: Path, data: Any) -> None:
    """Write strict JSON that people read, into a file that is absent or whole."""
    write_atomically(path, (dump_json(data, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises:
        ValueError: no such file, or not a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; is {path.parent} the folder of a run?") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a JSON object")
    return data


def _plain(value: Any) -> Any:
    """Write whatever a configuration holds in terms of JSON."""
    if isinstance(value, nn.Module):
        return _plain_network(value)
    if isinstance(value, Linear):
        return {"linear": [value.start, value.end]}
    if isinstance(value, MappingFunction):
        return {"kind": "custom", "function": repr(value.function)}
    if callable(value):
        return {"custom": repr(value)}
    if dataclasses.is_dataclass(value):
        kind = [("kind", kind) for kind, cls in _KINDS.items() if isinstance(value, cls)]
        fields = [(f.name, _plain(getattr(value, f.name))) for f in dataclasses.fields(value)]
        return dict(kind + fields)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic | jax.Array) else value


def _plain_network(network: nn.Module) -> dict[str, Any]:
    kind = network_kind(network)
    if kind == "custom":
        name = f"{type(network).__module__}:{type(network).__qualname__}"
        return {"kind": kind, "class": name, "repr": repr(network)}
    names = _network_fields(NETWORKS[kind])
    return {"kind": kind, **{name: _plain(getattr(network, name)) for name in names}}


def _make(cls: type, data: Any, where: str = "") -> Any:
    """Make a dataclass from what was written of one; `where` is empty for the outermost."""
    here = where or _ROOT
    values = _table(data, here)
    fields = dataclasses.fields(cls)
    _refuse_unknown(values, [f.name for f in fields], here)
    absent = dataclasses.MISSING
    needed = [f.name for f in fields if f.default is absent and f.default_factory is absent]
    missing = [name for name in needed if name not in values]
    if missing:
        raise ValueError(f"{here} lacks {', '.join(missing)}")
    for name, read in _READERS.items():
        if name in values:
            values[name] = read(values[name], f"{where}.{name}" if where else name)
    return cls(**values)


def _read_policies(data: Any, where: str) -> dict[str, AnyPolicy]:
    return {
        name: _read_policy(spec, f"{where}[{name!r}]") for name, spec in _table(data, where).items()
    }


def _read_policy(data: Any, where: str) -> AnyPolicy:
    fields = _table(data, where)
    kind = fields.pop("kind", None)
    if kind not in list(_POLICY_KINDS):
        raise ValueError(f"{where} has the kind {kind!r}; valid: {', '.join(_POLICY_KINDS)}")
    if kind == "scripted" and isinstance(fields.get("script"), Mapping):
        raise ValueError(f"{where} of this run is a function of its own; {CALL_FOR_CONFIG}")
    return _make(_POLICY_KINDS[kind], fields, where)


def _read_network(data: Any, where: str) -> str | nn.Module:
    if isinstance(data, str | nn.Module):
        return data
    fields = _table(data, "network")
    kind = fields.pop("kind", None)
    if kind == "custom":
        how = CALL_FOR_NETWORK if where == "default_policy.network" else CALL_FOR_CONFIG
        raise ValueError(
            f"the network of this run is a module of its own, {fields.get('class')}; {how}"
        )
    if kind not in list(NETWORKS):
        raise ValueError(f"unknown network kind {kind!r}; valid: {', '.join(NETWORKS)}, custom")
    _refuse_unknown(fields, _network_fields(NETWORKS[kind]), f"network {kind!r}")
    return NETWORKS[kind](**{name: _hashable(value) for name, value in fields.items()})


def _read_schedule(data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        return data
    _refuse_unknown(data, ("linear",), where)
    ends = data.get("linear")
    if not (isinstance(ends, list | tuple) and len(ends) == 2):
        raise ValueError(f"{where} must be {{'linear': [start, end]}}, got {dict(data)!r}")
    return Linear(*ends)


# By the name of a field that holds more than plain values: from what was written, and where.
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "mapping": lambda data, where: mapping_from_json(data),
    "policies": _read_policies,
    "default_policy": functools.partial(_make, PolicySpec),
    "network": _read_network,
    "default_ppo": functools.partial(_make, PPOConfig),
    "ppo": lambda data, where: None if data is None else _make(PPOConfig, data, where),
    "checkpoints": functools.partial(_make, CheckpointConfig),
    "evaluation": functools.partial(_make, EvaluationConfig),
    "objective": functools.partial(_make, ObjectiveConfig),
    "learning_rate": _read_schedule,
    "entropy_coef": _read_schedule,
}


def _table(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table, got {data!r}")
    return dict(data)


def _refuse_unknown(data: Iterable[str], valid: Iterable[str], where: str) -> None:
    valid = list(valid)
    unknown = [key for key in data if key not in valid]
    if unknown:
        raise ValueError(
            f"{where} has no {', '.join(map(repr, unknown))}; valid: {', '.join(valid)}"
        )


def _network_fields(cls: type[nn.Module]) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if f.name not in _TOLD_FIELDS]


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
