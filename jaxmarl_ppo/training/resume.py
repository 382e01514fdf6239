"""Resuming a run: what is read, what may be changed, and the restored state."""

import dataclasses
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.annotations import field_metadata
from jaxmarl_ppo.config.as_json import read_field
from jaxmarl_ppo.config.checks import check_path, show
from jaxmarl_ppo.config.paths import full_path, value_at, with_values
from jaxmarl_ppo.config.run_file import override_fields
from jaxmarl_ppo.config.schema import find_place
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.joining import current
from jaxmarl_ppo.learner.build import without_loads
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.text import listed
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.checkpoint_arrays import from_arrays
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.checkpoints import (
    best_checkpoint,
    newest_sound,
    remove_unfinished,
    set_damaged_aside,
)
from jaxmarl_ppo.runs.files import (
    END_FILE,
    EVALUATIONS_FILE,
    METRICS_FILE,
    POLICIES_FILE,
)
from jaxmarl_ppo.runs.lock import check_free
from jaxmarl_ppo.runs.log import read_entries
from jaxmarl_ppo.runs.manifest import RunPosition, member_checkpoint, read_position
from jaxmarl_ppo.runs.run_folder import saved_nothing
from jaxmarl_ppo.training.changing import with_hyperparams
from jaxmarl_ppo.types import PyTree, TrainState


@dataclass(frozen=True)
class Resumption:
    """Describes the point that a run is resumed from.

    Attributes:
        run_dir: the folder of the run.
        checkpoint: the folder of the checkpoint.
        position: the progress of the run at that point.
        best: the checkpoint with the best value of its objective.
        is_longer: whether the length of the run was changed.
    """

    run_dir: Path
    checkpoint: Path
    position: RunPosition
    best: Path | None
    is_longer: bool


@dataclass(frozen=True)
class Found:
    """Holds the parts of a resumed run.

    Attributes:
        env: of the run.
        env_params: of the run.
        config: of the run, with the changes.
        run_dir: the folder of the run.
        run_id: the id in its record; None for a run of a version without ids.
        resumption: the point to resume from; None where it restarts, having been killed before its
            first save.
    """

    env: MultiAgentEnv
    env_params: PyTree
    config: TrainConfig
    run_dir: Path
    run_id: str | None
    resumption: Resumption | None


def find(
    run_dir: str | Path,
    changes: Mapping[str, Any],
    env: MultiAgentEnv | str | None,
    network: nn.Module | None,
    config: TrainConfig | None,
    allow_imports: Sequence[str] = (),
) -> Found:
    """Find the checkpoint to resume a run from, and how.

    A run that was killed before its first save starts again, with a warning.

    Args:
        run_dir: the folder of the run.
        changes: other values of the configuration by path, of fields that are `resumable`.
        env: as in `load_run`.
        network: as in `load_run`.
        config: as in `load_run`; all that affects learning must be as recorded.
        allow_imports: as in `load_run`.

    Raises:
        ValueError: If there is no run, or it cannot be resumed this way.
    """
    check_path("run_dir", run_dir)
    folder = Path(run_dir)
    if not folder.is_dir():
        raise ValueError(f"run folder {str(folder)!r} does not exist")
    if current().is_first:
        check_free(folder)
    begins_anew = saved_nothing(folder)
    checkpoint, position = (folder, None) if begins_anew else newest_sound(folder, strict=True)
    # The checkpoint's own record, covered by its checksums.
    recorded = run_folder.read_run(
        checkpoint, env=env, network=network, config=config, allow_imports=allow_imports
    )
    record = run_folder.read_record(checkpoint)
    was = record["config"]
    has_changes = position is not None and position.changes is not None
    if config is not None:
        _check_changes(config, was, has_changes)
    _check_paths(changes, recorded.config, folder, has_changes)
    changes = with_values(_on_other_processes(record), changes)
    chosen = without_loads(override_fields(recorded.config, changes))
    run = Found(recorded.env, recorded.env_params, chosen, folder, record.get("id"), None)
    if position is None:
        if current().is_first:
            warnings.warn(
                f"{folder} was stopped before it had saved anything: the run begins anew from its "
                "record",
                RuntimeWarning,
                stacklevel=3,
            )
        return run
    if chosen.num_iterations < position.iteration:
        raise ValueError(
            f"total_env_steps={chosen.total_env_steps} is less than the {position.env_steps:,} "
            f"environment steps that {folder} has done"
        )
    resumption = Resumption(
        run_dir=folder,
        checkpoint=checkpoint,
        position=position,
        best=best_checkpoint(folder, chosen.objective.goal),
        is_longer=chosen.total_env_steps != was["total_env_steps"],
    )
    return dataclasses.replace(run, resumption=resumption)


def check_setters(found: Found, callbacks: Sequence[str], without_callbacks: bool) -> None:
    """Check that the callbacks that changed numbers of a run are there to go on with it.

    Args:
        found: the run.
        callbacks: names of those that are given.
        without_callbacks: whether the run is to go on without them.

    Raises:
        ValueError: If one is missing, or `without_callbacks` has no effect.
    """
    recorded = None if found.resumption is None else found.resumption.position.changes
    missing = [name for name in (recorded or {}).get("set_by", []) if name not in callbacks]
    if missing and not without_callbacks:
        assert recorded is not None
        values = ", ".join(f"{path} = {show(x)}" for path, x in recorded["values"].items())
        raise ValueError(
            f"callbacks of {found.run_dir} changed numbers while it trained ({values}), and "
            f"{listed(missing)} is missing; pass callbacks= to Trainer.resume, or keep these "
            "values with without_callbacks=True (--without-callbacks)"
        )
    if without_callbacks and not missing:
        raise ValueError(
            "without_callbacks has no effect: no callback that is missing changed numbers of "
            f"{found.run_dir}; drop it"
        )


