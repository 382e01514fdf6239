"""The host side of training: compile, run, and save the result."""

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn

from jaxmarl_envs.check import quick_check
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_code import HostEnvironmentError, host_errors
from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.checks import check_bool, check_path
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.joining import current
from jaxmarl_ppo.devices.processes import FirstFailed, ProcessesDiffer
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.build import check_arguments, fused_options, make_learner, unfused
from jaxmarl_ppo.machine import awake
from jaxmarl_ppo.machine.cores import MIN_ENVS_PER_DEVICE
from jaxmarl_ppo.machine.interruption import Interruption, call_interruptibly
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.callbacks import (
    Callback,
    CallbackError,
    Callbacks,
    Control,
    RunInfo,
    TrainResult,
    as_callbacks,
    name_of,
)
from jaxmarl_ppo.runs.lock import check_free
from jaxmarl_ppo.runs.log import JsonLinesLogger, TensorBoardLogger
from jaxmarl_ppo.runs.place import RunFolders
from jaxmarl_ppo.training import jobs, resume
from jaxmarl_ppo.training.changing import Changing
from jaxmarl_ppo.training.claim import claimed
from jaxmarl_ppo.training.conditions import Until
from jaxmarl_ppo.training.display import make_progress
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.loop import Loop, Surroundings
from jaxmarl_ppo.training.objective import Objective, check_measure
from jaxmarl_ppo.training.outcome import Logged, name_of_run
from jaxmarl_ppo.training.pbt_group import check_members
from jaxmarl_ppo.training.progress import Progress
from jaxmarl_ppo.training.rescue import rescue
from jaxmarl_ppo.training.resume import Found
from jaxmarl_ppo.training.saving import GroupSaver, Saver
from jaxmarl_ppo.training.seed_group import make_runs, member_dir, member_name, seeds_of
from jaxmarl_ppo.training.setup import SetUp, set_up_group, set_up_run
from jaxmarl_ppo.training.time_split import TimeSplit
from jaxmarl_ppo.types import PyTree

LOG_ENTRIES = 100
# Errors that all processes of a job raise together.
_IN_STEP = (EnvironmentFault, TrainingDiverged, CallbackError, FirstFailed, ProcessesDiffer)


