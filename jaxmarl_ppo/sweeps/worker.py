"""A worker of a search: programs, with runs as replicas."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxmarl_ppo.sweeps.candidates import Candidate
from jaxmarl_ppo.sweeps.program import Program
from jaxmarl_ppo.sweeps.program_key import program_key
from jaxmarl_ppo.sweeps.trial_run import TrialRun
from jaxmarl_ppo.sweeps.workers import IntermediateResult, RunName, Saved
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged


class Worker:
    """Trains runs side by side on the devices of this process; alone it serves as `Workers`.

    Args:
        num_replicas: number of runs at a time.
        saves: whether an intermediate result contains the state for another worker to resume.
        call: runs a compilation, for example so that a signal can end it.
    """

    def __init__(
        self,
        num_replicas: int,
        *,
        saves: bool = False,
        call: Callable[[Callable[[], None]], Any] | None = None,
    ) -> None:
        self._num_replicas, self._saves, self._call = num_replicas, saves, call
        self._programs: dict[Hashable, Program] = {}
        self._runs: dict[RunName, tuple[Program, TrialRun]] = {}

    @property
    def room(self) -> int:
        """Return how many runs can begin now."""
        return self._num_replicas - len(self._runs)

    @property
    def is_busy(self) -> bool:
        """Return whether there is anything to train."""
        return bool(self._runs)

    def begin(
        self, name: RunName, candidate: Candidate, folder: Path, saved: Saved | None = None
    ) -> None:
        """Begin or resume a run.

        Args:
            name: of the run.
            candidate: of the run, before the offset of its seed.
            folder: of its record, for messages.
            saved: state to resume from; None for a new run.

        Raises:
            ValueError: If the saved state is of another run.
        """
        learner, config = candidate.learner, candidate.config
        key = program_key(learner)
        if key not in self._programs:
            program = Program(learner, config, self._num_replicas)
            if self._call is None:
                program.compile()
            else:
                self._call(program.compile)
            self._programs[key] = program
        program = self._programs[key]
        own = replace(config, seed=config.seed + name.offset)
        run = program.admit(own, learner, candidate.env_params, folder, saved)
        self._runs[name] = (program, run)

    def end(self, name: RunName) -> None:
        """Free the replica of a run, unless it is already free."""
        if name in self._runs:
            program, run = self._runs.pop(name)
            program.dismiss(run)

    def close(self) -> None:
        """Free all replicas."""
        for name in list(self._runs):
            self.end(name)

    def train(self) -> list[IntermediateResult]:
        """Train all programs for a slice, and measure the runs that are due."""
        for program in self._programs.values():
            program.free_memory()
        results = []
        for program in self._programs.values():
            due = [] if program.is_idle else program.train()
            names = [name for name, (_, run) in self._runs.items() if run in due]
            results += [self._measure_run(name) for name in names]
        return results

    def save(self, name: RunName) -> Saved:
        """Copy a run's state to the host; call it when the run has just been measured."""
        program, run = self._runs[name]
        return program.save(run)

    def _measure_run(self, name: RunName) -> IntermediateResult:
        program, run = self._runs[name]
        try:
            seen = program.measure(run)
        except (EnvironmentFault, TrainingDiverged) as error:
            self.end(name)
            return IntermediateResult(
                name, run.env_steps, False, population=run.last_finite, error=str(error)
            )
        result = IntermediateResult(
            name,
            run.env_steps,
            run.is_over,
            seen.value,
            seen.entry,
            seen.report,
            run.last_finite,
            program.save(run) if self._saves else None,
        )
        if run.is_over:
            self.end(name)
        return result
