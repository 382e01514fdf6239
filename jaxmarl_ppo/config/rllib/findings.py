"""Notes on a translated RLlib configuration, each given once for all policies it applies to."""

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxmarl_ppo.config.rllib.hints import hint

_LONGEST = 60  # characters of a value in a message


@dataclass
class Findings:
    """Collects what there is to tell about a translation.

    Attributes:
        notes: what is not quite the same, in sentences.
        lost: by key, what changes what is learnt and has no counterpart.
    """

    notes: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    _named: dict[str, list[str]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Note something once."""
        if text not in self.notes:
            self.notes.append(text)

    def note_policy(self, name: str, text: str) -> None:
        """Note something of a policy, in one sentence with all policies that it is true of.

        Args:
            name: the policy.
            text: what there is to tell, with `{policy}` for the name.
        """
        names = self._named.setdefault(text, [])
        former = text.replace("{policy}", _names(names))
        if name not in names:
            names.append(name)
        told = text.replace("{policy}", _names(names))
        if former in self.notes:
            self.notes[self.notes.index(former)] = told
        else:
            self.note(told)

    def lose(self, key: str, value: Any, why: str | None = None) -> None:
        """Note a key without a counterpart."""
        advice = hint(key) if why is None else why
        self.lost[key] = f"{key}={show(value)}" + (f": {advice}" if advice else "")


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def show(value: Any) -> str:
    """Represent a value in a few words."""
    text = getattr(value, "__qualname__", None) or repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def share_lines(lost: Mapping[str, str]) -> dict[str, list[str]]:
    """Report findings common to several policies once.

    Returns:
        What there is to tell, by the key, or by a pattern for several policies: `*` in the place of
        their names.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for key, text in lost.items():
        alike.setdefault((_any_policy(key), text.removeprefix(key)), []).append(key)
    lines: dict[str, list[str]] = {}
    for (pattern, said), keys in alike.items():
        if len(keys) == 1:
            lines.setdefault(keys[0], []).append(keys[0] + said)
        else:
            names = _names([key.split(".")[1] for key in keys])
            lines.setdefault(pattern, []).append(pattern.replace("*", names) + said)
    return lines


def _any_policy(key: str) -> str:
    table, *rest = key.split(".", 2)
    return f"{table}.*.{rest[1]}" if table in ("policies", "rl_module_spec") and rest[1:] else key


def is_named(key: str, names: Collection[str]) -> bool:
    """Return whether a key is one of the names, in which `*` stands for anything."""
    return any(fnmatch.fnmatchcase(key, name) for name in names)
