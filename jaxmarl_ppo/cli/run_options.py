"""Options for every place of a run's configuration, made from its schema.

`--ppo.gamma 0.9` says what `default_ppo.gamma = 0.9` says in a file: options are put into a table
as a file has it, and read by the same code.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxmarl_ppo.cli.arguments import Option
from jaxmarl_ppo.config.as_json import network_kind
from jaxmarl_ppo.config.paths import ALIASES, Path, put, split_path, value_at, without_alias
from jaxmarl_ppo.config.run_file import Settings
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.schema import Place, find_place, places

# What help shows first, by heading.
SHOWN: dict[str, Sequence[str]] = {
    "run": (
        *("total_env_steps", "num_envs", "num_steps", "seed", "num_seeds", "num_devices"),
        *("max_minutes", "until", "env_kwargs"),
    ),
    "policies": ("mapping", "load", "network", "hidden_sizes", "lstm_size"),
    "PPO": (
        *("ppo.learning_rate", "ppo.num_epochs", "ppo.num_minibatches", "ppo.gamma"),
        *("ppo.gae_lambda", "ppo.clip_eps", "ppo.entropy_coef"),
    ),
    "evaluation and checkpoints": (
        *("evaluation.every_env_steps", "objective.measure", "checkpoints.every_minutes"),
    ),
}
_HEADINGS = {
    "env": "environment",
    "env_schedules": "environment",
    "default_ppo": "PPO",
    "default_policy": "policies",
    "policies": "policies",
    "mapping": "policies",
    "checkpoints": "checkpoints",
    "evaluation": "evaluation",
    "objective": "objective",
    "pbt": "population-based training",
}
# Places that are said in another way.
_NETWORK = ("default_policy", "network")
_OTHERWISE = (("env", "name"), ("preset",), (*_NETWORK, "kind"))


def flag_of(path: Path) -> str:
    """Write a place as an option, by its shortest name; of PPO's, with the prefix `ppo.`."""
    names = [path]
    for alias, full in ALIASES.items():
        is_inside = path[: len(full)] == full
        if is_inside and not (full[0] == "default_ppo" and len(full) > 1):
            names.append((alias, *path[len(full) :]))
    shortest = min(names, key=lambda parts: (len(parts), sum(map(len, parts))))
    return "--" + ".".join(shortest).replace("_", "-")


def run_options(
    settings: Settings | None = None, names: Iterable[str] | None = None
) -> list[Option]:
    """List the options for places of a run's configuration.

    Args:
        settings: a run, whose values are shown as defaults; None to show none.
        names: short or full paths of the places; None for all places.
    """
    if names is None:
        found = [place for place in places() if place.path not in _OTHERWISE]
    else:
        found = [find_place(split_path(name)) for name in names]
    found = [_kind_of(place) if place.path == _NETWORK else place for place in found]
    return [
        Option(
            flag_of(place.path),
            place.path,
            place.annotation,
            place.about,
            _default(settings, place),
            _heading(place),
        )
        for place in found
    ]


def _kind_of(network: Place) -> Place:
    """Describe the option `--network`, which only sets the kind."""
    return dataclasses.replace(find_place((*network.path, "kind")), path=network.path)


def shown_options(
    shown: Mapping[str, Sequence[str]], settings: Settings | None = None
) -> list[Option]:
    """List the options that help shows first, under their headings."""
    return [
        dataclasses.replace(option, group=heading)
        for heading, names in shown.items()
        for option in run_options(settings, names)
    ]


def _heading(place: Place) -> str:
    if place.path[:2] == _NETWORK:
        return "network"
    return _HEADINGS.get(place.path[0], "run")


def _default(settings: Settings | None, place: Place) -> Any:
    """Return the value that a run has at a place; None where it has none to show."""
    if settings is None or place.path[0] == "env":
        return None
    try:
        value = value_at(settings.config, place.path)
    except (AttributeError, KeyError):
        return None
    if place.path == _NETWORK:
        return network_kind(value)
    if isinstance(value, Linear):
        return f"linear:{value.start:g}:{value.end:g}"
    is_shown = isinstance(value, bool | int | float | str | tuple | Mapping)
    return value if is_shown and value not in ((), {}) else None


def find_option(
    options: Sequence[Option], *, closed: bool = False
) -> Callable[[str], Option | None]:
    """Make a function that finds options by full paths and short names alike.

    Args:
        options: of a command.
        closed: whether it has these alone, and none for other places.
    """
    table = {option.key: option for option in options}
    roots = {option.key[0] for option in options if isinstance(option.key, tuple)}

    def find(name: str) -> Option | None:
        with contextlib.suppress(ValueError):
            parts = split_path(name.lstrip("-"))
            path = without_alias((parts[0].replace("-", "_"), *parts[1:]))
            if path[0] not in roots:
                return None
            place = find_place(path, dashes=True)
            if place.path in table or closed:
                return table.get(place.path)
            return Option(name, place.path, place.annotation, place.about)
        return None

    return find


def to_table(given: Mapping[Path, Any]) -> dict[str, Any]:
    """Write values by path, shorter paths first, as a table of a file."""
    table: dict[str, Any] = {}
    for path, value in given.items():
        table = put(table, path, value)
    return table
