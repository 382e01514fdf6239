"""Going on with a run: what it is read from, what may be changed, and where it then stands."""

import dataclasses
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.checks import check_path, show
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.joining import current
from jaxmarl_ppo.learner.build import without_loads
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.checkpoints import (
    Standing,
    best_checkpoint,
    from_arrays,
    member_checkpoint,
    newest_sound,
    read_standing,
    remove_unfinished,
)
from jaxmarl_ppo.runs.files import EVALUATIONS_FILE, METRICS_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.lock import check_free
from jaxmarl_ppo.runs.log import read_entries
from jaxmarl_ppo.types import BankTraining, PyTree, TrainState

# What of a configuration may differ in a run that goes on: nothing that is learnt from.
CHANGEABLE = (
    "total_env_steps",
    "num_devices",
    "log_interval",
    "max_minutes",
    "until",
    "checkpoints",
    "evaluation",
    "objective",
)
# Of that, what members of a group learn from each other by.
_LEARNT_FROM = ("log_interval", "evaluation", "objective")


@dataclass(frozen=True)
class Resumption:
    """Says from where a run goes on.

    Attributes:
        run_dir: the folder of the run.
        checkpoint: the folder of the checkpoint.
        standing: where the run stood.
        best: the checkpoint with the best value of its objective.
        is_longer: whether the run has got another length.
    """

    run_dir: Path
    checkpoint: Path
    standing: Standing
    best: Path | None
    is_longer: bool


@dataclass(frozen=True)
class Found:
    """Holds what a run that goes on is made of."""

    env: MultiAgentEnv
    env_params: PyTree
    config: TrainConfig
    resumption: Resumption


def find(
    run_dir: str | Path,
    changes: Mapping[str, Any],
    env: MultiAgentEnv | str | None,
    network: nn.Module | None,
    config: TrainConfig | None,
) -> Found:
    """Find the checkpoint from which a run goes on, and how.

    Args:
        run_dir: the folder of the run.
        changes: what is other than in the configuration, of the fields in `CHANGEABLE`.
        env: as in `load_run`.
        network: likewise.
        config: likewise; what is learnt from must be as recorded.

    Raises:
        ValueError: there is no run, or none that can go on so.
    """
    check_path("run_dir", run_dir)
    folder = Path(run_dir)
    if not folder.is_dir():
        raise ValueError(f"run folder {str(folder)!r} does not exist")
    is_first = current().is_first
    if is_first:
        check_free(folder)
    checkpoint, standing = newest_sound(folder, set_aside=is_first)
    # The checkpoint's own record, which its checksums cover.
    recorded = run_folder.read_run(checkpoint, env=env, network=network, config=config)
    record = run_folder.read_record(checkpoint)
    was = record["config"]
    if config is not None:
        _check_changes(config, was)
    changes = {**_on_other_processes(record), **changes}
    chosen = without_loads(dataclasses.replace(recorded.config, **changes))
    if chosen.num_iterations < standing.iteration:
        raise ValueError(
            f"total_env_steps={chosen.total_env_steps} is less than the {standing.env_steps:,} "
            f"environment steps that {folder} has done"
        )
    return Found(
        env=recorded.env,
        env_params=recorded.env_params,
        config=chosen,
        resumption=Resumption(
            run_dir=folder,
            checkpoint=checkpoint,
            standing=standing,
            best=best_checkpoint(folder, chosen.objective.goal),
            is_longer=chosen.total_env_steps != was["total_env_steps"],
        ),
    )


def member_of(resumption: Resumption, run_dir: Path) -> Resumption:
    """Tell from where a member of a group goes on.

    Args:
        resumption: of the group.
        run_dir: the folder of the member.
    """
    checkpoint = member_checkpoint(resumption.checkpoint, run_dir.name)
    return dataclasses.replace(
        resumption, run_dir=run_dir, checkpoint=checkpoint, standing=read_standing(checkpoint)
    )


