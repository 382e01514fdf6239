"""Odd names of run folders: a run in each is trained, resumed, evaluated and exported."""

import contextlib
import os
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from attack_kinds.attempts import Attempt, command, train_tiny

NAMES = [
    *("exp[1]", "[", "]", "[a-z]", "[!x]", "[]", "a[b", "a]b", "**", "*", "?", "a?b", "{a,b}"),
    *("back\\slash", "\\", "a\\", "\\n", " ", " leading", "trailing ", "two  spaces"),
    *("tab\there", "new\nline", "carriage\rreturn", "quote'", 'double"', "`tick`", "$HOME"),
    *("$(id)", "%s", "%20", "100%", "{}", "{0}", "~", "~root", "#", "a#b", "a;b", "a&b", "a|b"),
    *("<a>", "(a)", "=", "a=b", ",", "a,b", ":", "a:b", "c:", "@", "+", "^", "!", "..."),
    *(".hidden", "trailing.", "-", "-rf", "--help", "é", unicodedata.normalize("NFD", "é")),
    *("日本語", "🤖", "\u200b", "\u202eabc", "con", "nul", "x" * 255, "é" * 127, "checkpoints"),
    *("members", "000000010", "a.tmp", ".tmp", "config.json", "run.toml", "ocdbt.process_0"),
    *("a/b[c]/d", "[x]/[y]", "deep/" * 40 + "end"),
]


def odd_paths(place: Path) -> Iterator[Attempt]:
    """Train, resume, evaluate and export under every name."""
    for name in NAMES:
        with tempfile.TemporaryDirectory(dir=place) as parent, _inside(Path(parent)):
            # A name with a dash in front is an option, unless it is a path.
            yield _attempt(name, f"./{name}" if name.startswith("-") else name)
    with tempfile.TemporaryDirectory(dir=place) as parent, _inside(Path(parent)):
        Path("real[1]").mkdir()
        Path("link").symlink_to("real[1]")
        yield _attempt("a link to a folder", "link/run")
    odd = tempfile.TemporaryDirectory(dir=place, prefix="parent[1]*?")
    with odd as parent, _inside(Path(parent)):
        yield _attempt("an absolute path with odd parents", f"{parent}/run")
        yield _attempt("a path with dots", f"{parent}/./x/../run2")


def _attempt(name: str, folder: str) -> Attempt:
    trained = train_tiny(folder)
    if trained.status == 2 and not Path(folder).exists():
        return Attempt("odd paths", repr(name), said=trained.last)  # told before training
    for words in (
        ("resume", folder, "--total-env-steps", "384", "--no-progress", "--no-plays"),
        ("evaluate", folder, "--episodes", "2"),
        ("evaluate", folder, "--episodes", "2", "--checkpoint", "newest"),
        ("export", folder, "--platforms", "cpu", "--out", "policy.jaxexport", "--agent", "a"),
    ):
        Path("policy.jaxexport").unlink(missing_ok=True)
        ended = command(*words)
        if trained.status or ended.status:
            which = trained if trained.status else ended
            return Attempt("odd paths", repr(name), f"{words[0]}: {which.last}")
        if "warning" in ended.errors.lower() and "damage" in ended.errors.lower():
            return Attempt("odd paths", repr(name), ended.errors)
    return Attempt("odd paths", repr(name))


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
