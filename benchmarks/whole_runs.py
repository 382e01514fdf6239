"""Runs whose results are recorded: to their end, or not at all."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxmarl_ppo import Trainer, TrainResult


def train_whole(trainer: Trainer) -> TrainResult:
    """Train to the end; what stops the run, such as a signal, ends the program."""
    result = trainer.train()
    if result.interrupted:
        sys.exit(f"stopped by {result.stopped_by} after {result.env_steps:,} environment steps")
    return result


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