class Trainer:
    """Trains policies on an environment and records the run in a folder.

    All errors in the configuration are raised here, before anything is compiled.

    Args:
        env: the environment.
        env_params: its parameters.
        config: the run.
        run_dir: where to keep the record; it must be empty or not exist. None for
            `runs/<env>-<network>-seed<seed>-<timestamp>`.
        callbacks: notified of events, each a `Callback` or a function of a log entry; a True result
            ends the run.
        progress: whether to show progress on standard output.
        keep_cores_awake: whether processes of the lowest priority keep CPU cores from sleeping
            during the short waits of training. On a virtual machine that trains on all cores this
            adds a quarter of speed; the machine then looks busy.
        check_env: whether to check the environment first, which takes some tenths of a second; see
            `jaxmarl_envs.quick_check`.
        num_seeds: number of runs to train side by side, with the configuration's seed and the
            following ones; None for `TrainConfig.num_seeds`.

    Raises:
        ValueError: If the configuration is inconsistent, the environment is faulty, or the run
            folder is in use.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        env_params: PyTree,
        config: TrainConfig | None = None,
        run_dir: str | Path | None = None,
        *,
        callbacks: Sequence[Callback | Callable[[Mapping[str, Any]], Any]] = (),
        progress: bool = True,
        keep_cores_awake: bool = False,
        check_env: bool = True,
        num_seeds: int | None = None,
        _found: Found | None = None,
    ) -> None:
        config = TrainConfig() if config is None else config
        check_arguments(env, env_params, config)
        if num_seeds is not None:
            config = dataclasses.replace(config, num_seeds=num_seeds)
        if run_dir is not None:
            check_path("run_dir", run_dir)
        check_bool("progress", progress)
        check_bool("check_env", check_env)
        check_bool("keep_cores_awake", keep_cores_awake)
        self._callbacks = as_callbacks(callbacks)
        if keep_cores_awake:
            awake.check_possible()
        if check_env:
            quick_check(env, env_params)
        self.env = env
        self.env_params = env_params
        self.config = config
        self._run_dir = run_dir
        self._found = _found
        self._resumption = None if _found is None else _found.resumption
        self._run_id: str | None = None
        self._processes = current()
        self._show_progress = progress and self._processes.is_first
        if self._processes.is_first:
            self._choose_run_dir()
        if config.pbt is not None and _found is None:
            check_members(env, env_params, config)
        self._seeds = seeds_of(config, is_resumed=_found is not None)
        of_one = self._seeds[0] if self._is_group else config
        # A recorded run may have options without effect, after a change of version or length.
        self.learner = make_learner(env, env_params, of_one, strict=_found is None)
        jobs.check_able(self._processes, self.learner, config)
        self._compiled = make_runs(self.learner, config)
        self._evaluator = (
            None
            if config.evaluation.every_env_steps is None
            else MeanwhileEvaluator(self.learner, config)
        )
        self._objective()
        check_measure(config.objective.measure, self.learner, self._evaluator)
        self._until()
        self._changing = Changing(
            self.learner, config, of_one, self._evaluator, quick_check if check_env else None
        )
        self._keep_awake = keep_cores_awake

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        *,
        total_env_steps: int | None = None,
        num_devices: int | None = None,
        max_minutes: float | None = None,
        until: Sequence[str] | None = None,
        env: MultiAgentEnv | str | None = None,
        network: nn.Module | None = None,
        config: TrainConfig | None = None,
        allow_imports: Sequence[str] = (),
        changes: Mapping[str, Any] | None = None,
        without_callbacks: bool = False,
        **kwargs: Any,
    ) -> "Trainer":
        """Make a trainer that resumes a run from its newest checkpoint.

        The result equals that of an uninterrupted run bit-for-bit, unless one of the first two
        arguments changes it. Random numbers, optimisers, environments, recurrent state and
        incomplete transitions are restored. A damaged checkpoint is skipped with a warning, and the
        previous one is used; one that cannot be read for another reason is an error. A run that was
        killed before its first checkpoint starts again from its record.

        Args:
            run_dir: the folder of the run, which is also used from here on.
            total_env_steps: another length of the complete run. Schedules over the complete run
                (`Linear`) are stretched to it: from here on they have the values of a run of that
                length.
            num_devices: another number of devices, which changes random draws from here on.
            max_minutes: another time limit, for this and later sessions.
            until: other conditions to end on; empty to train to the complete length.
            env: as in `load_run`, for a custom environment.
            network: needed where `default_policy.network` was a custom module.
            config: needed where other parts of it cannot be rebuilt from a file. It may differ in
                settings that do not affect learning: length, devices, log, checkpoints, evaluation,
                objective, conditions to end on and time limit.
            allow_imports: as in `load_run`, further names of code.
            changes: other values of settings that do not affect learning, by path as in a file,
                such as `{"evaluation.every_env_steps": 1e6}`.
            without_callbacks: resume a run whose callbacks changed parameters of it (`Control.set`)
                without them; the parameters keep their newest values.
            **kwargs: as for a new trainer: `callbacks`, `progress`, `keep_cores_awake`,
                `check_env`.

        Raises:
            ValueError: If there is no run, or it cannot be resumed this way.
        """
        given = {
            "total_env_steps": total_env_steps,
            "num_devices": num_devices,
            "max_minutes": max_minutes,
            "until": until,
        }
        given = {name: value for name, value in given.items() if value is not None}
        given |= changes or {}
        found = resume.find(run_dir, given, env, network, config, allow_imports)
        callbacks = as_callbacks(kwargs.get("callbacks", ()))
        resume.check_setters(found, [name_of(each) for each in callbacks], without_callbacks)
        return cls(
            found.env,
            found.env_params,
            found.config,
            run_dir,
            _found=found,
            **kwargs,
        )

    def train(self) -> TrainResult:
        """Train to the end, or until something stops it, and save.

        Ctrl-C and termination signals (SIGTERM, SIGHUP, SIGUSR1) end the run after the present
        slice of about half a second, with a checkpoint for `resume`. An iteration is never
        interrupted. A second Ctrl-C raises `KeyboardInterrupt` at once, as does a first signal
        during compilation.

        Raises:
            EnvironmentFault: If the environment produced NaN, infinity or no legal action. The
                parameters from before are saved.
            TrainingDiverged: If parameters are no longer finite. The last finite ones are saved.
            CallbackError: If a callback failed. The trained parameters are saved.
            HostEnvironmentError: If an environment in plain Python failed. The trained parameters
                are saved.
            RunFolderMoved: If the run folder was renamed or removed. The error names where the
                trained parameters are saved.
            ValueError: If the run folder is now in use, or cannot hold a run.
        """
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._processes.ending_together(*_IN_STEP))
            self._run_id = uuid.uuid4().hex if self._found is None else self._found.run_id
            folder = self._agreed_run_dir()
            place = stack.enter_context(self._claimed(folder))
            progress = self._make_progress(folder)
            stack.enter_context(awake.cores_awake(self._keep_awake))
            stack.enter_context(progress)
            interruption = Interruption(lambda: progress.set_phase("stopping"))
            stack.enter_context(interruption)
            progress.set_phase("compiling")
            with host_errors():
                set_up = self._set_up(folder, interruption)
            self._processes.where_saved = f"; what was saved before stays in {folder}"
            loop = self._make_loop(set_up, folder, place, progress, interruption, began)
            return self._run(loop, stack)

    def _run(self, loop: Loop, stack: contextlib.ExitStack) -> TrainResult:
        """Run the loop, and save however it ends."""
        around = loop.around
        stack.callback(around.saver.close)
        if around.time_split is not None:
            stack.callback(around.time_split.close)
        if self._processes.is_first:
            loggers = [JsonLinesLogger(), TensorBoardLogger()]
            for logger in loggers:
                stack.callback(logger.close)
            around.callbacks.add(*loggers, *self._callbacks)
        around.progress.set_phase("training")
        error: Exception | None = None
        try:
            loop.notify("on_start", self._run_info(loop))
            with host_errors():
                loop.run()
            loop.leave()
            loop.finish_saving()
        except HostEnvironmentError as raised:
            trained = f"{loop.trained.last_finite_env_steps:,} environment steps"
            saved = f"the policies of {trained} are saved in {around.run_dir}"
            sentence = f"{raised.sentence}; {saved}"
            error = HostEnvironmentError(sentence, raised.trace)
        except Exception as raised:
            error = raised
            if isinstance(error, CallbackError | FirstFailed):
                self._leave_in_spite_of(loop, error)
        error = rescue(loop, error)
        result = self._save(loop, error)
        around.callbacks.notify("on_end", result)
        if error is not None:
            raise error
        # The other processes must wait until everything is saved.
        self._processes.agree("end", lambda: None)
        return result

    def _leave_in_spite_of(self, loop: Loop, error: Exception) -> None:
        """Save a run that a callback has ended; ignore a second failure."""
        self._processes.fail_in_step(error)
        try:
            loop.leave()
        except CallbackError as second:
            self._processes.fail_in_step(second)
        except FirstFailed:
            pass

    def _set_up(self, folder: Path, interruption: Interruption) -> SetUp:
        """Compile, and make the run or group to train, new or resumed."""
        config, resumption = self.config, self._resumption
        # A second run of the same trainer needs no compilation.
        call_interruptibly(self._compiled.compile, interruption)
        further = self._evaluator, resumption, self._changing
        if self._is_group:
            return set_up_group(self._compiled, config, folder, self._seeds, *further)
        return set_up_run(self._compiled, config, folder, *further)

    def _make_loop(
        self,
        set_up: SetUp,
        folder: Path,
        place: RunFolders | None,
        progress: Progress,
        interruption: Interruption,
        began: float,
    ) -> Loop:
        """Make the loop of a new or resumed run."""
        resumption = self._resumption
        devices = Devices(self.learner.num_devices)
        make_saver = GroupSaver if self._is_group else Saver
        around = Surroundings(
            config=self.config,
            record=self._record(),
            run_dir=folder,
            log_interval=self.log_interval,
            callbacks=Callbacks(folder, (), self._control()),
            progress=progress,
            interruption=interruption,
            saver=make_saver(
                folder,
                self.config.checkpoints,
                self.config.env_steps(1),
                None if resumption is None else resumption.best,
                self._processes,
            ),
            objective=self._objective(),
            until=self._until(),
            place=place,
            time_split=None if self._is_group else TimeSplit(self.learner, devices),
            processes=self._processes,
        )
        loop = Loop(around, set_up.trained, began, set_up.history, set_up.evaluations)
        if resumption is None:
            return loop
        position = resumption.position
        return dataclasses.replace(
            loop,
            iteration=position.iteration,
            logged_iteration=position.logged_iteration,
            earlier_s=position.wall_s,
        )

    def _save(self, loop: Loop, error: Exception | None) -> TrainResult:
        """Save the newest finite policies, the curve and the report."""
        around, trained = loop.around, loop.trained
        around.progress.set_phase("saving")
        interrupted = loop.iteration < self.config.num_iterations
        stopped_by = None if error is None else f"{type(error).__name__}: {error}"
        result = TrainResult(
            state=trained.state,
            population=trained.compiled.averaged(trained.state),
            history=loop.history,
            evaluations=loop.evaluations,
            run_dir=around.run_dir,
            env_steps=self.config.env_steps(loop.iteration),
            interrupted=interrupted,
            stopped_by=stopped_by or (loop.stopped_by if interrupted else None),
            failed=error is not None,
        )
        logged = Logged(around.run_dir, self.config, around.record, loop.history, loop.evaluations)
        if self._processes.is_first:
            result = trained.end(result, logged)
        around.progress.set_phase("stopped" if interrupted else "done")
        return result

    def _run_info(self, loop: Loop) -> RunInfo:
        return RunInfo(
            run_dir=loop.around.run_dir,
            config=self.config,
            record=loop.around.record,
            env_name=self.env.name,
            resumed_at=self.config.env_steps(loop.iteration),
            history=tuple(loop.history),
            evaluations=tuple(loop.evaluations),
            control=loop.around.callbacks.control,
        )

    def _control(self) -> Control:
        recorded = None if self._resumption is None else self._resumption.position.changes
        values = {} if recorded is None else recorded["values"]
        return Control(self._changing.check, values, self.config.log_interval is None)

    def _objective(self) -> Objective:
        if self._resumption is None:
            return Objective(self.config, self.learner)
        position = self._resumption.position
        return Objective(self.config, self.learner, position.best, position.num_worse)

    def _until(self) -> Until:
        return Until(self.config, self.learner, self._evaluator)

    def _record(self) -> dict[str, Any]:
        config = self.config
        # Nothing depends on the devices of a group whose members have one each.
        if not self._is_group or self.learner.num_devices > 1:
            config = dataclasses.replace(config, num_devices=self._compiled.num_devices)
        return run_folder.run_record(self.env, self.env_params, config, self._run_id)

    def _record_of_member(self, own: TrainConfig) -> dict[str, Any]:
        """Make the record of a group's member; its id is derived from the group's."""
        run_id = None if self._run_id is None else f"{self._run_id}-{member_name(own)}"
        return run_folder.run_record(self.env, self.env_params, own, run_id)

    def _agreed_run_dir(self) -> Path:
        """Check that all processes agree, and choose the folder for all."""
        if self._processes.count > 1:
            jobs.check_alike(self._processes, self._record(), self._run_dir, self._resumption)
        return Path(self._processes.agree("run folder", lambda: str(self._choose_run_dir())))

    @contextlib.contextmanager
    def _claimed(self, folder: Path) -> Iterator[RunFolders | None]:
        """Claim a folder for this run, and remove it if nothing was trained."""
        if not self._processes.is_first:
            yield None
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(claimed(folder, self._record(), self._found))
            members = [member_dir(folder, own) for own in self._seeds]
            for member, own in zip(members, self._seeds, strict=True):
                stack.enter_context(claimed(member, self._record_of_member(own), self._found))
            place = RunFolders(folder, members)
            stack.callback(place.close)
            yield place

    @property
    def _is_group(self) -> bool:
        return self.config.num_seeds > 1

    def _choose_run_dir(self) -> Path:
        if self._run_dir is not None:
            check_free(Path(self._run_dir))
        if self._found is not None:
            return self._found.run_dir
        return run_folder.new_run_dir(self._run_dir, self._name)

    @property
    def title(self) -> str:
        """Return a one-line title: environment, network, sizes, seeds and devices."""
        config = self.config
        seeds = f"seed {config.seed}"
        if self._is_group:
            seeds += f" to {config.seed + config.num_seeds - 1}"
        return (
            f"{self.env.name} | {as_json.network_kind(config.default_policy.network)} | "
            f"{config.num_envs} envs x {config.num_steps} steps | "
            f"{seeds} | {self._devices_in_words()}{self._kernels_in_words()}"
        )

    def _make_progress(self, folder: Path) -> Progress:
        config, title = self.config, f"{self.title} | {folder}"
        policies = self.learner.players.policies
        total = self.config.env_steps(config.num_iterations)
        return make_progress(self._show_progress, title, total, self.env.agents, policies)

    def _kernels_in_words(self) -> str:
        """Say what is computed in kernels of small networks, if asked for, and where it is not."""
        names = fused_options(self.config)
        if not names:
            return ""
        players = self.learner.players
        others = unfused(players, players.policy_groups)
        words = ", ".join(name.replace("_", " ") for name in names)
        return f" | {words}" + (f", not of {'; '.join(others)}" if others else "")

    def _devices_in_words(self) -> str:
        """Describe the number and kind of devices that train, and why not all do."""
        used, there = self._compiled.num_devices, jax.device_count()
        words = f"{used} {jax.default_backend()} device" + ("s" if used > 1 else "")
        if self._processes.count > 1:
            words += f" in {self._processes.count} processes"
        if used == there:
            return words
        why = f"each takes an equal share of {self.config.num_envs} envs, at least "
        why += str(MIN_ENVS_PER_DEVICE)
        if self.config.num_devices is not None:
            why = "as asked for"
        elif self._is_group:
            why = f"each of {self.config.num_seeds} seeds has as many"
        elif self.env.steps_on_host:
            why = "this environment is stepped by the host"
        return f"{words} of {there} ({why})"

    @property
    def log_interval(self) -> int:
        """Iterations per log entry: as configured, or for about a hundred entries."""
        if self.config.log_interval is not None:
            return self.config.log_interval
        if self._resumption is not None:
            return self._resumption.position.log_interval
        return max(1, self.config.num_iterations // LOG_ENTRIES)

    @property
    def _name(self) -> str:
        """Name the run, for its folder."""
        which = f"{self.config.num_seeds}seeds" if self._is_group else f"seed{self.config.seed}"
        return f"{name_of_run(self.env, self.config)}-{which}"
