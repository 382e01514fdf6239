"""Full disks, links that lead out of a run's folder, and folders that move while a run trains."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from attack_kinds.attempts import TINY, Attempt, command, start, train_tiny, wait

SIZES_KB = (300, 500, 800, 1200, 2000)
LINKS = (
    *("metrics.jsonl", "curve.png", "report.html", ".report.html.tmp", ".config.json.tmp", ".lock"),
    *("params/policies.msgpack", "params/.policies.msgpack.tmp", "checkpoints", "params"),
    *("evaluations.jsonl", "watch.html", ".watch.html.tmp", "cross_play.png", "loggers.json"),
    *("config.json", ".curve.png.tmp", "snapshots", "members", "play.html"),
)


def full_disks(place: Path) -> Iterator[Attempt]:
    """Train on a file system that fills up, then resume with room; needs the right to mount."""
    whole = place / "whole"
    train_tiny(whole)
    expected = (whole / "params" / "policies.msgpack").read_bytes()
    for size in SIZES_KB:
        disk = place / f"disk{size}"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode:
            yield Attempt("full disks", f"{size} kB", said="not tried: no right to mount")
            continue
        try:
            trained = train_tiny(disk / "run")
            lines = trained.errors.count("\n")
            wrong = "" if lines <= 40 else f"{lines} lines of errors"
            wrong = wrong or ("a traceback" if "Traceback" in trained.errors else "")
            shutil.copytree(disk / "run", place / f"copy{size}") if (disk / "run").exists() else 0
        finally:
            subprocess.run(["umount", str(disk)], check=True)
        copy = place / f"copy{size}"
        if not wrong and copy.exists():
            ended = command("resume", str(copy), "--no-progress", "--no-plays")
            policies = copy / "params" / "policies.msgpack"
            if ended.status:
                wrong = f"resume: {ended.last}"
            elif policies.read_bytes() != expected:
                wrong = "another result than in peace"
        yield Attempt("full disks", f"{size} kB", wrong, trained.last)


def links_out_of_the_folder(place: Path) -> Iterator[Attempt]:
    """Put links to a user's files into a run's folder, then use the run by every command."""
    good = place / "good"
    train_tiny(good)
    for name in LINKS:
        for dangling in (False, True):
            run, theirs = place / "run", place / "theirs"
            shutil.copytree(good, run)
            theirs.mkdir()
            target = theirs / "precious"
            _make_target(target, run / name, dangling)
            before = _content(theirs)
            for words in (
                ("resume", str(run), "--total-env-steps", "384", "--no-progress"),
                ("evaluate", str(run), "--episodes", "2", "--cross-play"),
                ("report", str(run), "--no-plays"),
                ("watch", str(run), "--episodes", "1"),
            ):
                ended = command(*words)
            wrong = "" if _content(theirs) == before else "a file outside was written"
            kind = "a dangling link" if dangling else "a link"
            yield Attempt("links", f"{kind} {name}", wrong, ended.last)
            shutil.rmtree(run)
            shutil.rmtree(theirs)


def moved_folders(place: Path) -> Iterator[Attempt]:
    """Rename or remove the folder of a run while it trains."""
    for how in ("renamed", "removed"):
        with tempfile.TemporaryDirectory(dir=place) as parent:
            steps = ["--total-env-steps", "1e9", "--checkpoints.every-minutes", "0.02"]
            words = ["train", "relay", *TINY, *steps, "--run-dir", "run", "--max-minutes", "1"]
            process = start(words, Path(parent))
            run = Path(parent, "run")
            deadline = time.monotonic() + 90
            while not list(run.glob("checkpoints/0*")) and time.monotonic() < deadline:
                time.sleep(0.1)
            run.replace(Path(parent, "elsewhere")) if how == "renamed" else shutil.rmtree(run)
            ended = wait(process, Path(parent), 90)
            told = ended.status not in (0, None) or "renamed" in ended.errors
            headless = run.exists() and not (run / "config.json").exists()
            wrong = "" if told and not headless else f"status {ended.status}, headless: {headless}"
            yield Attempt("moved folders", how, wrong, ended.last)


def _make_target(target: Path, link: Path, dangling: bool) -> None:
    is_folder = link.is_dir() or (link.suffix == "" and not link.name.startswith("."))
    if link.is_dir():
        shutil.move(link, target) if not dangling else shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
        if not dangling:
            target.mkdir() if is_folder else target.write_text("precious")
    link.parent.mkdir(exist_ok=True)
    os.symlink(target, link)


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }
