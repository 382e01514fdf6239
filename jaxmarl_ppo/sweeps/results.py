"""Results of the trials of a search, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from jaxmarl_ppo.config.search import Space
from jaxmarl_ppo.runs.files import TRIALS
from jaxmarl_ppo.sweeps.study import REASON

_STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial.

    Attributes:
        number: index of the trial, from 0.
        state: `"complete"`, `"pruned"`, `"failed"`, `"running"`, or `"waiting"` to be run again.
        value: newest value of the objective; None if there is none.
        values: values that the trial tries, by path.
        reports: value of the objective by environment steps.
        reason: why it failed; None if it did not.
        seconds: duration in seconds; None before its end.
        run_dir: folder of its run, or of the runs of its seeds.
    """

    number: int
    state: str
    value: float | None
    values: Mapping[str, Any]
    reports: Mapping[int, float]
    reason: str | None
    seconds: float | None
    run_dir: Path


@dataclass(frozen=True)
class SweepResult:
    """Result of a search.

    Attributes:
        run_dir: folder of the search.
        trials: all trials so far, including those of other processes.
        best: best completed trial; None if there is none.
        num_trials: total number of trials.
        stopped_by: what stopped this process: a signal's name, or a sentence; None if no trial was
            left to run.
    """

    run_dir: Path
    trials: Sequence[TrialResult]
    best: TrialResult | None
    num_trials: int
    stopped_by: str | None

    def __repr__(self) -> str:
        over = sum(trial.state in ("complete", "pruned", "failed") for trial in self.trials)
        best = "" if self.best is None else f", best {self.best.value:g} of {self.best.number}"
        return f"SweepResult({over} of {self.num_trials} trials in {str(self.run_dir)!r}{best})"


def trial_folder(run_dir: Path, number: int) -> Path:
    """Name the folder of a trial."""
    return run_dir / TRIALS / f"{number:06d}"


def trial_result(trial: FrozenTrial, space: Space, run_dir: Path) -> TrialResult:
    """Describe a trial of Optuna."""
    reports = dict(sorted(trial.intermediate_values.items()))
    ended = trial.state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    newest = next(reversed(reports.values()), None)
    return TrialResult(
        number=trial.number,
        state=_STATES[trial.state],
        value=trial.value if trial.state == TrialState.COMPLETE else newest,
        values={path: space[path].value_of(label) for path, label in trial.params.items()},
        reports=reports,
        reason=trial.user_attrs.get(REASON),
        seconds=trial.duration.total_seconds() if ended and trial.duration else None,
        run_dir=trial_folder(run_dir, trial.number),
    )


def best_of(trials: Sequence[TrialResult], goal: str) -> TrialResult | None:
    """Find the best of the complete trials; None if none is complete."""
    sign = 1.0 if goal == "minimise" else -1.0
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return min(complete, key=lambda trial: sign * (trial.value or 0.0), default=None)
