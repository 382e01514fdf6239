"""Saving checkpoints in the background: when, by which process, and after failures."""

import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.run import CheckpointConfig
from jaxmarl_ppo.devices.processes import ALONE, Processes
from jaxmarl_ppo.runs.checkpoints import (
    checkpoints_of,
    own_checkpoints,
    prune,
    remove_checkpoint,
    write_checkpoint,
)
from jaxmarl_ppo.runs.files import MEMBERS
from jaxmarl_ppo.runs.group_checkpoints import GroupSnapshot, write_group_checkpoint

# After a failed save the next attempt comes within this time, in seconds.
RETRY_S = 60.0


class Saver:
    """Writes checkpoints in a separate thread, one at a time, and removes old ones.

    Args:
        run_dir: the folder of the run, which may change while nothing is being written.
        config: when to save and what to keep.
        iteration_steps: environment steps of an iteration.
        best: the checkpoint with the best value of the objective so far.
        processes: of the job; each writes its part, and the first removes old ones.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        run_dir: Path,
        config: CheckpointConfig,
        iteration_steps: int,
        best: Path | None = None,
        processes: Processes = ALONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_dir, self._config, self._clock = run_dir, config, clock
        self._processes = processes
        steps = config.every_env_steps
        self.every_iterations = None if steps is None else -(-steps // iteration_steps)
        self._every_s = None if config.every_minutes is None else 60.0 * config.every_minutes
        self._due_at = self._next_due()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Path] | None = None
        self._best = best
        self._is_best = False
        self._run: str | None = None

    @property
    def saves(self) -> bool:
        """Return whether checkpoints are saved at all."""
        return self._config.keep > 0

    def is_due(self, iteration: int) -> bool:
        """Return whether a checkpoint is due."""
        if not self.saves:
            return False
        if self.every_iterations is not None and iteration % self.every_iterations == 0:
            return True
        # By the clock none is due while the previous one is being written.
        return self._writing is None and self._due_at is not None and self._clock() >= self._due_at

    def begin(self, snapshot: Any, is_best: bool) -> None:
        """Begin to write the result of `Trained.snapshot` once the previous write is finished."""
        assert self._writing is None
        self._is_best, self._run = is_best, snapshot.record.get("id")
        self._due_at = self._next_due()
        self._writing = self._thread.submit(self._write, snapshot)

    def poll(self) -> Path | None:
        """Return the checkpoint that has been written since the last call, if one has."""
        if self._writing is None or not self._writing.done():
            return None
        return self.finish()

    def finish(self) -> Path | None:
        """Wait for the checkpoint being written and return it; warn of a failure."""
        if self._writing is None:
            return None
        writing, self._writing = self._writing, None
        try:
            path = writing.result()
        except Exception as error:  # no error here may end training
            self._due_at = self._clock() + min(RETRY_S, self._every_s or RETRY_S)
            warnings.warn(
                f"no checkpoint could be saved in {self.run_dir} ({_first_line(error)}); training "
                "continues, and it is tried again",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        if self._is_best:
            self._best = path
        if self._processes.is_first:
            self._prune(self._config.keep, self._best)
        return path

    def close(self) -> None:
        """Wait for the checkpoint being written, and end the thread."""
        self.finish()
        self._thread.shutdown()

    def _write(self, snapshot: Any) -> Path:
        """Write a checkpoint atomically, in the thread."""
        return write_checkpoint(self.run_dir, snapshot, self._processes)

    def _prune(self, keep: int, best: Path | None) -> None:
        """Remove the checkpoints that are not kept."""
        prune(self.run_dir, keep, best, self._run)

    def _next_due(self) -> float | None:
        return None if self._every_s is None else self._clock() + self._every_s


class GroupSaver(Saver):
    """Writes checkpoints of a group of runs: those of its members, then the group's own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._members: dict[str, str | None] = {}

    def _write(self, snapshot: GroupSnapshot) -> Path:
        # A stopped member keeps its checkpoints.
        self._members = {
            name: own.record.get("id")
            for name, own in snapshot.members.items()
            if not isinstance(own, str)
        }
        return write_group_checkpoint(self.run_dir, snapshot)

    def _prune(self, keep: int, best: Path | None) -> None:
        super()._prune(keep, best)
        kept = {folder.name for folder in checkpoints_of(self.run_dir)}
        for name, run in self._members.items():
            for folder in own_checkpoints(self.run_dir / MEMBERS / name, run):
                if folder.name not in kept:
                    remove_checkpoint(folder)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
