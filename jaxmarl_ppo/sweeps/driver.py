"""The loop of a search: ask for trials, train them side by side, report to the study."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from optuna.trial import Trial

from jaxmarl_ppo.config.search import SearchConfig
from jaxmarl_ppo.machine.interruption import Interruption
from jaxmarl_ppo.sweeps.candidates import Candidate, Candidates
from jaxmarl_ppo.sweeps.results import trial_folder
from jaxmarl_ppo.sweeps.study import Study
from jaxmarl_ppo.sweeps.trial_record import TrialRecord
from jaxmarl_ppo.sweeps.workers import IntermediateResult, RunName, Workers


@dataclass
class RunningTrial:
    """A trial that this process runs.

    Attributes:
        trial: as Optuna has it.
        records: of its runs, by their names.
        values: of the objective, by environment steps and run, at points that not all runs have
            reached.
    """

    trial: Trial
    records: dict[RunName, TrialRecord] = field(default_factory=dict)
    values: dict[int, dict[RunName, float | None]] = field(default_factory=dict)


@dataclass
class Driver:
    """Runs trials until the study has enough, or something stops it.

    Attributes:
        candidates: makes runs of values.
        study: source of trials and receiver of results.
        search: its configuration.
        run_dir: the folder of the search.
        workers: that train.
        interruption: whether a signal has requested a stop.
        on_change: called whenever a trial begins, is measured or ends.
    """

    candidates: Candidates
    study: Study
    search: SearchConfig
    run_dir: Path
    workers: Workers
    interruption: Interruption
    on_change: Callable[[], None]

    def __post_init__(self) -> None:
        self.running: dict[int, RunningTrial] = {}  # by number
        self._began = time.perf_counter()

    @property
    def stopped_by(self) -> str | None:
        """Return the reason to stop: a signal's name, or a sentence; None for no reason."""
        limit = self.search.max_minutes
        if self.interruption.requested is not None:
            return self.interruption.requested.name
        if limit is not None and time.perf_counter() - self._began >= 60.0 * limit:
            return f"max_minutes={limit:g} are over"
        return None

    def run(self) -> str | None:
        """Run trials; return unfinished ones to the study at the end.

        Returns:
            What stopped it; None if no trial was left to run.

        Raises:
            ValueError: If the objective's measure is not a metric of these runs.
            Stopped: On a signal during a compilation.
        """
        with self.study.driving():
            try:
                while self.stopped_by is None:
                    has_more = self._fill()
                    if not self.running and not has_more:
                        break
                    for result in self.workers.train():
                        self._take(result)
                return self.stopped_by
            finally:
                for running in list(self.running.values()):
                    self._leave(running)
                    self.study.release(running.trial)

    def _fill(self) -> bool:
        """Ask for as many trials as fit; return whether there may be more."""
        while self.workers.room >= self.search.num_seeds:
            trial = None if self.stopped_by is not None else self.study.ask()
            if trial is None:
                return False
            try:
                candidate = self.candidates.make(trial.params)
            except ValueError as error:
                self.study.fail(trial, str(error))
                continue
            self._begin(trial, candidate)
            self.on_change()
        return True

    def _begin(self, trial: Trial, candidate: Candidate) -> None:
        """Begin every run of a trial."""
        folder = trial_folder(self.run_dir, trial.number)
        # From a process that did not finish the trial.
        shutil.rmtree(folder, ignore_errors=True)
        running = self.running[trial.number] = RunningTrial(trial)
        learner, config = candidate.learner, candidate.config
        for offset in range(self.search.num_seeds):
            own = replace(config, seed=config.seed + offset)
            place = folder if self.search.num_seeds == 1 else folder / f"seed-{own.seed}"
            name = RunName(trial.number, offset)
            running.records[name] = TrialRecord(learner, own, candidate.env_params, place)
            self.workers.begin(name, candidate, place)

    def _take(self, result: IntermediateResult) -> None:
        """Record an intermediate result, and report its trial's value if all runs are this far."""
        running = self.running.get(result.name.trial)
        if running is None:
            return  # meanwhile another of its runs failed, or the trial was ended
        running.records[result.name].add(result)
        if result.error is not None:
            self._leave(running)
            self.study.fail(running.trial, result.error)
        else:
            values = running.values.setdefault(result.env_steps, {})
            values[result.name] = result.value
            if len(values) == len(running.records):
                del running.values[result.env_steps]
                self._judge(running, result, list(values.values()))
        self.on_change()

    def _judge(
        self, running: RunningTrial, result: IntermediateResult, values: list[float | None]
    ) -> None:
        """Report a trial's present value to the study, and end the trial if pruned or complete."""
        known = [value for value in values if value is not None and np.isfinite(value)]
        whole = len(known) == len(values)
        ends = whole and self.study.report(running.trial, float(np.mean(known)), result.env_steps)
        if not (result.is_over or ends):
            return
        self._leave(running)
        if not result.is_over:
            self.study.prune(running.trial)
        elif whole:
            self.study.complete(running.trial, float(np.mean(known)))
        else:
            measure = self.candidates.config.objective.measure
            self.study.fail(running.trial, f"at its end there was no finite number {measure!r}")

    def _leave(self, running: RunningTrial) -> None:
        """End the runs of a trial, and save their policies."""
        del self.running[running.trial.number]
        for name, record in running.records.items():
            self.workers.end(name)
            record.close()
