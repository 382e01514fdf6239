"""Parsing of command-line arguments, by the annotations of the fields that they set.

Options may stand anywhere, `--name value` or `--name=value`, with `-` or `_` between words. A
switch is `--name` or `--no-name`, also `--name true`. An option that takes a list is followed by
any number of words, up to the first that cannot be one of its values. An option that takes
KEY=VALUE pairs is followed by any number of pairs.
"""

import contextlib
import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from jaxmarl_ppo.config.annotations import (
    arity_of,
    attributes_of,
    element_of,
    is_optional,
    plain_type,
)
from jaxmarl_ppo.config.text import read_assignment, read_int, read_text, read_value

Options = TypeVar("Options")
_NUMBER = re.compile(r"[-+]?\.?\d.*")
_OPTION = re.compile(r"-(?!\.?\d)(?!-?$).+", re.DOTALL)


@dataclass(frozen=True)
class Operand:
    """Mark a field, in `Annotated`, that is given without a name.

    Attributes:
        metavar: how help names it.
    """

    metavar: str


@dataclass(frozen=True)
class Each:
    """Mark a field, in `Annotated`, of which every use of the option gives one value."""


@dataclass(frozen=True)
class Option:
    """An option of a command.

    Attributes:
        flag: as it is typed and shown, such as `--num-envs`.
        key: what it is stored under.
        annotation: of its values.
        about: what it means.
        default: as help shows it; None for no default.
        group: the heading of help under which it stands.
    """

    flag: str
    key: Any
    annotation: Any
    about: str
    default: Any = None
    group: str = ""

    @property
    def arity(self) -> str:
        """Return how many words the option takes, see `arity_of`; `"each"` if uses accumulate."""
        is_each = any(isinstance(part, Each) for part in get_args(self.annotation)[1:])
        return "each" if is_each else arity_of(self.annotation)

    @property
    def off(self) -> str:
        """The flag that turns a switch off."""
        return re.sub(r"^(--(?:.*\.)?)", r"\1no-", self.flag)

    def takes(self, word: str) -> bool:
        """Return whether a word can be a further value."""
        if self.arity == "pairs":
            return "=" in word
        if self.arity != "many":
            return False
        element = element_of(self.annotation)
        plain = plain_type(element)
        if plain in (int, float):
            return bool(_NUMBER.fullmatch(word))
        if get_origin(plain) is Literal:
            return word in get_args(plain)
        with contextlib.suppress(ValueError):
            for rule in get_args(element)[1:] if get_origin(element) is Annotated else ():
                rule(self.flag, word)
            return True
        return False

    def read(self, uses: Sequence[Sequence[str]]) -> Any:
        """Read the words of all uses of the option; the last one counts, lists of words add up.

        Raises:
            ValueError: If something cannot be read.
        """
        words = [word for use in uses for word in use]
        if self.arity == "pairs":
            return self._read_pairs(words)
        if self.arity in ("switch", "one"):
            return self._read(words[-1], self.annotation)
        element = element_of(self.annotation)
        if self.arity == "many":
            if words[-1].startswith("["):
                return self._read(words[-1], None)
            if words[-1:] == ["none"] and is_optional(self.annotation):
                return None
            words = words if plain_type(element) is str else list(uses[-1])
        return tuple(self._read(word, element) for word in words)

    def _read(self, word: str, annotation: Any) -> Any:
        try:
            return read_value(word) if annotation is None else read_text(word, annotation)
        except ValueError as error:
            raise ValueError(f"{self.flag}: {error}") from None

    def _read_pairs(self, words: Sequence[str]) -> Any:
        table: dict[str, Any] = {}
        for word in words:
            if word.startswith("{"):
                pairs = self._read(word, None).items()
            else:
                pairs = [read_assignment(word, self.flag)]
            for key, value in pairs:
                if key in table:
                    raise ValueError(f"{self.flag} gives {key!r} twice")
                table[key] = value
        return table


# From an option's name to the option, where the table of options has none of that name.
Find = Callable[[str], Option | None]


@dataclass
class Parsed:
    """A parsed command line.

    Attributes:
        operands: words that belong to no option, in order.
        values: by the keys of options, those that were given.
    """

    operands: list[str] = field(default_factory=list)
    values: dict[Any, Any] = field(default_factory=dict)


def parse_words(
    words: Sequence[str],
    options: Iterable[Option],
    prog: str,
    *,
    needs_operand: Callable[[set[Any]], bool] = lambda given: False,
    find: Find = lambda name: None,
    foreign: Callable[[str], str | None] = lambda name: None,
) -> Parsed:
    """Read the words of a command line.

    Args:
        words: what was typed behind the command.
        options: of the command.
        prog: the command.
        needs_operand: whether there must be an operand, by the keys that were given.
        find: finds an option that is not in the table.
        foreign: what to say of the name that another library has for an option.

    Raises:
        ValueError: For an unknown option, or one without its value.
    """
    table = {option.flag: option for option in options}
    found: dict[Any, tuple[Option, list[list[str]]]] = {}
    operands: list[str] = []
    open_lists: list[list[str]] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not _OPTION.fullmatch(word):
            operands.append(word)
            continue
        name, has_value, text = word.partition("=")
        option, is_negated = _find(name, table, find, foreign, prog)
        if option.arity == "switch":
            use = ["false" if is_negated else "true"]
            if has_value and is_negated:
                raise ValueError(f"{name} takes no value; see {prog} --help")
            if has_value:
                use = [text]
            elif queue and queue[0] in ("true", "false") and not is_negated:
                use = [queue.pop(0)]
        elif has_value:
            use = [text]
        else:
            if not queue or _OPTION.fullmatch(queue[0]):
                raise ValueError(f"{option.flag} needs a value; see {prog} --help")
            use = [queue.pop(0)]
            while queue and not _OPTION.fullmatch(queue[0]) and option.takes(queue[0]):
                use.append(queue.pop(0))
            if len(use) > 1 and option.arity == "many":
                open_lists.append(use)
        found.setdefault(option.key, (option, []))[1].append(use)
    if not operands and open_lists and needs_operand(set(found)):
        operands.append(open_lists[-1].pop())
    values = {key: option.read(uses) for key, (option, uses) in found.items()}
    return Parsed(operands, values)


