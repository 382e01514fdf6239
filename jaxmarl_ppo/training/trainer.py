"""The host's side of training: have it compiled, call it, log, save, and stop well."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.check import quick_check
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.checks import check_bool, check_path
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compilation import TrainFn, compile_run
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.build import check_arguments, make_learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.learner.summary import summarise
from jaxmarl_ppo.machine import awake
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.machine.interruption import Interruption, call_interruptibly, wait_until_ready
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.callbacks import Callback, RunInfo, TrainResult
from jaxmarl_ppo.runs.curve import plot_curve
from jaxmarl_ppo.runs.files import CONFIG_FILE, CURVE_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.log import RunLog, peak_memory_mb
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.progress import Progress, make_progress
from jaxmarl_ppo.types import Population, PyTree, TrainState

# A slice of compiled iterations is to last about this long, so that Ctrl-C is soon heard.
SLICE_S = 0.5
# The next slice may have at most this many times the iterations of the last one.
SLICE_GROWTH = 8
LOG_ENTRIES = 100


@dataclass
class _Run:
    """Holds what changes while a run goes on."""

    state: TrainState
    good: Population  # the newest that is known to be finite, on the host
    no_metrics: Metrics  # the neutral element, on the host, where no donation uses it up
    folder: Path
    log: RunLog
    progress: Progress
    interruption: Interruption
    began: float  # by time.perf_counter: when training began, compilation included
    logged_at: float  # when the last entry was made, or compilation ended
    good_env_steps: int = 0
    iteration: int = 0
    decisions: int = 0
    slice_iterations: int = 1
    history: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """Trains policies on an environment and keeps a record in a folder.

    Everything that is wrong with the configuration shows here, before anything is compiled.

    Args:
        env: the environment.
        env_params: its parameters.
        config: the run.
        run_dir: where to keep the record; it must not exist or be empty. None for
            `runs/<env>-<network>-seed<seed>-<timestamp>`.
        callbacks: who is told what happens.
        progress: whether to show progress on standard output.
        keep_cores_awake: whether processes of the lowest priority keep the CPU's cores from falling
            asleep in the short waits of training. On a virtual machine all of whose cores train
            that is a quarter more speed; to others it looks like a busy machine.
        check_env: whether to look for what is wrong with the environment, which takes some tenths
            of a second; see `jaxmarl_envs.quick_check`.

    Raises:
        ValueError: what does not fit together, what is wrong with the environment, or a run folder
            in use.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        env_params: PyTree,
        config: TrainConfig | None = None,
        run_dir: str | Path | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        keep_cores_awake: bool = False,
        check_env: bool = True,
    ) -> None:
        config = TrainConfig() if config is None else config
        check_arguments(env, env_params, config)
        if run_dir is not None:
            check_path("run_dir", run_dir)
        check_bool("progress", progress)
        check_bool("check_env", check_env)
        check_bool("keep_cores_awake", keep_cores_awake)
        if keep_cores_awake:
            awake.check_possible()
        if check_env:
            quick_check(env, env_params)
        self.env = env
        self.env_params = env_params
        self.config = config
        self._run_dir = run_dir
        self._callbacks = tuple(callbacks)
        self._show_progress = progress
        self._claim_run_dir()
        self.learner = make_learner(env, env_params, self.config)
        self._keep_awake = keep_cores_awake

    def train(self) -> TrainResult:
        """Train to the end, or until Ctrl-C, and save.

        A first Ctrl-C ends the run after the present slice of about half a second (an iteration is
        never cut), with everything learnt saved; a second one raises `KeyboardInterrupt` at once.
        So does the first one while nothing is learnt yet, during compilation.

        Raises:
            EnvironmentFault: the environment gave NaN, infinity or no legal action. The parameters
                from before are saved.
            TrainingDiverged: parameters are not finite any more. The last finite ones are saved.
            ValueError: the run folder has come into use meanwhile.
        """
        began = time.perf_counter()
        folder = self._claim_run_dir()
        folder.mkdir(parents=True, exist_ok=True)
        progress = self._make_progress(folder)
        with (
            awake.cores_awake(self._keep_awake),
            progress,
            Interruption(lambda: progress.set_phase("stopping")) as interruption,
        ):
            with _removed_unless_used(folder):
                progress.set_phase("compiling")
                key = jax.random.key(self.config.seed)
                compiled = call_interruptibly(
                    lambda: compile_run(self.learner, Devices(self.learner.num_devices), key),
                    interruption,
                )
                state, no_metrics = compiled.init(key)
                record = self._write_record(folder)
                info = RunInfo(folder, self.config, record, self.env.name, 0, (), ())
                for callback in self._callbacks:
                    callback.on_start(info)
            with RunLog(folder) as log:
                population, no_metrics = jax.device_get((state.population, no_metrics))
                now = time.perf_counter()
                run = _Run(
                    state, population, no_metrics, folder, log, progress, interruption, began, now
                )
                progress.set_phase("training")
                try:
                    self._loop(run, compiled.train)
                except Exception:
                    self._save(run)
                    raise
                self._save(run)
        result = TrainResult(
            state=run.state,
            population=run.state.population,
            history=run.history,
            run_dir=folder,
            env_steps=self._env_steps(run.iteration),
            interrupted=run.iteration < self.config.num_iterations,
        )
        for callback in self._callbacks:
            callback.on_end(result)
        return result

    def _loop(self, run: _Run, train: TrainFn) -> None:
        interval = self.log_interval
        total = self.config.num_iterations
        while run.iteration < total and not run.interruption.requested:
            # Entries fall on multiples of the interval, whatever the slices were.
            metrics = self._interval(run, train, min(run.iteration + interval, total))
            self._check(run, metrics)
            self._log(run, metrics)

    def _interval(self, run: _Run, train: TrainFn, target: int) -> Metrics:
        """Train up to iteration `target`, in slices; an interruption ends it early.

        A slice adds its iterations to the metrics one by one, so how many there are to a slice
        changes no bit of them.
        """
        first = run.iteration
        metrics = run.no_metrics
        while run.iteration < target and not run.interruption.requested:
            count = min(run.slice_iterations, target - run.iteration)
            started = time.perf_counter()
            run.state, metrics = train(run.state, np.int32(count), metrics)
            wait_until_ready(metrics.sums.ticks)
            now = time.perf_counter()
            wanted = int(SLICE_S * count / (now - started))
            run.slice_iterations = max(1, min(wanted, SLICE_GROWTH * run.slice_iterations))
            run.iteration = int(run.state.iteration)
            rate = self._env_steps(run.iteration - first) / (now - run.logged_at)
            run.progress.advance(self._env_steps(run.iteration), rate)
            if metrics.fault.found:
                break
        return metrics

    def _check(self, run: _Run, metrics: Metrics) -> None:
        """Take the players as the ones to save, unless something is wrong with them."""
        population = jax.device_get(run.state.population)
        env_steps = self._env_steps(run.iteration)
        # Looked at first: parameters that are not finite make values that look like a fault.
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(population)):
            raise TrainingDiverged(env_steps, run.good_env_steps, run.folder)
        run.good, run.good_env_steps = population, env_steps
        if metrics.fault.found:
            fault = jax.device_get(metrics.fault)
            agent = self.env.agents[int(fault.agent)]
            raise EnvironmentFault(self.env.name, agent, fault, self.config.num_steps, run.folder)

    def _log(self, run: _Run, metrics: Metrics) -> None:
        summary = summarise(self.learner, metrics)
        now = time.perf_counter()
        seconds = now - run.logged_at
        run.logged_at = now
        run.decisions += summary["decisions"]
        entry = {
            "env_steps": self._env_steps(run.iteration),
            "decisions": run.decisions,
            "iteration": run.iteration,
            "wall_s": now - run.began,
            "env_steps_per_s": summary["env_steps"] / seconds,
            "decisions_per_s": summary["decisions"] / seconds,
            "decisions_per_tick": summary["decisions_per_tick"],
            "episodes": summary["episodes"],
            "policies": summary["policies"],
            "agents": summary["agents"],
            "peak_memory_mb": peak_memory_mb(),
        }
        if "league" in summary:
            entry["league"] = summary["league"]
        run.history.append(entry)
        run.log.write(entry)
        run.progress.show_entry(entry)
        for callback in self._callbacks:
            callback.on_log(entry)

    def _save(self, run: _Run) -> None:
        run.progress.set_phase("saving")
        path = run.folder / POLICIES_FILE
        save_population(path, self.learner.players.names, run.good)
        title = f"{self._name}, seed {self.config.seed}"
        plot_curve(run.history, self.env.agents, title, run.folder / CURVE_FILE)
        run.progress.set_phase("stopped" if run.iteration < self.config.num_iterations else "done")

    def _write_record(self, folder: Path) -> dict[str, Any]:
        config = dataclasses.replace(self.config, num_devices=self.learner.num_devices)
        record = run_folder.run_record(self.env, self.env_params, config)
        content = as_json.dump_json(record, indent=2) + "\n"
        write_atomically(folder / CONFIG_FILE, content.encode())
        return record

    def _claim_run_dir(self) -> Path:
        return run_folder.new_run_dir(self._run_dir, f"{self._name}-seed{self.config.seed}")

    def _make_progress(self, folder: Path) -> Progress:
        config = self.config
        title = (
            f"{self.env.name} | {as_json.network_kind(config.default_policy.network)} | "
            f"{config.num_envs} envs x {config.num_steps} ticks | "
            f"seed {config.seed} | {jax.default_backend()} | {folder}"
        )
        policies = self.learner.players.policies
        total = self._env_steps(config.num_iterations)
        return make_progress(self._show_progress, title, total, self.env.agents, policies)

    @property
    def log_interval(self) -> int:
        """Iterations for each entry of the log: as configured, or for a hundred entries or so."""
        return self.config.log_interval or max(1, self.config.num_iterations // LOG_ENTRIES)

    @property
    def _name(self) -> str:
        return f"{self.env.name}-{as_json.network_kind(self.config.default_policy.network)}"

    def _env_steps(self, num_iterations: int) -> int:
        return num_iterations * self.config.num_envs * self.config.num_steps


@contextlib.contextmanager
def _removed_unless_used(folder: Path) -> Iterator[None]:
    """Leave no empty run folder behind if the body fails or is interrupted."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
