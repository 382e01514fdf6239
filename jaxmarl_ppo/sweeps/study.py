"""The trials of a search, in a database that several processes may share.

One process at a time asks for a trial, under a lock, so that there are exactly as many as wanted.
Each process holds its own lock while it lives. A running trial whose process is dead is free, and
is taken next, with its number and values.
"""

import contextlib
import json
import math
import uuid
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.search import SearchConfig, Space
from jaxmarl_ppo.devices.processes import first_difference
from jaxmarl_ppo.sweeps.locks import Locks
from jaxmarl_ppo.sweeps.samplers import count_trials, distributions_of, make_pruner, make_sampler

# Attributes of a trial: its process, and the reason of a failure.
DRIVER, REASON = "driver", "reason"
_IDENTITY = "identity"  # attribute of the study: settings common to all trials
_ASK = "ask"
_DIRECTIONS: dict[str, Literal["maximize", "minimize"]] = {
    "maximise": "maximize",
    "minimise": "minimize",
}


class Study:
    """The study of a search that this process drives, possibly with others.

    Args:
        storage: the database.
        name: of the study in it.
        locks: of all its drivers.
        space: of the search.
        search: its configuration.
        goal: whether to maximise or minimise the objective.
        rungs: environment steps before the pruner first judges a trial, and in all.
        identity: settings that must be the same when the search is resumed, as JSON values.

    Raises:
        ValueError: If the study is another search.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        locks: Locks,
        space: Space,
        search: SearchConfig,
        goal: str,
        rungs: tuple[int, int],
        identity: Mapping[str, Any],
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.num_trials = count_trials(search, space)
        self._storage, self._locks = storage, locks
        self._space, self._search = space, search
        self._distributions = distributions_of(space)
        self._driver = f"driver-{uuid.uuid4().hex[:12]}"
        with locks.hold(_ASK):
            self.optuna_study = optuna.create_study(
                storage=storage,
                study_name=name,
                direction=_DIRECTIONS[goal],
                load_if_exists=True,
                pruner=make_pruner(search, *rungs),
            )
            self._check_identity(identity)

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Mark this process's trials as taken, as long as the body lasts."""
        with self._locks.hold(self._driver):
            yield

    def trials(self) -> list[FrozenTrial]:
        """List all trials in their present state, in order."""
        return self.optuna_study.get_trials(deepcopy=False)

    def importance(self) -> dict[str, float]:
        """Estimate each dimension's importance, as shares, by PED-ANOVA (Watanabe et al. 2023).

        Empty if there are too few trials.
        """
        values = {trial.value for trial in self.trials() if trial.state == TrialState.COMPLETE}
        if len(values) < 2:
            return {}
        with warnings.catch_warnings(), contextlib.suppress(ValueError, RuntimeError):
            warnings.simplefilter("ignore")
            return optuna.importance.get_param_importances(
                self.optuna_study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
            )
        return {}

    def ask(self) -> Trial | None:
        """Take a trial: an unfinished or a new one; None if there are enough."""
        with self._locks.hold(_ASK):
            self._free_trials_of_the_dead()
            trials = self.trials()
            # Optuna takes the first waiting trial. It may have no values yet, if its process died
            # while asking. The values that it draws now must differ from those of the next new
            # trial.
            waiting = [trial.number for trial in trials if trial.state == TrialState.WAITING]
            number = waiting[0] if waiting else len(trials)
            if not waiting and number >= self.num_trials:
                return None
            study = self.optuna_study
            study.sampler = make_sampler(self._search, self._space, number)
            trial = study.ask(self._distributions)
            trial.set_user_attr(DRIVER, self._driver)
            return trial

    def report(self, trial: Trial, value: float, env_steps: int) -> bool:
        """Report a trial's value so far; return whether it must end here."""
        if env_steps not in self._storage.get_trial(trial._trial_id).intermediate_values:
            trial.report(value, env_steps)
        return trial.should_prune()

    def complete(self, trial: Trial, value: float) -> None:
        """Report a trial's final value."""
        self._tell(trial, TrialState.COMPLETE, value)

    def prune(self, trial: Trial) -> None:
        """Report that a trial was pruned."""
        self._tell(trial, TrialState.PRUNED)

    def fail(self, trial: Trial, reason: str) -> None:
        """Report that a trial failed."""
        trial.set_user_attr(REASON, reason)
        self._tell(trial, TrialState.FAIL)

    def release(self, trial: Trial) -> None:
        """Return an unfinished trial to the study, for the next request."""
        with self._locks.hold(_ASK):
            if self._is_mine(trial):
                self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def _tell(self, trial: Trial, state: TrialState, value: float | None = None) -> None:
        assert value is None or math.isfinite(value)
        with self._locks.hold(_ASK):
            # It is not if a database took this process for dead and others continued.
            if self._is_mine(trial):
                self.optuna_study.tell(trial, value, state)

    def _is_mine(self, trial: Trial) -> bool:
        now = self._storage.get_trial(trial._trial_id)
        return now.state == TrialState.RUNNING and now.user_attrs.get(DRIVER) == self._driver

    def _free_trials_of_the_dead(self) -> None:
        lives = {self._driver: True}
        for trial in self.trials():
            if trial.state != TrialState.RUNNING:
                continue
            # One without a driver is an interrupted request, since requests hold the lock.
            driver = trial.user_attrs.get(DRIVER, "nobody")
            if driver not in lives:
                lives[driver] = self._locks.is_held(driver)
            if not lives[driver]:
                self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def _check_identity(self, identity: Mapping[str, Any]) -> None:
        """Reject resuming another search, and name the difference."""
        study = self.optuna_study
        known = study.user_attrs.get(_IDENTITY)
        identity = json.loads(json.dumps(identity))
        if known is None:
            study.set_user_attr(_IDENTITY, identity)
            return
        found = first_difference(known, identity)
        if found is not None:
            where, before, now = found
            raise ValueError(
                f"study {study.study_name!r} is another search: {where} is {show(now)} here and "
                f"{show(before)} there; give it a run folder, or a study, of its own"
            )
