"""The schema of a run: every place in its configuration, found by path.

A run's configuration is the fields of `TrainConfig`, beside `env` and `preset`. Types, rules,
metadata and descriptions come from the fields' annotations and docstrings.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from jaxmarl_ppo.config.annotations import (
    Field,
    attributes_of,
    field_hints,
    field_metadata,
    plain_type,
)
from jaxmarl_ppo.config.as_json import POLICY_KINDS
from jaxmarl_ppo.config.checks import rejection
from jaxmarl_ppo.config.keys import reject_unknown
from jaxmarl_ppo.config.networks import NETWORK_FIELDS
from jaxmarl_ppo.config.paths import Path, full_path, join_path, without_alias
from jaxmarl_ppo.config.run_file import EnvTable, RunFile
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.search import Dimension, Space
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import NETWORKS


@dataclass(frozen=True)
class Place:
    """A place in a run's configuration.

    Attributes:
        path: its parts, such as `("default_ppo", "gamma")`.
        annotation: what may stand there.
        about: what it means.
        metadata: of the field of `TrainConfig` that it is, or is in.
    """

    path: Path
    annotation: Any
    about: str
    metadata: Field = dataclasses.field(default_factory=Field)

    @property
    def name(self) -> str:
        """The path as it is written."""
        return join_path(self.path)


@functools.cache
def _root() -> dict[str, Place]:
    about, metadata = attributes_of(TrainConfig), field_metadata(TrainConfig)
    of_file = attributes_of(RunFile)
    fields = {
        name: Place((name,), hint, about[name], metadata[name])
        for name, hint in field_hints(TrainConfig).items()
    }
    no_search = Field(not_searched="it is the same for all trials")
    return {
        "env": Place(("env",), EnvTable, of_file["env"]),
        "preset": Place(("preset",), str | None, of_file["preset"], no_search),
        **fields,
    }


def find_place(parts: Path, *, dashes: bool = False) -> Place:
    """Find a place by the parts of its path, the first of which may be a short name.

    Args:
        parts: of the path.
        dashes: whether names of fields may have `-` for `_`, as options have.

    Raises:
        ValueError: If there is none; the message names the closest one.
    """
    head, *rest = without_alias(parts)
    reject_unknown([head], _root(), "the configuration")
    place = _root()[head]
    for part in rest:
        is_field = not _is_table(place.annotation)
        place = _child(place, part.replace("-", "_") if dashes and is_field else part)
    return place


def places() -> Iterator[Place]:
    """List every place but those within tables whose keys the user chooses."""
    for place in _root().values():
        yield from _places_in(place)


def _places_in(place: Place) -> Iterator[Place]:
    if place.path == ("default_policy", "ppo"):  # which default_ppo is
        return
    children = _children(place)
    if not children or _is_table(place.annotation):
        yield place
        return
    if place.path[-1] == "network":
        yield place
    for child in children.values():
        yield from _places_in(child)


def _child(place: Place, part: str) -> Place:
    """Find what lies in a place under a name."""
    if _is_table(place.annotation):
        inner = get_args(plain_type(place.annotation))[1]
        return Place((*place.path, part), inner, place.about, place.metadata)
    children = _children(place)
    if children is None:
        raise ValueError(f"{place.name} is a single value and has no {part!r}")
    reject_unknown([part], children, place.name)
    return children[part]


def _children(place: Place) -> dict[str, Place] | None:
    """List what lies in a place by name; None where a single value stands."""

    def make(name: str, annotation: Any, about: str) -> Place:
        return Place((*place.path, name), annotation, about, place.metadata)

    plain = plain_type(place.annotation)
    kinds = tuple(cls for cls in get_args(plain) if cls in POLICY_KINDS.values())
    if kinds and get_origin(plain) is not None and not _is_table(plain):
        found = {"kind": make("kind", Literal[tuple(POLICY_KINDS)], "what the policy is")}
        for cls in reversed(kinds):
            found |= _fields_of(cls, make)
        return found
    if place.path[-1:] == ("network",):
        about: dict[str, str] = {}
        for cls in NETWORKS.values():
            about |= attributes_of(cls)
        kind = make("kind", Literal[tuple(NETWORKS)], "kind of network")
        return {
            "kind": kind,
            **{name: make(name, hint, about[name]) for name, hint in NETWORK_FIELDS.items()},
        }
    if dataclasses.is_dataclass(plain) and plain is not Linear:
        return _fields_of(plain, make)  # type: ignore[arg-type]
    return None


def _fields_of(cls: type, make: Any) -> dict[str, Place]:
    about = attributes_of(cls)
    return {name: make(name, hint, about[name]) for name, hint in field_hints(cls).items()}


def _is_table(annotation: Any) -> bool:
    """Return whether the keys of what stands in a place are the user's."""
    return get_origin(plain_type(annotation)) is Mapping


def check_space(space: Space) -> dict[str, Dimension]:
    """Return a search space under full paths.

    Raises:
        ValueError: If nothing is given, or something cannot be searched or is nested in another
            value.
    """
    if not space:
        raise ValueError("space is empty; name what is searched, such as default_ppo.learning_rate")
    parts = {path: full_path(path) for path in space}
    for path, dimension in space.items():
        if not isinstance(dimension, Dimension):
            raise rejection(f"space[{path!r}]", "a Range or Choices", dimension)
        reason = find_place(parts[path]).metadata.not_searched
        if reason is not None:
            raise ValueError(f"{path} cannot be searched: {reason}")
        if parts[path][:1] == ("env",) and parts[path][1:2] != ("params",):
            raise ValueError(f"{path} cannot be searched; of env only env.params can")
        for other in space:
            if other != path and parts[other][: len(parts[path])] == parts[path]:
                raise ValueError(f"space has {path} and, within it, {other}; drop one of them")
    return {join_path(parts[path]): dimension for path, dimension in space.items()}
