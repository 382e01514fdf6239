"""Searches over configurations, from their settings to their results."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from jaxmarl_envs.check import quick_check
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.annotations import field_metadata
from jaxmarl_ppo.config.checks import check_bool, check_path
from jaxmarl_ppo.config.env_as_json import params_to_json
from jaxmarl_ppo.config.printing import print_settings
from jaxmarl_ppo.config.run_file import Settings
from jaxmarl_ppo.config.schema import check_space
from jaxmarl_ppo.config.search import SearchConfig, Space
from jaxmarl_ppo.config.search_file import read_search, read_space
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import check_arguments
from jaxmarl_ppo.machine.files import reject_link, write_atomically
from jaxmarl_ppo.machine.interruption import Interruption, Stopped, call_interruptibly
from jaxmarl_ppo.runs import files as run_files
from jaxmarl_ppo.runs.files import (
    BEST_FILE,
    CONFIG_FILE,
    LOCK_FILE,
    SEARCH_FILE,
    STUDY_FILE,
    TRIALS,
)
from jaxmarl_ppo.runs.run_folder import check_unused, new_run_dir, read_run, run_record
from jaxmarl_ppo.sweeps.candidates import Candidates, check_trials
from jaxmarl_ppo.sweeps.driver import Driver
from jaxmarl_ppo.sweeps.page import PAGE_FILE, sweep_page
from jaxmarl_ppo.sweeps.progress import SweepProgress
from jaxmarl_ppo.sweeps.results import SweepResult, TrialResult, best_of, trial_result
from jaxmarl_ppo.sweeps.samplers import count_trials
from jaxmarl_ppo.sweeps.storage import database_url, open_locks, open_storage, without_password
from jaxmarl_ppo.sweeps.study import Study
from jaxmarl_ppo.sweeps.trial_run import measurement_interval
from jaxmarl_ppo.sweeps.worker import Worker
from jaxmarl_ppo.sweeps.workers import Workers
from jaxmarl_ppo.types import PyTree

# Makes workers from candidates and the number of runs that each trains side by side.
MakeWorkers = Callable[[Candidates, int], Workers]

# Name of a search in a separate database.
_STUDY = "search"


class Sweep:
    """Searches a space for the configuration with the best objective.

    All errors are raised here, before anything is compiled: the runs at the ends of the space are
    made as by a trainer.

    Args:
        env: the environment.
        env_params: its parameters.
        config: common to all runs; its `objective` is compared at its `evaluation`, or else at log
            entries.
        space: to search: `Range` and `Choices` by paths of the configuration, such as
            `default_ppo.learning_rate`.
        search: its configuration.
        run_dir: the folder of the search; the folder of the same search resumes it. None for
            `runs/<env>-search-<timestamp>`.
        progress: whether to show progress on standard output.
        check_env: as for `Trainer`.

    Raises:
        ValueError: If the configuration is inconsistent, or the run folder is in use.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        env_params: PyTree,
        config: TrainConfig,
        space: Space,
        search: SearchConfig | None = None,
        run_dir: str | Path | None = None,
        *,
        progress: bool = True,
        check_env: bool = True,
    ) -> None:
        self.search = SearchConfig() if search is None else search
        check_arguments(env, env_params, config)
        space = check_space(space)
        _check_base(env, config)
        if run_dir is not None:
            check_path("run_dir", run_dir)
        check_bool("progress", progress)
        if check_bool("check_env", check_env):
            quick_check(env, env_params)
        self.num_trials = count_trials(self.search, space)
        self.space, self.config = space, config
        self._candidates = Candidates(env, env_params, config, space)
        self._candidates.check()
        self._show_progress = progress
        self.run_dir = self._choose_run_dir(run_dir)
        self._kept: int | None = None
        self._url = database_url(self.search.storage, self.run_dir)

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        *,
        env: MultiAgentEnv | str | None = None,
        progress: bool = True,
        check_env: bool = True,
        allow_imports: Sequence[str] = (),
        **changes: Any,
    ) -> "Sweep":
        """Make a search from its folder, to resume it.

        Args:
            run_dir: the folder.
            env: as in `load_run`, for a custom environment.
            progress: as for a new search.
            check_env: as for a new search.
            allow_imports: as in `load_run`.
            **changes: fields of `SearchConfig` that are `resumable`, such as `num_trials`.

        Raises:
            ValueError: If there is no search, or it cannot be resumed this way.
        """
        folder = Path(run_dir)
        if not (folder / SEARCH_FILE).is_file():
            raise ValueError(f"{str(run_dir)!r} is not the folder of a search")
        recorded = read_run(folder, env=env, allow_imports=allow_imports)
        said = as_json.read_json(folder / SEARCH_FILE)
        search = read_search({**said.get("search", {}), **changes})
        return cls(
            recorded.env,
            recorded.env_params,
            recorded.config,
            read_space(said.get("space", {})),
            search,
            folder,
            progress=progress,
            check_env=check_env,
        )

    @property
    def env(self) -> MultiAgentEnv:
        """The environment."""
        return self._candidates.env

    def run(self, make_workers: MakeWorkers | None = None) -> SweepResult:
        """Run trials until there are enough, or a signal or the time limit stops it.

        Other processes may run trials of the same search at the same time. If this one is stopped
        or killed, the study stays intact: unfinished trials are run again by any process that
        continues.

        Args:
            make_workers: makes the workers, such as `RayCluster("auto").workers`; None for this
                process.

        Raises:
            ValueError: If the run folder or the study is of another search, the database cannot be
                used, or the objective's measure is not a metric of these runs.
        """
        study = self._claim()
        progress = SweepProgress(self._show_progress, self._title(), self.num_trials, self.config)
        with progress, Interruption(progress.show_stopping) as interruption:

            def tell() -> None:
                results = self._results(study)
                progress.show(results)
                self._keep_best(results)

            if make_workers is None:
                call = functools.partial(self._compile, interruption)
                workers = Worker(self.search.num_members, call=call)
            else:
                workers = make_workers(self._candidates, self.search.num_members)
            with contextlib.closing(workers):
                stopped_by = Driver(
                    self._candidates, study, self.search, self.run_dir, workers, interruption, tell
                ).run()
            tell()
        return self._result(study, stopped_by)

    def _compile(self, interruption: Interruption, function: Callable[[], Any]) -> None:
        """Call a compilation in this process, which a signal ends.

        Raises:
            Stopped: On a signal.
        """
        try:
            call_interruptibly(function, interruption)
        except Stopped as error:
            raise Stopped(
                f"stopped during compilation; trials that are over stay in {self.run_dir}",
                error.signal,
            ) from None

    def _result(self, study: Study, stopped_by: str | None) -> SweepResult:
        """Collect the results so far, and write them as a page."""
        trials, objective = self._results(study), self.config.objective
        best = best_of(trials, objective.goal)
        result = SweepResult(self.run_dir, trials, best, self.num_trials, stopped_by)
        name = self._candidates.env.name
        page = sweep_page(name, result, self.space, objective, study.importance())
        page.save(self.run_dir / PAGE_FILE)
        return result

    def _results(self, study: Study) -> list[TrialResult]:
        return [trial_result(trial, self.space, self.run_dir) for trial in study.trials()]

    def _keep_best(self, trials: list[TrialResult]) -> None:
        """Write the best configuration so far as a file that trains it again."""
        best, made = best_of(trials, self.config.objective.goal), self._candidates.env.made_as
        if best is None or made is None or best.number == self._kept:
            return
        labels = {path: self.space[path].label_of(value) for path, value in best.values.items()}
        candidate = self._candidates.make(labels)
        name, kwargs = made
        settings = Settings(name, None, candidate.config, kwargs)
        text = print_settings(settings, params_to_json(candidate.env_params), "toml")
        write_atomically(self.run_dir / BEST_FILE, text.encode())
        self._kept = best.number

    def _open_study(self) -> Study:
        name = self.search.study or (_STUDY if self.search.storage is None else self.run_dir.name)
        locks = open_locks(self._url, self.run_dir, name)
        step = self.config.env_steps(1)
        return Study(
            open_storage(self._url, locks),
            name,
            locks,
            self.space,
            self.search,
            self.config.objective.goal,
            (measurement_interval(self.config) * step, self.config.num_iterations * step),
            self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        """Describe the settings common to all trials, which must stay the same."""
        candidates, search = self._candidates, self.search
        record = run_record(candidates.env, candidates.env_params, self.config)
        metadata = field_metadata(SearchConfig)
        fixed = [name for name, each in metadata.items() if not each.resumable]
        return {
            "env": record["env"],
            "config": record["config"],
            "space": as_json.to_plain(self.space),
            "search": {name: getattr(search, name) for name in fixed},
        }

    def _choose_run_dir(self, run_dir: str | Path | None) -> Path:
        if run_dir is not None and (Path(run_dir) / SEARCH_FILE).is_file():
            return Path(run_dir)
        return new_run_dir(run_dir, f"{self._candidates.env.name}-search")

    def _claim(self) -> Study:
        """Claim the folder for this search, unless it already has it, and open the study.

        Raises:
            ValueError: If the folder or the study is of something else.
        """
        folder = self.run_dir
        folder.mkdir(parents=True, exist_ok=True)
        _reject_links(folder)
        # Other drivers of the same search may do so at the same time.
        with FileLock(folder / LOCK_FILE):
            if not (folder / SEARCH_FILE).is_file():
                check_unused(folder)
                self._write_down()
            study = self._open_study()
            self._write_down()  # settings that may differ from the last time
        return study

    def _write_down(self) -> None:
        candidates, search = self._candidates, asdict(self.search)
        record = run_record(candidates.env, candidates.env_params, self.config)
        as_json.write_json(self.run_dir / CONFIG_FILE, record)
        search["storage"] = without_password(self.search.storage)
        said = {"space": as_json.to_plain(self.space), "search": search}
        as_json.write_json(self.run_dir / SEARCH_FILE, said)

    def _title(self) -> str:
        search, config = self.search, self.config
        seeds = "" if search.num_seeds == 1 else f" x {search.num_seeds} seeds"
        return (
            f"{self._candidates.env.name} | {search.sampler}, pruner {search.pruner} | "
            f"{self.num_trials} trials{seeds} of {config.total_env_steps:,} environment steps, "
            f"{search.num_members} runs at once | {self.run_dir}"
        )


def _reject_links(folder: Path) -> None:
    """Reject links among the files and folders that a search writes to.

    Raises:
        ValueError: If there is one.
    """
    beside_study = (f"{STUDY_FILE}-{suffix}" for suffix in ("journal", "wal", "shm"))
    for name in (LOCK_FILE, STUDY_FILE, *beside_study, TRIALS):
        reject_link(folder / name)
    for trial in (folder / TRIALS).glob("*"):
        reject_link(trial)
        for run in trial.glob("*/"):
            reject_link(run)
            run_files.reject_links(run)


def _check_base(env: MultiAgentEnv, config: TrainConfig) -> None:
    """Reject a configuration that no search can start from.

    Raises:
        ValueError: If something is missing, or would have no effect.
    """
    if config.objective.measure is None:
        raise ValueError(
            "a search needs an objective: set objective.measure, such as "
            "evaluation/all/return_mean, and objective.goal"
        )
    check_trials(env, config)
