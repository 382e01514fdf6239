"""Loggers for Weights & Biases and MLflow, as callbacks.

Both get every finite number of the log and of evaluations, over environment steps and named by path
as in TensorBoard, and the run's record as flat parameters. A resumed run continues the same run of
the service, whose id is in a file of the run's folder.
"""

import json
import math
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmarl_envs.adapters import import_extra
from jaxmarl_ppo.config.as_json import dump_json, read_json
from jaxmarl_ppo.config.checks import check_bool, choice, reject_repeated
from jaxmarl_ppo.machine.extras import how_to_install
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.runs.callbacks import Callback, RunInfo, TrainResult
from jaxmarl_ppo.runs.files import CONFIG_FILE, CURVE_FILE, LOGGERS_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.log import scalars

SAVED_FILES = (CONFIG_FILE, CURVE_FILE, POLICIES_FILE)
# Limit of MLflow per request.
MAX_PARAMS, MAX_METRICS = 100, 1000


class _Logger(Callback):
    """Finds the numbers of a run; subclasses log them."""

    def on_log(self, entry: Mapping[str, Any]) -> None:
        """Log every number of an entry."""
        self._log(_finite(entry), "env_steps")

    def on_evaluation(self, report: Mapping[str, Any]) -> None:
        """Log every number of an evaluation."""
        self._log(_finite({"evaluation": report}), "evaluation/env_steps")

    def _log(self, numbers: dict[str, float], step: str) -> None:
        """Log numbers over their environment steps."""
        raise NotImplementedError


class WandbLogger(_Logger):
    """Logs a run to Weights & Biases (extra `wandb`).

    None leaves a setting to wandb and its environment variables, such as `WANDB_PROJECT` and
    `WANDB_MODE`.

    Args:
        project: where the run is listed.
        name: of the run; None for that of its folder.
        mode: `online`, `offline` or `disabled`.
        save_files: whether record, curve and policies are kept as an artifact at the end.
        **kwargs: as for `wandb.init`.

    Raises:
        ValueError: If wandb is not installed, or does not take an argument.
    """

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        mode: str | None = None,
        *,
        save_files: bool = False,
        **kwargs: Any,
    ) -> None:
        if mode is not None:
            choice("online", "offline", "disabled")("mode of wandb", mode)
        for taken in sorted({"id", "resume", "config"} & kwargs.keys()):
            raise ValueError(f"{taken}={kwargs[taken]!r} has no effect: the run's folder says that")
        self._save_files = check_bool("save_files", save_files)
        self._wandb = _import("wandb")
        self._arguments = {"project": project, "name": name, "mode": mode, **kwargs}
        self._run: Any = None

    def on_start(self, run: RunInfo) -> None:
        """Begin or resume a run of wandb."""
        arguments = {"dir": str(run.run_dir), **self._arguments}
        arguments["name"] = arguments["name"] or run.run_dir.name
        known = _read_run_id(run.run_dir, "wandb")
        self._run = self._wandb.init(id=known, resume="allow", **arguments)
        self._run.config.update(_flat(run.record), allow_val_change=True)
        _keep_run_id(run.run_dir, "wandb", self._run.id)

    def on_end(self, result: TrainResult) -> None:
        """Save files if asked to, and end the run of wandb, if it began."""
        if self._run is None:
            return
        if self._save_files:
            artifact = self._wandb.Artifact(f"run-{self._run.id}", type="run")
            for name, path in _files(result.run_dir).items():
                artifact.add_file(str(path), name=name)
            self._run.log_artifact(artifact)
        self._run.finish(exit_code=int(result.interrupted))
        self._run = None

    def _log(self, numbers: dict[str, float], step: str) -> None:
        # A resumed run repeats the steps after its newest checkpoint.
        if numbers[step] >= self._run.step:
            self._run.log(numbers, step=int(numbers[step]))


