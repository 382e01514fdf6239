"""RLlib's configuration as one table by the names of 2.60, and reports on it."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.config.rllib.defaults import DEPRECATED, is_default
from jaxmarl_ppo.config.rllib.findings import Findings, show
from jaxmarl_ppo.config.rllib.former import (
    FORMER_MACHINERY,
    is_former_default,
    is_of_former_version,
    is_stock_class,
)
from jaxmarl_ppo.config.rllib.hints import hint
from jaxmarl_ppo.config.rllib.keys import (
    INTERNAL,
    LOST,
    MODEL,
    MODEL_LOST,
    MODEL_MACHINERY,
    RENAMED,
    TRANSLATED,
)
from jaxmarl_ppo.config.rllib.machinery import MACHINERY
from jaxmarl_ppo.networks.layers import ACTIVATIONS


def read_config(config: Any) -> dict[str, Any]:
    """Read all settings by RLlib 2.60's names, without those it no longer reads.

    Raises:
        ValueError: If it is not a configuration of PPO, or has a key under two names.
    """
    if isinstance(config, Mapping):
        return _of_any_version(config)
    if not callable(getattr(config, "to_dict", None)):
        raise ValueError(f"config must be RLlib's PPOConfig or a dict, got {show(config)}")
    algorithm = getattr(getattr(config, "algo_class", None), "__name__", "PPO")
    if algorithm != "PPO":
        raise ValueError(f"config is one of {algorithm}; only PPO's can be translated")
    values = _of_any_version(config.to_dict())
    # Settings of another version of RLlib at its own defaults need no report.
    defaults = _of_any_version(type(config)().to_dict())
    for key in [*values]:
        if key in defaults and key not in TRANSLATED and is_default(values[key], defaults[key]):
            del values[key]
    return values


def changes(config: Any) -> dict[str, Any]:
    """Read the settings of one policy: a dict, or a complete configuration with some changes."""
    values = read_config(config or {})
    if isinstance(config, Mapping) or not config:
        return values
    return {
        key: value
        for key, value in values.items()
        if key not in INTERNAL and not is_default(value, _all_defaults().get(key))
    }


def sort_out(values: Mapping[str, Any], findings: Findings) -> None:
    """Report every setting that is not translated and not at its default."""
    for key, value in values.items():
        if key in TRANSLATED or key in INTERNAL:
            continue
        if is_stock_class(key, value):
            continue
        if key in FORMER_MACHINERY and is_former_default(key, value):
            continue
        if key == "exploration_config" and entry(value, "type") == "StochasticSampling":
            continue
        if key not in _known_keys():
            findings.lose(key, value, _unknown(key, _known_keys()))
        elif key in LOST and not is_default(value, LOST[key]):
            findings.lose(key, value)
        elif key in FORMER_MACHINERY or (
            key in MACHINERY and not is_default(value, MACHINERY[key])
        ):
            advice = hint(key)
            findings.note(
                f"{key}={show(value)} has no counterpart" + (f": {advice}" if advice else "")
            )


def sort_out_model(
    given: Mapping[str, Any],
    model: Mapping[str, Any],
    where: str,
    new_stack: bool,
    findings: Findings,
) -> None:
    """Report settings of a network that are not translated, or that RLlib would ignore.

    Args:
        given: settings to tell of.
        model: those and all others of the network.
        where: prefix of names in messages.
        new_stack: whether RLlib's new API stack is on.
        findings: to report.
    """
    for key, value in given.items():
        name = f"{where}.{key}"
        if key in MODEL:
            if key == "fcnet_activation" and activation_name(value) is None:
                findings.lose(name, value, hint("model.fcnet_activation"))
            elif key in _OF_LSTM and not is_default(value, MODEL[key]):
                if not model["use_lstm"]:
                    findings.note(f"{name}={show(value)} has no effect without use_lstm")
                elif new_stack and key.startswith("lstm_use_prev"):
                    findings.note(f"{name} is honoured here; RLlib's new API stack ignores it")
            elif (
                key == "head_fcnet_activation"
                and not is_default(value, MODEL[key])
                and not model["head_fcnet_hiddens"]
            ):
                findings.note(f"{name}={show(value)} has no effect without head_fcnet_hiddens")
        elif key in MODEL_MACHINERY:
            if not is_default(value, MODEL_MACHINERY[key]):
                findings.note(f"{name}={show(value)} has no counterpart: features come as they are")
        elif key not in MODEL_LOST:
            findings.lose(name, value, _unknown(key, {*MODEL, *MODEL_LOST, *MODEL_MACHINERY}))
        elif not is_default(value, MODEL_LOST[key]):
            findings.lose(name, value, hint(f"model.{key}"))
    if model["head_fcnet_hiddens"] and not _OF_LAYERS.isdisjoint(given):
        of_heads = model["head_fcnet_activation"]
        ours = activation_name(model["fcnet_activation"] if model["fcnet_hiddens"] else of_heads)
        if ours is None or activation_name(of_heads) != ours:
            findings.lose(
                f"{where}.head_fcnet_activation",
                of_heads,
                "valid: the fcnet_activation, since all layers of a network have one",
            )


def activation_name(value: Any) -> str | None:
    """Find our name of an activation, if there is one."""
    name = value.lower() if isinstance(value, str) else None
    name = "silu" if name == "swish" else name
    return name if name in ACTIVATIONS else None


_OF_LAYERS = frozenset(
    ("fcnet_hiddens", "fcnet_activation", "head_fcnet_hiddens", "head_fcnet_activation")
)
_OF_LSTM = ("lstm_cell_size", "max_seq_len", "lstm_use_prev_action", "lstm_use_prev_reward")


def model_table(model: Any) -> dict[str, Any]:
    """Read RLlib's model settings, given as a dict, as `DefaultModelConfig`, or not at all."""
    if model is None or isinstance(model, Mapping):
        return dict(model or {})
    if not dataclasses.is_dataclass(model) or isinstance(model, type):
        raise ValueError(f"model must be a dict or a DefaultModelConfig, got {show(model)}")
    return dataclasses.asdict(model)


