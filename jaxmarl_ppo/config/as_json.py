"""Configurations as JSON and back, without loss and without executing anything.

A schedule is a number, `{"linear": [start, end]}` or `[[step, value], ...]`. A network is its name,
or `{"kind": "lstm", "hidden_sizes": [...], ...}`. A module of the user's own cannot be rebuilt from
a file: it is recorded as `{"kind": "custom", ...}` and has to be handed in again.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
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
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import NETWORKS
from jaxmarl_ppo.types import PyTree

# Fields of a network that the environment decides, and those of every flax module.
_TOLD_FIELDS = ("num_outputs", "continuous", "actor_width", "parent", "name")
_SCHEDULES = ("learning_rate", "entropy_coef")
CALL_FOR_NETWORK = "pass it from Python: load_run(run_dir, network=MyModule(...))"
CALL_FOR_CONFIG = "pass the whole configuration from Python: load_run(run_dir, config=...)"
_MAPPING_KINDS: dict[type, str] = {Ensemble: "ensemble", Matchups: "matchups"}


def config_to_dict(config: TrainConfig) -> dict[str, Any]:
    """Write a configuration in terms of JSON."""
    result = _fields(config)
    result["mapping"] = mapping_to_json(config.mapping)
    result["default_policy"] = _spec_to_dict(config.default_policy)
    result["default_ppo"] = _ppo_to_dict(config.default_ppo)
    result["policies"] = {name: _any_spec_to_dict(spec) for name, spec in config.policies.items()}
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
    values = _known(data, TrainConfig, "the configuration")
    if "mapping" in values:
        values["mapping"] = mapping_from_json(values["mapping"])
    if "default_policy" in values or network is not None:
        default = values.get("default_policy", {})
        values["default_policy"] = _spec_from_dict(default, "default_policy", network)
    if "default_ppo" in values:
        values["default_ppo"] = _ppo_from_dict(values["default_ppo"], "default_ppo")
    specs = _mapping(values.get("policies", {}), "policies")
    values["policies"] = {
        name: _any_spec_from_dict(spec, f"policies[{name!r}]") for name, spec in specs.items()
    }
    return TrainConfig(**values)


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
    if isinstance(mapping, str):
        return mapping
    if isinstance(mapping, Ensemble | Matchups):
        return {"kind": _MAPPING_KINDS[type(mapping)], **_fields(mapping)}
    if isinstance(mapping, MappingFunction):
        return {"kind": "custom", "function": repr(mapping.function)}
    return {agent: _plain(choice) for agent, choice in mapping.items()}


def mapping_from_json(data: Any) -> MappingSpec:
    """Make a mapping from what `mapping_to_json` returned.

    Raises:
        ValueError: a function of the user's own, or an unknown field.
    """
    if isinstance(data, str):
        return data
    fields = dict(_mapping(data, "mapping"))
    kinds = {kind: cls for cls, kind in _MAPPING_KINDS.items()}
    kind = fields.get("kind")
    if kind == "custom" and "function" in fields:
        raise ValueError(
            f"the policy mapping of this run is a function of its own; {CALL_FOR_CONFIG}"
        )
    if not isinstance(kind, str) or kind not in kinds:
        return {agent: _hashable(choice) for agent, choice in fields.items()}
    del fields["kind"]
    return kinds[kind](**_known(fields, kinds[kind], f"mapping ({kind})"))


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


def network_to_json(network: str | nn.Module) -> str | dict[str, Any]:
    """Write a network as its name, or as the kind and every size of a module."""
    if isinstance(network, str):
        return network
    kind = network_kind(network)
    if kind == "custom":
        cls = type(network)
        return {
            "kind": kind,
            "class": f"{cls.__module__}:{cls.__qualname__}",
            "repr": repr(network),
        }
    names = _network_fields(NETWORKS[kind])
    return {"kind": kind, **{name: _plain(getattr(network, name)) for name in names}}


def network_from_json(data: Any, how: str = CALL_FOR_NETWORK) -> str | nn.Module:
    """Make a network from what `network_to_json` returned.

    Args:
        data: what `network_to_json` returned.
        how: what a message tells to do about a module of the user's own.

    Raises:
        ValueError: an unknown kind or field, or a module of the user's own.
    """
    if isinstance(data, str):
        return data
    fields = dict(_mapping(data, "network"))
    kind = fields.pop("kind", None)
    if kind == "custom":
        raise ValueError(
            f"the network of this run is a module of its own, {fields.get('class')}; {how}"
        )
    if kind not in NETWORKS:
        raise ValueError(f"unknown network kind {kind!r}; valid: {', '.join(NETWORKS)}, custom")
    _refuse_unknown(fields, _network_fields(NETWORKS[kind]), f"network {kind!r}")
    return NETWORKS[kind](**{name: _hashable(value) for name, value in fields.items()})


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


def _fields(config: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def _any_spec_to_dict(spec: PolicySpec | Snapshots | Scripted) -> dict[str, Any]:
    if isinstance(spec, Snapshots):
        return {"kind": "snapshots", **_fields(spec)}
    if isinstance(spec, Scripted):
        script = spec.script if isinstance(spec.script, str) else {"custom": repr(spec.script)}
        return {"kind": "scripted", "script": script}
    return {"kind": "network", **_spec_to_dict(spec)}


def _any_spec_from_dict(data: Any, where: str) -> PolicySpec | Snapshots | Scripted:
    fields = dict(_mapping(data, where))
    kind = fields.pop("kind", None)
    if kind == "network":
        return _spec_from_dict(fields, where)
    if kind == "snapshots":
        return Snapshots(**_known(fields, Snapshots, where))
    if kind == "scripted":
        if isinstance(fields.get("script"), Mapping):
            raise ValueError(f"{where} of this run is a function of its own; {CALL_FOR_CONFIG}")
        return Scripted(**_known(fields, Scripted, where))
    raise ValueError(f"{where} has the kind {kind!r}; valid: network, snapshots, scripted")


def _spec_to_dict(spec: PolicySpec) -> dict[str, Any]:
    result = _fields(spec)
    result["network"] = network_to_json(spec.network)
    result["ppo"] = None if spec.ppo is None else _ppo_to_dict(spec.ppo)
    return result


def _spec_from_dict(data: Any, where: str, network: nn.Module | None = None) -> PolicySpec:
    values = _known(data, PolicySpec, where)
    if network is not None:
        values["network"] = network
    elif "network" in values:
        how = CALL_FOR_NETWORK if where == "default_policy" else CALL_FOR_CONFIG
        values["network"] = network_from_json(values["network"], how)
    if values.get("ppo") is not None:
        values["ppo"] = _ppo_from_dict(values["ppo"], f"{where}.ppo")
    return PolicySpec(**values)


def _ppo_to_dict(ppo: PPOConfig) -> dict[str, Any]:
    result = _fields(ppo)
    for name in _SCHEDULES:
        spec = getattr(ppo, name)
        if isinstance(spec, Linear):
            result[name] = {"linear": [spec.start, spec.end]}
    return result


def _ppo_from_dict(data: Any, where: str) -> PPOConfig:
    values = _known(data, PPOConfig, where)
    for name in _SCHEDULES:
        if isinstance(values.get(name), Mapping):
            values[name] = _linear(values[name], f"{where}.{name}")
    return PPOConfig(**values)


def _linear(data: Mapping[str, Any], where: str) -> Linear:
    _refuse_unknown(data, ("linear",), where)
    ends = data.get("linear")
    if not (isinstance(ends, list | tuple) and len(ends) == 2):
        raise ValueError(f"{where} must be {{'linear': [start, end]}}, got {dict(data)!r}")
    return Linear(*ends)


def _known(data: Any, cls: type, where: str) -> dict[str, Any]:
    values = dict(_mapping(data, where))
    fields = dataclasses.fields(cls)
    _refuse_unknown(values, [f.name for f in fields], where)
    absent = dataclasses.MISSING
    needed = [f.name for f in fields if f.default is absent and f.default_factory is absent]
    missing = [name for name in needed if name not in values]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return values


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table, got {data!r}")
    return data


def _refuse_unknown(data: Iterable[str], valid: Iterable[str], where: str) -> None:
    valid = list(valid)
    unknown = [key for key in data if key not in valid]
    if unknown:
        raise ValueError(
            f"{where} has no {', '.join(map(repr, unknown))}; valid: {', '.join(valid)}"
        )


def _network_fields(cls: type[nn.Module]) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if f.name not in _TOLD_FIELDS]


def _plain(value: Any) -> Any:
    """Write sequences as lists and numpy's numbers as Python's."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic | jax.Array) else value


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
