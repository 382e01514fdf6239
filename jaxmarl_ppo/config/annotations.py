"""Annotations of a configuration's fields: types, rules and metadata, all written at the field.

`gamma: Annotated[Fraction, Field(resumable=True)] = 0.99` gives a field its type, the rule that
`Fraction` carries, and metadata.
"""

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Field:
    """Describe how a field of a configuration may vary between runs.

    Attributes:
        resumable: whether a resumed run may have another value, since nothing is learnt from it.
        compares_members: whether population-based training compares members by it, so that such a
            group cannot resume with another value.
        not_searched: why a search cannot vary it; None where it can.
        in_search: what a search has instead of it; None where it works in a search.
    """

    resumable: bool = False
    compares_members: bool = False
    not_searched: str | None = None
    in_search: str | None = None


@functools.cache
def field_hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields, without their metadata."""
    return {name: _split(hint)[0] for name, hint in _annotations(cls).items()}


@functools.cache
def field_metadata(cls: type) -> dict[str, Field]:
    """Return the metadata of a dataclass's fields."""
    return {name: _split(hint)[1] for name, hint in _annotations(cls).items()}


def _annotations(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _split(annotation: Any) -> tuple[Any, Field]:
    """Split an annotation into the type of values, and its metadata."""
    if get_origin(annotation) is not Annotated:
        return annotation, Field()
    base, *parts = get_args(annotation)
    found = [part for part in parts if isinstance(part, Field)]
    rest = tuple(part for part in parts if not isinstance(part, Field))
    return (Annotated[(base, *rest)] if rest else base), (found[0] if found else Field())


def without_none(annotation: Any) -> tuple[bool, Any]:
    """Return whether an annotation permits None, and return what it permits beside that."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind in (Union, types.UnionType) and type(None) in parts:
        rest = tuple(part for part in parts if part is not type(None))
        return True, rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007
    return False, annotation


def plain_type(annotation: Any) -> Any:
    """Return the type that an annotation is of, without rules and None."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif without_none(annotation)[0]:
            annotation = without_none(annotation)[1]
        else:
            return annotation


def is_optional(annotation: Any) -> bool:
    """Return whether an annotation permits None, inside rules or outside."""
    optional, rest = without_none(annotation)
    is_annotated = get_origin(rest) is Annotated
    return optional or (is_annotated and is_optional(get_args(rest)[0]))


# How many words an option takes: none (a switch), one, several, or KEY=VALUE pairs.
Arity = Literal["switch", "one", "many", "pairs"]


def arity_of(annotation: Any) -> Arity:
    """Return how many words of a command line a value takes."""
    plain = plain_type(annotation)
    if plain is bool:
        return "switch"
    if get_origin(plain) in (Mapping, dict):
        return "pairs"
    element = element_of(annotation)
    return "many" if element is not None and _is_word(plain_type(element)) else "one"


def element_of(annotation: Any) -> Any:
    """Return the annotation of a sequence's elements; None for other types."""
    plain = plain_type(annotation)
    is_sequence = get_origin(plain) in (tuple, Sequence, list)
    return get_args(plain)[0] if is_sequence else None


def _is_word(plain: Any) -> bool:
    return plain in (int, float, str) or get_origin(plain) is Literal


@functools.cache
def attributes_of(cls: type) -> dict[str, str]:
    """Read the descriptions of attributes in the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, section = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition(
            "\nAttributes:\n"
        )
        # An attribute is indented by four, and its continuation by more.
        lines = section.partition("\n\n")[0]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", lines, re.MULTILINE):
            found[name] = " ".join(text.split())
    return found
