"""The single worker of a search in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxmarl_ppo.machine.interruption import Interruption, Stopped, call_interruptibly
from jaxmarl_ppo.sweeps.candidates import Candidate
from jaxmarl_ppo.sweeps.worker import Worker
from jaxmarl_ppo.sweeps.workers import IntermediateResult, RunName


class LocalWorkers:
    """Trains the runs of a search in this process.

    Args:
        num_members: number of runs side by side.
        run_dir: the folder of the search, for messages.
        interruption: whether a signal has requested a stop.
    """

    def __init__(self, num_members: int, run_dir: Path, interruption: Interruption) -> None:
        self._run_dir, self._interruption = run_dir, interruption
        self._worker = Worker(num_members, call=self._call)

    @property
    def room(self) -> int:
        """Return how many runs can begin now."""
        return self._worker.room

    def begin(self, name: RunName, candidate: Candidate, folder: Path) -> None:
        """Begin a run; see `Workers`.

        Raises:
            Stopped: On a signal during a compilation.
        """
        self._worker.begin(name, candidate, folder)

    def end(self, name: RunName) -> None:
        """End a run, unless it is already over or has failed."""
        self._worker.end(name)

    def train(self) -> list[IntermediateResult]:
        """Train all runs for a slice, and measure those that are due."""
        return self._worker.train()

    def close(self) -> None:
        """Release all resources."""
        self._worker.end_all()

    def _call(self, function: Callable[[], Any]) -> None:
        try:
            call_interruptibly(function, self._interruption)
        except Stopped as error:
            raise Stopped(
                f"stopped during compilation; trials that are over stay in {self._run_dir}",
                error.signal,
            ) from None