def entry(spec: Any, name: str, default: Any = None) -> Any:
    """Read a field of an object of RLlib's, or of the dict that stands for it."""
    if isinstance(spec, Mapping):
        return spec.get(name, default)
    return getattr(spec, name, default)


def module_specs(spec: Any) -> Any:
    """Read the modules of a `MultiRLModuleSpec`, whatever its version calls them."""
    return entry(spec, "rl_module_specs", entry(spec, "module_specs"))


def _of_any_version(config: Mapping[str, Any]) -> dict[str, Any]:
    values = _renamed(config)
    if not is_of_former_version(config):
        return values
    values.setdefault("enable_rl_module_and_learner", bool(values.get("_enable_new_api_stack")))
    return {key: value for key, value in values.items() if not is_former_default(key, value)}


def _renamed(config: Mapping[str, Any]) -> dict[str, Any]:
    multiagent = config.get("multiagent") or {}
    if not isinstance(multiagent, Mapping):
        raise ValueError(f"multiagent must be a table of settings, got {show(multiagent)}")
    if not all(isinstance(key, str) for key in (*config, *multiagent)):
        raise ValueError(f"keys of RLlib's configuration must be names, got {show(config)}")
    flat = {key: value for key, value in config.items() if key != "multiagent"}
    values: dict[str, Any] = {}
    source: dict[str, str] = {}
    for key, value in [*flat.items(), *multiagent.items()]:
        name = str(RENAMED.get(key, key))
        if key in RENAMED and is_default(value, DEPRECATED):
            continue
        if key == "mini_batch_size_per_learner" and value is None:
            continue  # its default, for what another key says
        if name in values and not is_default(value, values[name]):
            raise ValueError(
                f"{source[name]}={show(values[name])} and {key}={show(value)} are the same "
                "setting; give one of them"
            )
        if name == "policies" and isinstance(value, Mapping) and not value:
            continue  # Ray 1's default: one policy for all
        values[name], source[name] = value, key
    return values


def _all_defaults() -> dict[str, Any]:
    return {**TRANSLATED, **LOST, **MACHINERY}


def _known_keys() -> set[str]:
    return {*TRANSLATED, *LOST, *MACHINERY, *FORMER_MACHINERY, *INTERNAL}


def _unknown(key: str, known: set[str]) -> str:
    close = difflib.get_close_matches(key, [*known, *RENAMED], n=1)
    return "PPO of RLlib 2.60 has no such key" + (f"; did you mean {close[0]!r}?" if close else "")