class MLflowLogger(_Logger):
    """Logs a run to MLflow (extra `mlflow`).

    Characters in names that MLflow rejects become underscores. If the server cannot be reached
    during the run, a warning reports the lost numbers.

    Args:
        experiment: where the run is listed; None for `MLFLOW_EXPERIMENT_NAME`, or `Default`.
        run_name: of the run; None for that of its folder.
        tracking_uri: a server or a database, such as `sqlite:///mlflow.db`; None for
            `MLFLOW_TRACKING_URI`, or what MLflow uses then.
        save_files: whether record, curve and policies are kept as artifacts at the end.

    Raises:
        ValueError: If mlflow is not installed.
    """

    def __init__(
        self,
        experiment: str | None = None,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        *,
        save_files: bool = False,
    ) -> None:
        self._experiment = experiment
        self._run_name = run_name
        self._tracking_uri = tracking_uri
        self._save_files = check_bool("save_files", save_files)
        self._mlflow = _import("mlflow")
        self._client: Any = None
        self._run_id: str | None = None
        self._done: dict[str, float] = {}  # the newest numbers from before the run was resumed

    def on_start(self, run: RunInfo) -> None:
        """Begin or resume a run of MLflow."""
        self._client = self._mlflow.MlflowClient(self._tracking_uri)
        known = _read_run_id(run.run_dir, "mlflow")
        if known is None:
            self._done = {}
            self._run_id = self._create_run(run)
            _keep_run_id(run.run_dir, "mlflow", self._run_id)
            return
        self._run_id = known
        self._client.update_run(known, status="RUNNING")
        self._done = self._client.get_run(known).data.metrics

    def on_end(self, result: TrainResult) -> None:
        """Save files if asked to, and end the run of MLflow, if it began."""
        if self._run_id is None:
            return
        if self._save_files:
            for name, path in _files(result.run_dir).items():
                folder = str(Path(name).parent)
                place = None if folder == "." else folder
                self._client.log_artifact(self._run_id, str(path), place)
        status = "KILLED" if result.interrupted else "FINISHED"
        self._client.set_terminated(self._run_id, status)
        self._run_id = None

    def _create_run(self, run: RunInfo) -> str:
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        run_name = self._run_name or run.run_dir.name
        run_id = self._client.create_run(number, run_name=run_name).info.run_id
        params = [
            self._mlflow.entities.Param(_mlflow_name(key), str(value))
            for key, value in _flat(run.record).items()
        ]
        for first in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(run_id, params=params[first : first + MAX_PARAMS])
        return run_id

    def _log(self, numbers: dict[str, float], step: str) -> None:
        env_steps = int(numbers[step])
        # A resumed run repeats the steps after its newest checkpoint.
        if env_steps <= self._done.get(step, -1):
            return
        now = int(time.time() * 1000)
        metrics = [
            self._mlflow.entities.Metric(_mlflow_name(name), value, now, env_steps)
            for name, value in numbers.items()
        ]
        try:
            for first in range(0, len(metrics), MAX_METRICS):
                self._client.log_batch(self._run_id, metrics[first : first + MAX_METRICS])
        except self._mlflow.MlflowException as error:
            warnings.warn(
                f"MLflow took no numbers at {env_steps:,} environment steps "
                f"({_line(error)}); training continues",
                RuntimeWarning,
                stacklevel=2,
            )


LOGGERS: dict[str, type[WandbLogger] | type[MLflowLogger]] = {
    "wandb": WandbLogger,
    "mlflow": MLflowLogger,
}


def make_loggers(names: Sequence[str]) -> list[Callback]:
    """Make loggers by name, configured by their services' environment variables.

    Raises:
        ValueError: For an unknown name, one that is there twice, or a package that is not
            installed.
    """
    reject_repeated("log", names)
    return [LOGGERS[choice(*LOGGERS)("logger", name)]() for name in names]


def _import(name: str) -> Any:
    try:
        return import_extra(name, name, how_to_install)
    except ImportError as error:
        raise ValueError(str(error)) from error


def _finite(entry: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scalars(entry) if math.isfinite(value)}


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name everything in a record by its path; lists are written as JSON."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}/")
        else:
            flat[f"{prefix}{key}"] = dump_json(value) if isinstance(value, list | tuple) else value
    return flat


def _mlflow_name(name: str) -> str:
    # Read as a path, it must be normalised.
    parts = re.sub(r"[^\w./ -]", "_", name).split("/")
    return "/".join("_" * max(1, len(part)) if not part.strip(".") else part for part in parts)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _files(run_dir: Path) -> dict[str, Path]:
    """Find the saved files of a run, by their names in its folder."""
    return {name: run_dir / name for name in map(str, SAVED_FILES) if (run_dir / name).is_file()}


def _read_run_id(run_dir: Path, service: str) -> str | None:
    path = run_dir / LOGGERS_FILE
    known = read_json(path).get(service) if path.is_file() else None
    return known if isinstance(known, str) else None


def _keep_run_id(run_dir: Path, service: str, run_id: str) -> None:
    path = run_dir / LOGGERS_FILE
    known = read_json(path) if path.is_file() else {}
    content = json.dumps({**known, service: run_id}, indent=2) + "\n"
    write_atomically(path, content.encode())
