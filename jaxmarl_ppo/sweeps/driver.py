"""The loop of a search: ask for trials, train them side by side, look at them, tell the study."""

import shutil
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from optuna.trial import Trial

from jaxmarl_ppo.config.search import SearchConfig
from jaxmarl_ppo.machine.interruption import Interruption, Stopped, call_interruptibly
from jaxmarl_ppo.sweeps.candidates import Candidate, Candidates
from jaxmarl_ppo.sweeps.program import Program
from jaxmarl_ppo.sweeps.program_key import program_key
from jaxmarl_ppo.sweeps.results import trial_folder
from jaxmarl_ppo.sweeps.study import Study
from jaxmarl_ppo.sweeps.trial_run import TrialRun
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged


@dataclass
class RunningTrial:
    """A trial that this process runs.

    Attributes:
        trial: as Optuna has it.
        program: which trains it.
        runs: one for each seed.
        values: of the runs that were looked at since all of them were.
    """

    trial: Trial
    program: Program
    runs: list[TrialRun]
    values: dict[int, float | None] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether all runs have trained to their ends."""
        return all(run.is_over for run in self.runs)


@dataclass
class Driver:
    """Runs trials until the study has enough, or something stops it.

    Attributes:
        candidates: makes runs of values.
        study: whom trials are asked for and told to.
        search: how many train side by side, and how long.
        run_dir: the folder of the search.
        interruption: whether a signal asks for the end.
        on_change: called whenever a trial has begun, was looked at or is over.
    """

    candidates: Candidates
    study: Study
    search: SearchConfig
    run_dir: Path
    interruption: Interruption
    on_change: Callable[[], None]

    def __post_init__(self) -> None:
        self.running: list[RunningTrial] = []
        self._programs: dict[Hashable, Program] = {}
        self._began = time.perf_counter()

    @property
    def stopped_by(self) -> str | None:
        """What asks for the end: a signal's name, or a sentence; None for nothing."""
        limit = self.search.max_minutes
        if self.interruption.requested is not None:
            return self.interruption.requested.name
        if limit is not None and time.perf_counter() - self._began >= 60.0 * limit:
            return f"max_minutes={limit:g} are over"
        return None

    def run(self) -> str | None:
        """Run trials; those that are not over in the end are given back to the study.

        Returns:
            What stopped it; None where there was no trial left to run.

        Raises:
            ValueError: the objective's measure is not among the numbers that there are.
            Stopped: a signal during a compilation.
        """
        with self.study.driving():
            try:
                while self.stopped_by is None:
                    self._fill()
                    if not self.running:
                        break
                    for program in self._programs.values():
                        program.free_memory()
                    self._train()
                return self.stopped_by
            finally:
                for running in list(self.running):
                    self._leave(running)
                    self.study.release(running.trial)

    def _fill(self) -> None:
        """Ask for as many trials as there is room for."""
        num_seeds = self.search.num_seeds
        while (len(self.running) + 1) * num_seeds <= self.search.num_members:
            trial = None if self.stopped_by is not None else self.study.ask()
            if trial is None:
                return
            try:
                candidate = self.candidates.make(trial.params)
            except ValueError as error:
                self.study.fail(trial, str(error))
                continue
            self._begin(trial, candidate)
            self.on_change()

    def _begin(self, trial: Trial, candidate: Candidate) -> None:
        """Give every run of a trial a lane of the program that they share."""
        learner, config = candidate.learner, candidate.config
        key = program_key(learner)
        if key not in self._programs:
            self._programs[key] = self._compiled(Program(learner, config, self.search.num_members))
        program = self._programs[key]
        folder = trial_folder(self.run_dir, trial.number)
        # Of a process that did not come to the trial's end.
        shutil.rmtree(folder, ignore_errors=True)
        running = RunningTrial(trial, program, [])
        self.running.append(running)
        for offset in range(self.search.num_seeds):
            own = replace(config, seed=config.seed + offset)
            place = folder if self.search.num_seeds == 1 else folder / f"seed-{own.seed}"
            run = TrialRun(program.learner, own, candidate.env_params, place, program.evaluator)
            program.admit(run, learner)
            running.runs.append(run)

    def _compiled(self, program: Program) -> Program:
        try:
            call_interruptibly(program.compile, self.interruption)
        except Stopped as error:
            raise Stopped(
                f"stopped during compilation; trials that are over stay in {self.run_dir}",
                error.signal,
            ) from None
        return program

    def _train(self) -> None:
        """Train all programs by a slice, and look at the runs for which it is time."""
        for program in self._programs.values():
            due = [] if program.is_idle else program.train()
            for running in list(self.running):
                if any(run in due for run in running.runs):
                    self._look(running, due)

    def _look(self, running: RunningTrial, due: list[TrialRun]) -> None:
        """Look at runs of a trial, and tell how good it is once all of them have been looked at."""
        try:
            for index, run in enumerate(running.runs):
                if run in due:
                    running.values[index] = running.program.look(run)
        except (EnvironmentFault, TrainingDiverged) as error:
            self._leave(running)
            self.study.fail(running.trial, str(error))
        else:
            if len(running.values) == len(running.runs):
                self._judge(running, list(running.values.values()))
                running.values = {}
        self.on_change()

    def _judge(self, running: RunningTrial, values: list[float | None]) -> None:
        """Tell the study how good the runs of a trial are now, and end it where that is due."""
        known = [value for value in values if value is not None and np.isfinite(value)]
        whole = len(known) == len(values)
        ends = False
        if whole:
            env_steps = running.runs[0].env_steps
            ends = self.study.report(running.trial, float(np.mean(known)), env_steps)
        if not (running.is_over or ends):
            return
        self._leave(running)
        if not running.is_over:
            self.study.prune(running.trial)
        elif whole:
            self.study.complete(running.trial, float(np.mean(known)))
        else:
            measure = self.candidates.config.objective.measure
            self.study.fail(running.trial, f"at its end there was no finite number {measure!r}")

    def _leave(self, running: RunningTrial) -> None:
        """Save the runs of a trial, and free their lanes."""
        self.running.remove(running)
        for run in running.runs:
            run.close()
            running.program.dismiss(run)
