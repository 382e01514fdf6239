"""Damaged, foreign and unreadable checkpoints, and the files of a run cut or filled with noise."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from attack_kinds.attempts import Attempt, Ended, command, newest_steps, train_tiny
from jaxmarl_ppo.runs.checkpoints import checkpoints_of

NUM_DAMAGES = 60
RESUME = ("--total-env-steps", "384", "--no-progress", "--no-plays", "--no-check-env")
# After it the run stands at its whole length.
END = 12


def damaged_checkpoints(place: Path) -> Iterator[Attempt]:
    """Damage a file of the newest checkpoint, then resume: from the one before, and to the end."""
    good = _good_run(place)
    rng = random.Random(0)
    expected = _resumed(place / "whole", good)
    for number in range(NUM_DAMAGES):
        torn = place / f"torn{number}"
        shutil.copytree(good, torn)
        newest = checkpoints_of(torn)[0]
        path = rng.choice([path for path in sorted(newest.rglob("*")) if path.is_file()])
        how = rng.choice(list(DAMAGES))
        DAMAGES[how](path, rng)
        name = f"{how} {path.relative_to(newest)}"
        ended = command("resume", str(torn), *RESUME)
        yield Attempt("damaged checkpoints", name, _wrong(ended, torn, expected), ended.last)
        shutil.rmtree(torn)


def foreign_checkpoints(place: Path) -> Iterator[Attempt]:
    """Copy the newest checkpoint of another run into a run."""
    good, other = _good_run(place), place / "other"
    train_tiny(other, "--seed", "1")
    for name in ("newer than all", "in the place of the newest"):
        torn = place / "mixed"
        shutil.copytree(good, torn)
        newest = checkpoints_of(torn)[0]
        target = newest if name.startswith("in") else newest.with_name("000000011")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(checkpoints_of(other)[0], target)
        ended = command("resume", str(torn), *RESUME)
        told = "another run" in ended.errors or "of run" in ended.errors
        yield Attempt(
            "foreign checkpoints", name, "" if told else f"not told: {ended.last}", ended.last
        )
        shutil.rmtree(torn)


def newer_formats(place: Path) -> Iterator[Attempt]:
    """Let the newest checkpoint be of a format that is not known yet: nothing may be touched."""
    good = _good_run(place)
    torn = place / "newer"
    shutil.copytree(good, torn)
    path = checkpoints_of(torn)[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "format": 99}))
    before = sorted(str(p) for p in torn.rglob("*"))
    ended = command("resume", str(torn), *RESUME)
    same = sorted(str(p) for p in torn.rglob("*")) == before
    wrong = "" if same and ended.status == 2 else f"status {ended.status}, touched: {not same}"
    yield Attempt("newer formats", "a manifest of format 99", wrong, ended.last)


def damaged_files(place: Path) -> Iterator[Attempt]:
    """Damage any other file of a run, then use the run: a sentence, and no traceback."""
    good = _good_run(place)
    rng = random.Random(1)
    for number in range(NUM_DAMAGES):
        torn = place / f"file{number}"
        shutil.copytree(good, torn)
        files = [
            path
            for path in sorted(torn.rglob("*"))
            if path.is_file() and "checkpoints" not in path.parts and path.name != ".lock"
        ]
        path, how = rng.choice(files), rng.choice(list(DAMAGES))
        DAMAGES[how](path, rng)
        wrong, said = "", ""
        for words in (
            ("evaluate", str(torn), "--episodes", "2"),
            ("report", str(torn), "--no-plays"),
            ("resume", str(torn), *RESUME),
        ):
            ended = command(*words)
            if ended.status not in (0, 2):
                wrong = f"{words[0]}: {ended.last}"
            said = ended.last or said
        yield Attempt("damaged files", f"{how} {path.name}", wrong, said)
        shutil.rmtree(torn)


def _good_run(place: Path) -> Path:
    folder = place / "good"
    if not folder.exists():
        trained = train_tiny(folder)
        if trained.status:
            raise RuntimeError(trained.errors)
    return folder


def _resumed(folder: Path, good: Path) -> bytes:
    """Resume a copy of a good run, and return the policies that it ends with."""
    shutil.copytree(good, folder)
    ended = command("resume", str(folder), *RESUME)
    if ended.status:
        raise RuntimeError(ended.errors)
    return _policies(folder)


def _policies(folder: Path) -> bytes:
    return (folder / "params" / "policies.msgpack").read_bytes()


def _wrong(ended: Ended, folder: Path, expected: bytes) -> str:
    if ended.status:
        return f"status {ended.status}: {ended.last}"
    if newest_steps(folder) != END:
        return f"ended at iteration {newest_steps(folder)}"
    return "" if _policies(folder) == expected else "another result than in peace"


def _cut(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) or 1)])


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(len(path.read_bytes())))


def _empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def _remove(path: Path, rng: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": _cut,
    "flip": _flip,
    "noise": _noise,
    "empty": _empty,
    "remove": _remove,
}
