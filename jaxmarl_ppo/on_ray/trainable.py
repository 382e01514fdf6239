"""A run as a `Trainable` of Ray Tune, for those whose own script drives the search.

>>> trainable = make_trainable(env, env_params, config)
>>> Tuner(trainable, param_space={"default_ppo.learning_rate": tune.loguniform(1e-4, 1e-2)})
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxmarl_envs.check import quick_check
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.checks import MAX_STEPS, check_not_negative, show, whole_number
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import check_arguments
from jaxmarl_ppo.machine.archives import Npz
from jaxmarl_ppo.machine.compilation_cache import use_compilation_cache
from jaxmarl_ppo.machine.cores import use_cpu_cores
from jaxmarl_ppo.machine.text import printable
from jaxmarl_ppo.on_ray.cluster import import_ray, pack, unpack
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs.files import CONFIG_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.run_folder import run_record
from jaxmarl_ppo.sweeps.candidates import Candidate, Candidates, check_trials
from jaxmarl_ppo.sweeps.worker import Worker
from jaxmarl_ppo.sweeps.workers import IntermediateResult, RunName, Saved
from jaxmarl_ppo.types import Population, PyTree

STATE_FILE, STANDING_FILE = "state.npz", "standing.json"
_RUN = RunName(0, 0)
_check_count = whole_number(0, MAX_STEPS)


def make_trainable(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> Any:
    """Make a class that Tune trains, whose trials differ from one configuration in some values.

    Tune's configuration of a trial has values by their paths, such as
    `default_ppo.learning_rate`, `default_policy.network.hidden_sizes` or `env.params.horizon`. A
    step of a trial trains up to its next evaluation (`config.evaluation.every_env_steps`), else its
    next entry of the log. Its result is that entry, with the report of the evaluation as
    `evaluation` and the objective, where there is one, as `objective`. A trial is `done` after
    `config.total_env_steps`. A checkpoint is also the folder of a run: `load_run` and
    `jaxmarl-ppo evaluate` take it. What goes on from the checkpoint of another trial has its own
    hyper-parameters, so schedulers may change those that are numbers.

    Args:
        env: the environment.
        env_params: its parameters.
        config: what all trials have in common.

    Raises:
        ValueError: If the arguments are inconsistent, workers cannot import the environment, or Ray
            is not installed.
    """
    check_arguments(env, env_params, config)
    check_trials(env, config)
    quick_check(env, env_params)
    candidates = Candidates(env, env_params, config, {})
    candidates.make({})
    packed = pack(candidates, env)

    class JaxmarlPPO(import_ray("ray.tune").Trainable):
        def setup(self, config: Mapping[str, Any]) -> None:
            self._run = TunedRun(unpack(packed), config)

        def step(self) -> dict[str, Any]:
            return self._run.step()

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._run.save(Path(checkpoint_dir))

        def load_checkpoint(self, checkpoint: str) -> None:
            self._run.load(Path(checkpoint))

        def reset_config(self, new_config: Mapping[str, Any]) -> bool:
            self._run.begin(new_config)
            return True

    return JaxmarlPPO


class TunedRun:
    """The run of a trial, in the process that Tune has started for it.

    Args:
        candidates: makes runs of values.
        values: by path.

    Raises:
        ValueError: If they are no valid configuration.
    """

    def __init__(self, candidates: Candidates, values: Mapping[str, Any]) -> None:
        with contextlib.suppress(ValueError):  # another trial was here before
            use_cpu_cores(1)
        use_compilation_cache()
        self._candidates = candidates
        self._worker = Worker(1, saves=True)
        self.begin(values)

    def begin(self, values: Mapping[str, Any]) -> None:
        """Begin another run.

        Raises:
            ValueError: If the values are no valid configuration.
        """
        self._candidate = self._candidates.make(by_path(values))
        self._result: dict[str, Any] = {}
        self._begin(None)

    def step(self) -> dict[str, Any]:
        """Train until the run's next intermediate result, and return it.

        Raises:
            RuntimeError: If training diverged, or the environment produced values that cannot be
                trained on.
        """
        if not self._worker.is_busy:
            return self._result  # it resumes a completed run
        results: list[IntermediateResult] = []
        while not results:
            results = self._worker.train()
        (result,) = results
        if result.error is not None:
            raise RuntimeError(result.error)
        self._saved, self._learnt = result.saved, result.population
        reported: dict[str, Any] = {**(result.entry or {}), "done": result.is_over}
        if result.report is not None:
            reported["evaluation"] = result.report
        if self._candidate.config.objective.measure is not None:
            reported["objective"] = np.nan if result.value is None else result.value
        self._result = reported
        return reported

    def save(self, folder: Path) -> None:
        """Write the run's state, and its policies as in the folder of any run."""
        saved = self._worker.save(_RUN) if self._saved is None else self._saved
        np.savez(folder / STATE_FILE, **saved.arrays)  # pyright: ignore[reportArgumentType]
        standing = {name: getattr(saved, name) for name in ("iteration", "decisions", "wall_s")}
        as_json.write_json(folder / STANDING_FILE, {"standing": standing, "result": self._result})
        candidate = self._candidate
        env = candidate.learner.env
        record = run_record(env, candidate.env_params, candidate.config)
        as_json.write_json(folder / CONFIG_FILE, record)
        if self._learnt is not None:
            names = candidate.learner.players.names
            save_population(folder / POLICIES_FILE, names, self._learnt)

    def load(self, folder: Path) -> None:
        """Go on from where a run stood, with the hyper-parameters of this one.

        Raises:
            ValueError: If it is a run of another kind, or damaged.
        """
        saved, result = read_saved(folder)
        self._begin(saved)
        self._result = result

    def _begin(self, saved: Saved | None) -> None:
        self._worker.end(_RUN)
        self._saved = saved
        self._learnt: Population | None = None
        candidate: Candidate = self._candidate
        if saved is not None and saved.iteration >= candidate.config.num_iterations:
            return
        self._worker.begin(_RUN, candidate, Path("the trial"), saved)


def read_saved(folder: Path) -> tuple[Saved, dict[str, Any]]:
    """Read what `TunedRun.save` wrote: where a run stood, and the result that it had then.

    Raises:
        ValueError: If a file is missing or damaged.
    """
    path = folder / STANDING_FILE
    said = as_json.read_json(path)
    standing, result = said.get("standing"), said.get("result")
    if not isinstance(standing, Mapping) or not isinstance(result, dict):
        raise ValueError(f"{path} does not say where a run stood: {show(said)}")
    names = ("iteration", "decisions")
    iteration, decisions = (_check_count(f"{path}: {x}", standing.get(x)) for x in names)
    wall_s = check_not_negative(f"{path}: wall_s", standing.get("wall_s"))
    path = folder / STATE_FILE
    try:
        with Npz(path) as file:
            arrays = {name: file.array(name) for name in file.declared}
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        reason = printable(" ".join(str(error).split())) or type(error).__name__
        raise ValueError(f"{path} cannot be read: {reason}") from error
    return Saved(arrays, iteration, decisions, wall_s), result


def by_path(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Write Tune's values by path, nested tables too, and numbers of NumPy as Python's."""
    result = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            result |= by_path(value, f"{path}.")
        else:
            result[path] = value.item() if isinstance(value, np.generic) else value
    return result
