"""Shared parts of all attacks: an attempt and its end, and commands in this process or another."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jaxmarl_ppo.cli import main as cli
from jaxmarl_ppo.runs.checkpoints import checkpoints_of

# A run so small that what is attacked takes longer than training it.
TINY = "--num-envs 4 --num-steps 8 --hidden-sizes 4 --ppo.num-minibatches 2 --network mlp"
TINY = [*TINY.split(), "--no-progress", "--no-plays", "--no-check-env"]
# Files for what a command in another process writes, in the folder that it is started in.
OUT, ERRORS = "out.txt", "errors.txt"
STEPS = ["--total-env-steps", "320"]


@dataclass(frozen=True)
class Attempt:
    """Tells how one attack ended.

    Attributes:
        kind: of attack.
        name: of this one.
        wrong: what was lost, imported, written elsewhere or hung; empty if nothing was.
        said: what the user was told.
    """

    kind: str
    name: str
    wrong: str = ""
    said: str = ""


@dataclass
class Ended:
    """Holds how a command ended: its exit status, None if it hung, and what it wrote."""

    status: int | None
    out: str
    errors: str
    seconds: float = 0.0
    left: list[int] = field(default_factory=list)

    @property
    def last(self) -> str:
        """The last line that it wrote to standard error."""
        return (self.errors.strip().splitlines() or [""])[-1]


def command(*words: str) -> Ended:
    """Run a command of `jaxmarl-ppo` in this process."""
    out, errors = io.StringIO(), io.StringIO()
    status: int | None = 0
    began = time.monotonic()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        try:
            cli.main(list(words))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except Exception as error:  # a traceback, which is no answer to a user
            status = -1
            errors.write(f"{type(error).__name__}: {error}\n")
    return Ended(status, out.getvalue(), errors.getvalue(), time.monotonic() - began)


def start(words: Sequence[str], cwd: Path) -> "subprocess.Popen[bytes]":
    """Start a command of `jaxmarl-ppo` in a session of its own."""
    # Files take whatever is written, and nobody has to read it meanwhile.
    return subprocess.Popen(
        [sys.executable, "-m", "jaxmarl_ppo", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=(cwd / OUT).open("w"),
        stderr=(cwd / ERRORS).open("w"),
        start_new_session=True,
    )


def wait(process: "subprocess.Popen[bytes]", cwd: Path, limit_s: float) -> Ended:
    """Wait for the end of a command, and see which of its descendants are left after it."""
    began = time.monotonic()
    known: set[int] = set()
    while process.poll() is None and time.monotonic() - began < limit_s:
        known |= set(descendants(process.pid))
        time.sleep(0.05)
    seconds = time.monotonic() - began
    status = process.poll()
    if status is None:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 5.0
    left = [pid for pid in known if is_alive(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [pid for pid in left if is_alive(pid)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    out, errors = ((cwd / name).read_text(errors="replace") for name in (OUT, ERRORS))
    return Ended(status, out, errors, seconds, left)


def descendants(pid: int) -> Iterator[int]:
    """List the processes that a process has started, and those that these have."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def train_tiny(folder: str | Path, *words: str) -> Ended:
    """Train the smallest run into a folder, with a checkpoint at every other iteration."""
    often = ["--checkpoints.every-env-steps", "64", "--checkpoints.keep", "3"]
    return command("train", "relay", *TINY, *STEPS, *often, "--run-dir", str(folder), *words)


def newest_steps(folder: Path) -> int:
    """Return the iteration of the newest checkpoint; -1 if there is none."""
    return max((int(path.name) for path in checkpoints_of(folder)), default=-1)
