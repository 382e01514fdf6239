"""Help of commands, generated from their options' annotations and descriptions."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from jaxmarl_ppo.cli.arguments import Option
from jaxmarl_ppo.config.annotations import element_of, plain_type

WIDTH = 80
SHORT_LINES = 48  # of the short help, at most
_LEFT = 33  # columns of an option's name and value
_CLAUSE = re.compile(r"[.;:,] |\.$| \(")


def short_help(usage: str, summary: str, options: Iterable[Option], more: str) -> str:
    """Write one line for each option, under headings.

    Args:
        usage: how the command is called.
        summary: what it does, in a sentence.
        options: to be shown.
        more: the last line.
    """
    lines = [f"usage: {usage}", "", *textwrap.wrap(summary, WIDTH)]
    for heading, group in _grouped(options).items():
        lines += ["", f"{heading}:"]
        lines += [_short_line(option) for option in group]
    return "\n".join([*lines, "", more])


def long_help(usage: str, text: str, options: Iterable[Option]) -> str:
    """Write everything about each option, under headings."""
    lines = [f"usage: {usage}"]
    for paragraph in text.split("\n\n"):
        lines += ["", *textwrap.wrap(" ".join(paragraph.split()), WIDTH)]
    for heading, group in _grouped(options).items():
        lines += ["", f"{heading}:"]
        for option in group:
            about = plain_text(option.about)
            if option.default is not None:
                about += f" (default: {shown(option.default)})"
            lines.append(f"  {left(option)}")
            lines += textwrap.wrap(about, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def _grouped(options: Iterable[Option]) -> Mapping[str, Sequence[Option]]:
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(option.group or "options", []).append(option)
    return groups


def _short_line(option: Option) -> str:
    start = f"  {left(option)}"
    start += " " * max(2, _LEFT - len(start))
    has_none = option.default is None or isinstance(option.default, bool)
    end = "" if has_none else f" [{shown(option.default)}]"
    end = end if len(end) <= 25 else ""
    return start + _first_clause(plain_text(option.about), WIDTH - len(start) - len(end)) + end


def _first_clause(text: str, room: int) -> str:
    """Cut a description where its first sentence, or a clause of it, ends within some columns."""
    text = re.split(r"[.;:] |\.$", text)[0]
    if len(text) <= room:
        return text
    ends = [found.start() for found in _CLAUSE.finditer(text) if found.start() <= room]
    return text[: ends[-1]] if ends else textwrap.shorten(text, room, placeholder=" …")


def plain_text(text: str) -> str:
    """Write a description without the marks of code."""
    return text.replace("`", "")


def left(option: Option) -> str:
    """Write an option as it is typed, with what stands for its value."""
    if option.arity == "switch":
        return option.flag if option.default is False else option.off.replace("no-", "[no-]", 1)
    if option.arity == "pairs":
        return f"{option.flag} KEY=VALUE ..."
    word = metavar(option.annotation)
    return f"{option.flag} {word} ..." if option.arity == "many" else f"{option.flag} {word}"


def metavar(annotation: Any) -> str:
    """Write what stands for a value of an annotation."""
    plain = plain_type(annotation)
    element = element_of(annotation)
    if element is not None:
        return metavar(element)
    if get_origin(plain) is Literal:
        words = "|".join(get_args(plain))
        return words if len(words) <= 24 else "WORD"
    names = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
    return names.get(plain, "X" if float in get_args(plain) else "VALUE")


def shown(value: Any) -> str:
    """Write a default as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 10_000:
        for letter, factor in (("M", 1_000_000), ("k", 1000)):
            if value % factor == 0:
                return f"{value // factor}{letter}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return " ".join(map(shown, value))
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()):
        return ",".join(f"{key}={each}" for key, each in value.items())
    return str(value)