def check_still_newest(found: Found) -> None:
    """Check the resume point again, now that no other process can train in the folder.

    Skipped damaged checkpoints are renamed.

    Raises:
        ValueError: If the run has been continued meanwhile.
    """
    resumption, run_dir = found.resumption, found.run_dir
    if resumption is not None:
        set_damaged_aside(run_dir, resumption.checkpoint)
        newest = newest_sound(run_dir, strict=True)
        has_gone_on = newest != (resumption.checkpoint, resumption.position)
    else:
        has_gone_on = not saved_nothing(run_dir)
    if has_gone_on:
        raise ValueError(
            f"{run_dir} was trained by another process meanwhile; resume it again to continue from "
            "its newest checkpoint"
        )


def member_of(resumption: Resumption, run_dir: Path) -> Resumption:
    """Return the point that a member of a group is resumed from.

    Args:
        resumption: of the group.
        run_dir: the folder of the member.
    """
    checkpoint = member_checkpoint(resumption.checkpoint, run_dir.name)
    return dataclasses.replace(
        resumption, run_dir=run_dir, checkpoint=checkpoint, position=read_position(checkpoint)
    )


@dataclass(frozen=True)
class Restored:
    """Holds the content of a checkpoint, on the host.

    Attributes:
        state: of training.
        metrics: of the unfinished log interval.
        history: entries of the log.
        evaluations: evaluations.
    """

    state: TrainState
    metrics: Metrics
    history: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


def restore(resumption: Resumption, begun: TrainState, no_metrics: Metrics) -> Restored:
    """Read the state that a run is resumed from.

    Args:
        resumption: the point to resume from.
        begun: an initial state of the run. Its structure is used, and its schedules if the run's
            length was changed.
        no_metrics: of the same run.

    Raises:
        ValueError: If the checkpoint is of another run.
    """
    expected = {"state": begun, "metrics": no_metrics}
    restored = from_arrays(read_arrays(resumption.checkpoint), expected, resumption.checkpoint)
    state, position = restored["state"], resumption.position
    if resumption.is_longer:
        own = tuple(jax.device_get(group.hyperparams) for group in begun.training)
        state = state.replace(training=with_hyperparams(state.training, own))
    run_dir = resumption.run_dir
    return Restored(
        state,
        restored["metrics"],
        read_entries(run_dir / METRICS_FILE, position.num_entries),
        read_entries(run_dir / EVALUATIONS_FILE, position.num_evaluations),
    )


def clear(run_dir: Path, begins_anew: bool = False) -> None:
    """Remove what a resumed run will write again, and partial files of a dead process.

    Args:
        run_dir: the folder of the run.
        begins_anew: whether nothing was saved, so that the complete log is written again.
    """
    remove_unfinished(run_dir)
    if begins_anew:
        for path in run_dir.glob("events.out.tfevents.*"):
            path.unlink(missing_ok=True)
    (run_dir / END_FILE).unlink(missing_ok=True)
    # Its parameters are in a checkpoint, and would be outdated if this run were killed.
    shutil.rmtree((run_dir / POLICIES_FILE).parent, ignore_errors=True)


def _on_other_processes(record: Mapping[str, Any]) -> dict[str, Any]:
    """Leave the number of devices open where the resuming processes have fewer."""
    was, now = record.get("platform", {}).get("num_processes", 1), jax.process_count()
    num_devices = record["config"].get("num_devices") or 1
    if was == now or (num_devices % now == 0 and num_devices <= jax.device_count()):
        return {}
    if current().is_first:
        warnings.warn(
            f"the run continues in another number of processes, {now} instead of {was}, without "
            f"its {num_devices} devices; from here on its random numbers differ",
            RuntimeWarning,
            stacklevel=4,
        )
    return {"num_devices": None}


def _resumable(config: TrainConfig, has_changes: bool) -> list[str]:
    """List the fields in which a resumed run may differ.

    Args:
        config: of the run.
        has_changes: whether callbacks have changed numbers of it.
    """
    # What is logged and evaluated then affects learning.
    learns = config.pbt is not None or config.curriculum or has_changes
    metadata = field_metadata(TrainConfig)
    return [
        name
        for name, each in metadata.items()
        if each.resumable and not (learns and each.compares_members)
    ]


def _check_paths(
    changes: Mapping[str, Any], config: TrainConfig, run_dir: Path, has_changes: bool
) -> None:
    """Reject changed values of settings that affect learning."""
    may = _resumable(config, has_changes)
    for path, value in changes.items():
        place = find_place(full_path(path))
        if place.path[0] in may:
            continue
        was = value_at(config, place.path) if hasattr(config, place.path[0]) else None
        if was != read_field(place.path[-1], place.annotation, value, place.name):
            raise ValueError(
                f"a run cannot resume with another {place.name}: it was {show(was)}, got "
                f"{show(value)}; what may change: {', '.join(may)}. To begin another run with its "
                f"policies: jaxmarl-ppo train ENV --load {run_dir}"
            )


def _check_changes(config: TrainConfig, recorded: Any, has_changes: bool) -> None:
    """Reject a configuration whose settings that affect learning differ from the record."""
    given = as_json.config_to_dict(as_json.with_explicit_network(config))
    may = _resumable(config, has_changes)
    for name, value in given.items():
        if name in may or name not in recorded:
            continue
        if as_json.dump_json(value) != as_json.dump_json(recorded[name]):
            raise ValueError(
                f"a run cannot resume with another {name}: it was {show(recorded[name])}, got "
                f"{show(value)}; what may change: {', '.join(may)}"
            )
