"""Runs whose results are recorded: to their end, or not at all."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxmarl_ppo import Callback, Trainer, TrainResult
from jaxmarl_ppo.machine.hardware import describe_hardware


class Stopwatch(Callback):
    """Takes the time at which a run has been compiled, in `at`, and the processor's in `cpu_at`."""

    def on_start(self, run: Any) -> None:
        """Take the time, and the processor's."""
        self.at, self.cpu_at = time.perf_counter(), time.process_time()


def command_and_hardware(script: str) -> dict[str, Any]:
    """Describe how a benchmark is run, as records hold it: its command line and the machine."""
    command = shlex.join(["python", f"benchmarks/{Path(script).name}", *sys.argv[1:]])
    return {"command": command, "hardware": describe_hardware()}


def commit_of(checkout: Path) -> str:
    """Read which commit a checkout holds."""
    told = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return told.stdout.strip() or "an unknown commit"


def train_whole(trainer: Trainer) -> TrainResult:
    """Train to the end; what stops the run, such as a signal, ends the program."""
    result = trainer.train()
    if result.interrupted:
        sys.exit(f"stopped by {result.stopped_by} after {result.env_steps:,} environment steps")
    return result


def train_in(
    folder: Path, begin: Callable[..., Trainer]
) -> tuple[Trainer, TrainResult, float | None]:
    """Train to the end in a folder, from where an earlier call was interrupted.

    Args:
        folder: of the run.
        begin: makes the trainer of a new run; it is given the trainer's further options.

    Returns:
        Trainer, result, and the core's seconds of training without compilation; None for a run that
        was resumed.
    """
    watch = Stopwatch()
    options: dict[str, Any] = {"callbacks": [watch], "progress": False}
    resumes = (folder / "config.json").exists()
    trainer = Trainer.resume(folder, **options) if resumes else begin(**options)
    result = train_whole(trainer)
    cpu_seconds = None if resumes else round(time.process_time() - watch.cpu_at, 1)
    return trainer, result, cpu_seconds


def enter_run(path: Path, run: Mapping[str, Any], key: Callable[[Any], Any], **about: Any) -> None:
    """Enter a run into a record, in its order, in place of one with the same key.

    Args:
        path: of the record; made where there is none.
        run: plain data.
        key: of a run.
        **about: what else the record says.
    """
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    runs = sorted([*(r for r in runs if key(r) != key(run)), run], key=key)
    path.write_text(json.dumps({**about, "runs": runs}, indent=1) + "\n")
