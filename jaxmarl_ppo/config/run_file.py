"""Runs as files describe them, on top of the preset of the environment that they name."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmarl_envs.user_env_names import full_name
from jaxmarl_ppo.config.annotations import field_hints
from jaxmarl_ppo.config.as_json import (
    READABLE_FORMATS,
    config_from_dict,
    config_to_dict,
    from_format_1,
    network_kind,
    read_field,
    to_plain,
    with_explicit_network,
)
from jaxmarl_ppo.config.checks import check_name, field_rules, show
from jaxmarl_ppo.config.env_as_json import check_env_record
from jaxmarl_ppo.config.keys import reject_unknown, table_of
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.config.paths import expand
from jaxmarl_ppo.config.presets import follow, preset
from jaxmarl_ppo.config.train import TrainConfig

_RECORD_KEYS = {"format", "env", "config"}


@dataclass(frozen=True)
class EnvTable:
    """The environment, as a configuration file describes it.

    Attributes:
        name: name of the environment, unless the command line names one.
        kwargs: arguments of the environment, which replace the preset's in a file, and are added to
            them on the command line.
        params: values of the environment's parameters that differ from its defaults.
    """

    name: str | None = None
    kwargs: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFile:
    """Contents of a run's configuration file: environment, preset and fields of `TrainConfig`.

    Attributes:
        env: the environment: its name, or a table.
        preset: variant of the environment's preset whose values hold unless the file has others.
        values: of the fields of `TrainConfig`, as written.
        is_record: whether a run wrote it, so that it says everything and no preset is asked.
    """

    env: EnvTable = field(default_factory=EnvTable)
    preset: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    is_record: bool = False


@dataclass(frozen=True)
class Settings:
    """A run as its preset, its file and the command line's options have it.

    Attributes:
        env: name of the environment; None if nobody named one.
        preset: the variant of its preset.
        config: the configuration, with all networks written out.
        env_kwargs: what the environment is made with.
        env_params: what differs from its own parameters, as written; None for nothing.
        whole_params: whether `env_params` are all of them.
    """

    env: str | None
    preset: str | None
    config: TrainConfig
    env_kwargs: Mapping[str, Any]
    env_params: Any = None
    whole_params: bool = False


def read_run_file(path: Path) -> RunFile:
    """Read a run from a file: one written by hand, or the `config.json` of a run.

    Raises:
        ValueError: If it cannot be read, has an unknown key, or is damaged.
    """
    data = parse_file(path)
    with naming(path):
        return _read_record(data) if set(data) >= _RECORD_KEYS else read_table(data)


def read_table(data: Mapping[str, Any]) -> RunFile:
    """Read a run from a table in the form of a handwritten file.

    Raises:
        ValueError: If it has an unknown key.
    """
    known = [f.name for f in dataclasses.fields(TrainConfig)]
    values = expand(table_of(data, "the file"))
    reject_unknown(values, ["env", "preset", *known], "the file")
    written, variant = values.pop("env", {}), values.pop("preset", None)
    if variant is not None:
        check_name("preset", variant)
    env = table_of({"name": written} if isinstance(written, str) else written, "env")
    reject_unknown(env, [f.name for f in dataclasses.fields(EnvTable)], "env")
    if "name" in env:
        check_name("env.name", env["name"])
    for key in ("kwargs", "params"):
        if key in env:
            env[key] = table_of(env[key], f"env.{key}")
    return RunFile(EnvTable(**env), variant, values)


def _read_record(data: Mapping[str, Any]) -> RunFile:
    if data["format"] not in READABLE_FORMATS:
        valid = ", ".join(map(str, READABLE_FORMATS))
        raise ValueError(f"it has the unknown format {show(data['format'])}; valid: {valid}")
    check_env_record(data["env"])
    made = data["env"]["make"] or {"name": None, "kwargs": {}}
    values = table_of(data["config"], "config")
    if data["format"] == 1:
        values = from_format_1(values)
    env = EnvTable(made["name"], made["kwargs"], data["env"]["params"])
    return RunFile(env, None, values, is_record=True)


def settings(
    env: str | None,
    variant: str | None,
    path: Path | None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Read a run: its preset, overridden by a file, and this by options.

    Args:
        env: the environment that the command line names; None to leave that to the file.
        variant: the preset's variant that the command line names; None likewise.
        path: the file; None for the preset alone.
        options: a table as in a file; its `env.kwargs` go beside those that are there.

    Raises:
        ValueError: If the file cannot be read, something in it has no effect, or a key is unknown
            or a value bad.
    """
    file = RunFile() if path is None else read_run_file(path)
    return settings_of(env, variant, file, path, options)