@dataclass(frozen=True)
class Restored:
    """Holds what a checkpoint gave back, on the host.

    Attributes:
        state: of training.
        metrics: of the interval of the log that had begun.
        history: entries of the log.
        evaluations: evaluations.
    """

    state: TrainState
    metrics: Metrics
    history: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


def restore(resumption: Resumption, begun: TrainState, no_metrics: Metrics) -> Restored:
    """Read what a run goes on from.

    Args:
        resumption: from where.
        begun: a state as the run began with, of which the structure is taken, and the schedules
            where the run has got another length.
        no_metrics: of the same run.

    Raises:
        ValueError: the checkpoint is of another run.
    """
    expected = {"state": begun, "metrics": no_metrics}
    restored = from_arrays(read_arrays(resumption.checkpoint), expected, resumption.checkpoint)
    state, standing = restored["state"], resumption.standing
    if resumption.is_longer:
        state = state.replace(training=with_hyperparams(state.training, begun.training))
    run_dir = resumption.run_dir
    return Restored(
        state,
        restored["metrics"],
        read_entries(run_dir / METRICS_FILE, standing.num_entries),
        read_entries(run_dir / EVALUATIONS_FILE, standing.num_evaluations),
    )


def clear(run_dir: Path) -> None:
    """Remove what a run that goes on will write again, and what a dead process left half done."""
    remove_unfinished(run_dir)
    # Its parameters are in a checkpoint; were this run killed, they would not be the newest.
    shutil.rmtree((run_dir / POLICIES_FILE).parent, ignore_errors=True)


def _on_other_processes(record: Mapping[str, Any]) -> dict[str, Any]:
    """Leave the number of devices open where other processes go on which do not have as many."""
    was, now = record.get("platform", {}).get("num_processes", 1), jax.process_count()
    num_devices = record["config"].get("num_devices") or 1
    if was == now or (num_devices % now == 0 and num_devices <= jax.device_count()):
        return {}
    if current().is_first:
        warnings.warn(
            f"the run goes on in another number of processes, {now} instead of {was}, which do not "
            f"have its {num_devices} devices; random numbers are others from here on",
            RuntimeWarning,
            stacklevel=4,
        )
    return {"num_devices": None}


def check_num_envs(run_dir: Path, num_envs: int) -> None:
    """Refuse another number of environments than a run has.

    Raises:
        ValueError: it is another one, or there is no run.
    """
    record = run_folder.read_record(newest_sound(run_dir, set_aside=False)[0])
    was = record["config"]["num_envs"]
    if num_envs != was:
        raise ValueError(
            f"a run goes on with the num_envs={was} it has, got {num_envs}; to begin another run "
            f"with its policies: jaxmarl-ppo train ... --load {run_dir} --num-envs {num_envs}"
        )


def with_hyperparams(
    training: tuple[BankTraining, ...], fresh: tuple[BankTraining, ...]
) -> tuple[BankTraining, ...]:
    """Take hyper-parameters as of a run that begins, but for the weight that training adapts."""
    return tuple(
        bank.replace(
            hyperparams=jax.device_get(new.hyperparams).replace(kl_coef=bank.hyperparams.kl_coef)
        )
        for bank, new in zip(training, fresh, strict=True)
    )


def _check_changes(config: TrainConfig, recorded: Any) -> None:
    """Refuse a configuration that differs from the recorded one in what is learnt from."""
    given = as_json.config_to_dict(as_json.with_explicit_network(config))
    learns = config.pbt is not None
    may = [name for name in CHANGEABLE if not (learns and name in _LEARNT_FROM)]
    for name, value in given.items():
        if name in may or name not in recorded:
            continue
        if as_json.dump_json(value) != as_json.dump_json(recorded[name]):
            raise ValueError(
                f"a run cannot go on with another {name}: it was {show(recorded[name])}, got "
                f"{show(value)}; what may change: {', '.join(may)}"
            )
