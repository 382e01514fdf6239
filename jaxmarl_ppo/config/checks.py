"""Validation of configuration fields by the rules that their annotations carry.

`gamma: Fraction = 0.99` is checked by the rule that `Fraction` carries. For `bool`, `Literal`,
other classes, and any of these `| None`, the annotation alone says what is valid.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import jax
import numpy as np
from jax.core import Tracer

from jaxmarl_ppo.config.annotations import field_hints, without_none

# From the name and the value of a field to the value that is kept; a ValueError rejects it.
Rule = Callable[[str, Any], Any]
MAX_INT = 2**31 - 1  # indices and counts are 32 bits wide in compiled code
MAX_STEPS = 2**53  # whole numbers that a float64 holds exactly
MAX_SEED = 2**32 - 1  # JAX drops further bits
MAX_NAME = 100  # letters
MAX_FLOAT = float(np.finfo(np.float32).max)


def check_fields(config: Any, of: str = "") -> None:
    """Check every field of a frozen dataclass by its annotation, and keep numbers as Python's.

    Args:
        config: what is being made.
        of: what messages say after a field's name, such as `of snapshots`.

    Raises:
        ValueError: If a field holds what it must not.
    """
    for name, rule in field_rules(type(config)).items():
        value = rule(f"{name} {of}".strip(), getattr(config, name))
        object.__setattr__(config, name, value)


def rejection(name: str, valid: str, value: Any) -> ValueError:
    """Make the error for a value that a field must not hold."""
    return ValueError(f"{name} must be {valid}, got {show(value)}")


def show(value: Any) -> str:
    """Represent a value in one line that is not too long for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def plain(value: Any) -> Any:
    """Return a number of NumPy or JAX as Python's, and anything else as it is."""
    is_array = isinstance(value, np.generic | np.ndarray | jax.Array)
    if is_array and value.ndim == 0 and not isinstance(value, Tracer):
        return value.item()
    return value


def whole_number(low: int, high: int) -> Rule:
    """Make a rule for whole numbers from `low` to `high`."""

    def check(name: str, value: Any) -> int:
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, int) or number < low:
            raise rejection(name, f"a whole number of at least {low}", value)
        if number > high:
            raise rejection(name, f"a whole number of at most {high}", value)
        return number

    return check


def number(valid: str, accepts: Callable[[float], bool]) -> Rule:
    """Make a rule for the finite numbers that `accepts` accepts and `valid` describes."""

    def check(name: str, value: Any) -> float:
        number = plain(value)
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not (is_number and abs(number) <= MAX_FLOAT and accepts(number)):
            raise rejection(name, valid, value)
        return number

    return check


def choice(*choices: str) -> Rule:
    """Make a rule for a few words."""

    def check(name: str, value: Any) -> str:
        if not (isinstance(value, str) and value in choices):
            raise ValueError(f"unknown {name} {show(value)}; valid: {', '.join(choices)}")
        return value

    return check


def check_bool(name: str, value: Any) -> bool:
    """Reject values other than True and False, such as the word `"no"`."""
    if not isinstance(value, bool | np.bool_):
        raise rejection(name, "True or False", value)
    return bool(value)


def check_path(name: str, value: Any) -> str | os.PathLike[str]:
    """Reject values that name no file or folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise rejection(name, "a path", value)
    return value


def check_name(name: str, value: Any) -> str:
    """Reject invalid names of agents."""
    if not isinstance(value, str) or not value:
        raise rejection(name, "a word", value)
    return value


def check_policy_name(name: str, value: Any) -> str:
    """Reject names of policies that are unsuitable for logs, file names or messages.

    Agents may have any name, as may policies named after them by `per_agent`.
    """
    check_name(name, value)
    if len(value) > MAX_NAME or not value.isprintable() or value in (".", ".."):
        valid = f"a word of at most {MAX_NAME} printable characters, and neither '.' nor '..'"
        raise rejection(name, valid, value)
    return value


def check_sequence(name: str, value: Any, valid: str) -> Sequence[Any]:
    """Return the elements of a sequence or an array; neither a word nor a table is one."""
    if isinstance(value, np.ndarray | jax.Array) and value.ndim:
        return np.asarray(value).tolist()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise rejection(name, valid, value)
    return value


def reject_repeated(name: str, values: Iterable[str]) -> None:
    """Reject duplicate names."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{name} names {value!r} twice")
        seen.add(value)


check_seed = whole_number(0, MAX_SEED)
check_number = number("a finite number", lambda x: True)
check_not_negative = number("finite and not negative", lambda x: x >= 0.0)
check_share = number("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
check_fraction = number("finite and lie in [0.0, 1.0]", lambda x: 0.0 <= x <= 1.0)
check_positive = number("positive and finite", lambda x: x > 0.0)

Count = Annotated[int, whole_number(1, MAX_INT)]
StepCount = Annotated[int, whole_number(1, MAX_STEPS)]
Seed = Annotated[int, check_seed]
Fraction = Annotated[float, check_fraction]
Positive = Annotated[float, check_positive]
NotNegative = Annotated[float, check_not_negative]
PolicyName = Annotated[str, check_policy_name]


def different_names(valid: str) -> Rule:
    """Make a rule for sequences of different names, which `valid` describes."""

    def check(name: str, value: Any) -> tuple[str, ...]:
        names = tuple(check_sequence(name, value, valid))
        for each in names:
            check_name(f"an entry of {name}", each)
        reject_repeated(name, names)
        return names

    return check


def reject_without_effect(config: Any, table: str, fields: Sequence[str], why: str) -> None:
    """Reject values other than the defaults where they change nothing.

    Args:
        config: a dataclass.
        table: its name in files.
        fields: those without effect.
        why: what takes their effect away, and what to do about that.

    Raises:
        ValueError: For the first field that has another value.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in fields:
        value = getattr(config, name)
        if value != defaults[name]:
            raise ValueError(f"{table}.{name}={value!r} has no effect {why} or drop the other")


@functools.cache
def field_rules(cls: type) -> dict[str, Rule]:
    """Return the rules that the annotations of a dataclass's fields stand for."""
    return {name: rule_of(hint) for name, hint in field_hints(cls).items()}


def rule_of(annotation: Any) -> Rule:
    """Find the rule that an annotation stands for."""
    optional, rest = without_none(annotation)
    if optional:
        rule = rule_of(rest)
        return lambda name, value: None if value is None else rule(name, value)
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return next(part for part in parts[1:] if callable(part))
    if kind is Literal:
        return choice(*parts)
    if annotation is bool:
        return check_bool
    return functools.partial(_check_class, annotation)


def _check_class(cls: type, name: str, value: Any) -> Any:
    if not isinstance(value, cls):
        raise rejection(name, f"a {cls.__name__}", value)
    return value