def _with_options(run: Settings, options: Mapping[str, Any] | None) -> Settings:
    if not options:
        return run
    about_env = options.get("env", {})
    rest = {name: value for name, value in options.items() if name != "env"}
    return dataclasses.replace(
        run,
        config=override(run.config, rest),
        env_kwargs={**run.env_kwargs, **about_env.get("kwargs", {})},
        env_params=_merge(run.env_params or {}, about_env.get("params", {})) or None,
    )


def settings_of(
    env: str | None,
    variant: str | None,
    file: RunFile,
    path: Path | None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Resolve the settings of a run as `settings` does, from a file that was read already.

    Raises:
        ValueError: As there.
    """
    name = env or file.env.name
    if not _are_one(name, file.env.name) and (file.env.params or file.env.kwargs):
        raise ValueError(
            f"{path}: kwargs and params of env have no effect on environment {name!r}, since they "
            f"are of {file.env.name!r}; drop them"
        )
    if file.is_record:
        if variant is not None:
            raise ValueError(f"preset {variant!r} has no effect on the record of a run; drop it")
        with naming(path):
            config = with_explicit_network(config_from_dict(file.values))
        made = file.env.kwargs or {}
        return _with_options(Settings(name, None, config, made, file.env.params, True), options)
    variant = variant or file.preset
    chosen = preset(name or "", variant if name else None)
    config = _read_values(chosen.config, file.values, path, options)
    kwargs = chosen.env_kwargs if file.env.kwargs is None else file.env.kwargs
    run = Settings(name, variant, config, dict(kwargs), file.env.params or None)
    return _with_options(run, options)


def _read_values(
    base: TrainConfig,
    values: Mapping[str, Any],
    path: Path | None,
    options: Mapping[str, Any] | None,
) -> TrainConfig:
    """Override a configuration by a file's values, which may ask for what only an option says."""
    try:
        with naming(path):
            return override(base, values)
    except ValueError:
        of_run = {name: value for name, value in (options or {}).items() if name != "env"}
        if of_run:
            with contextlib.suppress(ValueError):
                return override(base, _merge(values, of_run))
        raise


def _are_one(first: str | None, second: str | None) -> bool:
    """Return whether two names mean one environment; files may be named from other folders."""
    names = [full_name(name) if name is not None else None for name in (first, second)]
    return names[0] == names[1]


def override(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Change a table of a configuration, key by key.

    A network of another kind brings its own sizes, and a mapping of its own other policies. The
    preset's single policies take over what changes in the defaults of all.

    Raises:
        ValueError: For an unknown key or a bad value.
    """
    base = with_explicit_network(base)
    given = dict(values)
    specs = given.pop("policies", {})
    written = config_to_dict(dataclasses.replace(base, policies={}))
    merged = _merge(written, given)
    old_kind = network_kind(base.default_policy.network)
    if _network_kind(merged) != old_kind and "bptt_length" not in _table(given, "default_ppo"):
        _table(merged, "default_ppo")["bptt_length"] = None  # chosen for the other network
    config = with_explicit_network(config_from_dict(merged))
    known = {}
    if config.mapping == base.mapping:
        known = {key: follow(spec, base, config) for key, spec in base.policies.items()}
    written = config_to_dict(dataclasses.replace(config, policies=known))["policies"]
    merged = {**config_to_dict(config), "policies": _merge(written, specs)}
    return with_explicit_network(config_from_dict(merged))


def override_fields(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Change single fields of a configuration, even if a file cannot express the others.

    Raises:
        ValueError: For an unknown key or a bad value.
    """
    hints, rules = field_hints(TrainConfig), field_rules(TrainConfig)
    given = {}
    for name, value in values.items():
        merged = _merge(to_plain(getattr(base, name)), value, name)
        given[name] = rules[name](name, read_field(name, hints[name], merged, name))
    return dataclasses.replace(base, **given)


def _merge(base: Any, new: Any, key: str = "") -> Any:
    """Put new values in the place of old ones; tables of the same kind are merged key by key."""
    if key == "network" and isinstance(new, str):
        new = {"kind": new}
    if key == "mapping" or not (isinstance(base, Mapping) and isinstance(new, Mapping)):
        return new
    if new.get("kind", base.get("kind")) != base.get("kind"):
        return new
    merged = {name: _merge(base.get(name), value, name) for name, value in new.items()}
    return {**base, **merged}


def _network_kind(merged: Mapping[str, Any]) -> Any:
    network = _table(merged, "default_policy").get("network")
    return network.get("kind") if isinstance(network, Mapping) else network


def _table(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


@contextlib.contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Add the file's name to errors about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if path else str(error)) from error