def _find(
    name: str,
    table: dict[str, Option],
    find: Find,
    foreign: Callable[[str], str | None],
    prog: str,
) -> tuple[Option, bool]:
    """Find an option by name, and tell whether it is a switch that is turned off."""
    typed = name.replace("_", "-")
    found = table.get(typed) or find(name)
    if found is not None:
        return found, False
    positive = re.sub(r"^(--(?:.*\.)?)no-", r"\1", typed)
    if positive != typed:
        found = table.get(positive) or find(positive)
        if found is not None and found.arity == "switch":
            return found, True
    instead = foreign(typed)
    if instead is not None:
        raise ValueError(f"unknown option {name}: {instead}; see {prog} --help")
    off = [option.off for option in table.values() if option.arity == "switch"]
    close = difflib.get_close_matches(typed, [*table, *off], n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(f"unknown option {name}; {hint}see {prog} --help")


def options_of(cls: type, group: str = "") -> list[Option]:
    """List the options that the fields of a dataclass stand for, nested ones included."""
    about, options = attributes_of(cls), []
    for each, annotation in _fields(cls):
        if dataclasses.is_dataclass(annotation):
            heading = about[each.name].partition(".")[0]
            options += options_of(annotation, heading)  # type: ignore[arg-type]
        elif _operand(annotation) is None:
            has_none = each.default in (None, (), dataclasses.MISSING)
            default = None if has_none else each.default
            flag = "--" + each.name.replace("_", "-")
            options.append(Option(flag, each.name, annotation, about[each.name], default, group))
    return options


def operand_of(cls: type) -> tuple[str, Operand, Any] | None:
    """Find the field of a dataclass that is given without a name: its name, mark and annotation."""
    for each, annotation in _fields(cls):
        operand = _operand(annotation)
        if operand is not None:
            return each.name, operand, annotation
    return None


def make(cls: type[Options], parsed: Parsed, prog: str) -> Options:
    """Make a dataclass of the options that were given.

    Raises:
        ValueError: For a value of another type, or a word that belongs to nothing.
    """
    values = dict(parsed.values)
    operand, rest = operand_of(cls), list(parsed.operands)
    if operand is not None and rest:
        name, _, annotation = operand
        taken = tuple(rest) if element_of(annotation) else rest[0]
        values[name] = taken
        rest = [] if element_of(annotation) else rest[1:]
    if rest:
        raise ValueError(f"unexpected argument {rest[0]!r}; see {prog} --help")
    return _make(cls, values)


def _make(cls: type[Options], values: dict[str, Any]) -> Options:
    given = {}
    for each, annotation in _fields(cls):
        if dataclasses.is_dataclass(annotation):
            given[each.name] = _make(annotation, values)  # type: ignore[arg-type]
        elif each.name in values:
            flag = "--" + each.name.replace("_", "-")
            given[each.name] = check_typed(flag, annotation, values[each.name])
    return cls(**given)


def check_typed(flag: str, annotation: Any, value: Any) -> Any:
    """Return a value as the type that an annotation names.

    Raises:
        ValueError: If it is of another type.
    """
    plain = plain_type(annotation)
    if value is None and is_optional(annotation):
        return None
    if isinstance(value, tuple | list):
        return tuple(check_typed(flag, element_of(annotation), each) for each in value)
    if plain is bool and not isinstance(value, bool):
        raise ValueError(f"{flag}: {_shown(value)} is neither true nor false")
    if plain is int:
        value = read_int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{flag}: {_shown(value)} is not a whole number")
    if plain is float and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{flag}: {_shown(value)} is not a number")
    if plain is Path:
        if not value:
            raise ValueError(f"{flag}: '' names no file or folder")
        return Path(str(value))
    if get_origin(plain) is Literal and value not in get_args(plain):
        valid = ", ".join(get_args(plain))
        raise ValueError(f"{flag}: unknown choice {_shown(value)}; valid: {valid}")
    return value


def _shown(value: Any) -> str:
    return repr(value if isinstance(value, str) else str(value))


def _operand(annotation: Any) -> Operand | None:
    parts = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((part for part in parts if isinstance(part, Operand)), None)


def _fields(cls: type) -> list[tuple[Any, Any]]:
    """List fields with their annotations, those of a class itself before those of its bases."""
    hints, own = get_type_hints(cls, include_extras=True), vars(cls).get("__annotations__", {})
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    ordered = sorted(fields, key=lambda each: each.name not in own)
    return [(each, hints[each.name]) for each in ordered]
