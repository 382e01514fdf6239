"""Checkpoints: the complete state of training in a folder, written atomically.

A checkpoint is a folder `checkpoints/<iteration>`. It has the record and the policies of a run, so
that it can be evaluated, exported and loaded like a run; every array of the training state, see
`checkpoint_parts`; and `manifest.json`, with the run's progress and the SHA-256 of every other
file. It gets its name only after all files were read back and are on the disk. Reading executes no
code.
"""

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.devices.processes import ALONE, Processes
from jaxmarl_ppo.machine.files import names_in, sync_folder
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs.checkpoint_parts import (
    await_parts,
    check_arrays,
    remove_parts,
    take_parts,
    write_arrays,
    write_part,
)
from jaxmarl_ppo.runs.files import (
    CHECKPOINTS,
    CONFIG_FILE,
    POLICIES_FILE,
    SNAPSHOTS,
    SNAPSHOTS_FILE,
)
from jaxmarl_ppo.runs.log import sync_logs
from jaxmarl_ppo.runs.manifest import (
    DamagedCheckpoint,
    RunPosition,
    check_files,
    files_of_archive,
    read_manifest,
    read_own_position,
    write_manifest,
)
from jaxmarl_ppo.types import Population

_DIGITS = 9  # of a folder's name, so that names sort as iterations do
_DAMAGED = ".damaged"


@dataclass(frozen=True)
class CheckpointData:
    """Holds the content of a checkpoint, on the host.

    Attributes:
        arrays: by name, see `to_arrays`; of arrays spread over processes, this one's rows.
        population: the players.
        names: of the players.
        record: the content of `config.json`.
        position: the progress of the run.
        archive: pools that are partly in files of the run, by policy: lists of `{"iteration",
            "sha256", ...}`; None where there is no such pool.
    """

    arrays: Mapping[str, np.ndarray]
    population: Population
    names: tuple[str, ...]
    record: Mapping[str, Any]
    position: RunPosition
    archive: Mapping[str, Any] | None = None


def write_checkpoint(run_dir: Path, snapshot: CheckpointData, processes: Processes = ALONE) -> Path:
    """Write a checkpoint, or this process's part of it, atomically.

    Raises:
        OSError: If it cannot be written or read back, or not all of its parts can.
    """
    folder = _folder_of(run_dir, snapshot.position)
    if not processes.is_first:
        write_part(folder, snapshot.arrays, processes)
        return folder
    digests = await_parts(folder, processes)

    def fill(temporary: Path) -> None:
        policies = temporary / POLICIES_FILE
        policies.parent.mkdir()
        save_population(policies, snapshot.names, snapshot.population, make_folder=False)
        write_arrays(temporary, snapshot.arrays)
        if snapshot.archive is not None:
            write_json(temporary / SNAPSHOTS_FILE, snapshot.archive, make_folder=False)
        take_parts(folder, temporary, digests)
        check_arrays(temporary, snapshot.arrays)

    try:
        return write_complete(run_dir, snapshot.record, snapshot.position, fill)
    except BaseException:
        remove_parts(folder, processes)
        raise


def write_complete(
    run_dir: Path,
    record: Mapping[str, Any],
    position: RunPosition,
    fill: Callable[[Path], None],
    **further: Any,
) -> Path:
    """Write a checkpoint atomically; it gets its name once it is read back and on the disk.

    Args:
        run_dir: the folder of the run, which must be there.
        record: the content of its `config.json`.
        position: its progress.
        fill: writes all other files into the given folder, and reads them back.
        **further: further entries of its manifest.

    Raises:
        OSError: If it cannot be written or read back.
    """
    folder = _folder_of(run_dir, position)
    temporary = folder.with_name(f".{folder.name}.tmp")
    folder.parent.mkdir(exist_ok=True)
    for path in (temporary, _former(folder)):
        shutil.rmtree(path, ignore_errors=True)
    try:
        temporary.mkdir()
        write_json(temporary / CONFIG_FILE, record, make_folder=False)
        fill(temporary)
        write_manifest(temporary, record, position, further)
        _read_back(temporary)
        sync_logs(run_dir)
        _sync_folders(run_dir, temporary)
        with contextlib.suppress(FileNotFoundError):  # of a run that was resumed from an older one
            folder.replace(_former(folder))
        temporary.replace(folder)
        sync_folder(folder.parent)
        sync_folder(run_dir)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(_former(folder), ignore_errors=True)
    return folder


def _read_back(folder: Path) -> None:
    """Check a checkpoint that has just been written, as a later reader will.

    Raises:
        OSError: If it cannot be read, or would be found damaged.
    """
    try:
        check_files(folder, read_manifest(folder))
    except ValueError as error:
        raise OSError(f"what was written cannot be read back: {error}") from error


def _sync_folders(run_dir: Path, folder: Path) -> None:
    """Flush the directory entries of a checkpoint's files and of its run's snapshots."""
    inner = [path for path in folder.rglob("*") if path.is_dir()]
    snapshots = run_dir / SNAPSHOTS
    pools = [*(snapshots / name for name in names_in(snapshots)), snapshots]
    for path in [*inner, folder, *pools]:
        sync_folder(path)


def _folder_of(run_dir: Path, position: RunPosition) -> Path:
    return run_dir / CHECKPOINTS / f"{position.iteration:0{_DIGITS}}"


def _former(folder: Path) -> Path:
    # As what is unfinished is called, so that it is removed with it.
    return folder.with_name(f".{folder.name}.former.tmp")


def checkpoints_of(run_dir: Path) -> list[Path]:
    """List the folders of a run's checkpoints, the newest first."""
    folder = run_dir / CHECKPOINTS
    while True:
        found = [folder / name for name in names_in(folder) if name.isdecimal()]
        own = [path for path in found if path.is_dir() and not path.is_symlink()]
        if all(map(os.path.lexists, found)):
            return sorted(own, key=lambda path: int(path.name), reverse=True)
        # Removed meanwhile by the training process: there are newer ones than those listed.


def archived_files(run_dir: Path) -> set[Path]:
    """Collect the files of snapshots that the checkpoints of a run need.

    Raises:
        OSError: If a checkpoint cannot be read, so the files that it needs are unknown.
        ValueError: As above.
    """
    return {path for folder in checkpoints_of(run_dir) for path, _ in files_of_archive(folder)}


def newest_sound(run_dir: Path, strict: bool = False) -> tuple[Path, RunPosition]:
    """Find the newest checkpoint that can be read, and warn of newer ones that cannot.

    Args:
        run_dir: the folder of the run.
        strict: whether only damaged ones are skipped. A resumed run must not skip a checkpoint that
            is merely unreadable for the moment.

    Raises:
        ValueError: If there is none, or strictly none may be taken.
    """
    while True:
        passed_over: list[str] = []
        for folder in checkpoints_of(run_dir):
            try:
                position = read_own_position(folder)
            except ValueError as error:
                if not folder.is_dir():
                    break  # removed meanwhile by the training process: there are newer ones
                if strict and not isinstance(error, DamagedCheckpoint):
                    raise
                passed_over.append(str(error))
                continue
            if passed_over:
                _warn(
                    f"{'; '.join(passed_over)}: going back to {folder}, of "
                    f"{position.env_steps:,} environment steps"
                )
            return folder, position
        else:
            if passed_over:
                raise ValueError(f"no checkpoint of {run_dir} is sound: {'; '.join(passed_over)}")
            raise ValueError(f"{run_dir} has no checkpoint to resume from")


def set_damaged_aside(run_dir: Path, newest: Path) -> None:
    """Rename damaged checkpoints newer than the newest sound one; new ones will replace them.

    Only for the process that holds the lock of the folder.
    """
    for folder in checkpoints_of(run_dir):
        if int(folder.name) <= int(newest.name):
            return
        try:
            read_own_position(folder)
        except DamagedCheckpoint:
            aside = folder.with_name(folder.name + _DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.replace(aside)


def best_checkpoint(run_dir: Path, goal: str) -> Path | None:
    """Find the checkpoint with the best value of the objective; None if none has one.

    Raises:
        ValueError: If one cannot be read now, so the best one is unknown.
    """
    values = {}
    for folder in checkpoints_of(run_dir):
        try:
            value = read_own_position(folder).objective
        except DamagedCheckpoint:
            continue
        if value is not None:
            values[folder] = value
    if not values:
        return None
    return (max if goal == "maximise" else min)(values, key=lambda folder: values[folder])


def choose_checkpoint(run_dir: Path, which: str, goal: str) -> Path:
    """Find a checkpoint by `newest`, `best`, or the number of its iteration.

    Args:
        run_dir: the folder of the run.
        which: one of those words.
        goal: of the run's objective.

    Raises:
        ValueError: If there is no such checkpoint.
    """
    there = {str(int(folder.name)): folder for folder in checkpoints_of(run_dir)}
    if which == "newest":
        return newest_sound(run_dir)[0]
    found = best_checkpoint(run_dir, goal) if which == "best" else there.get(which.lstrip("0"))
    if found is None:
        why = "; the run had no objective" if which == "best" else ""
        raise ValueError(
            f"{run_dir} has no checkpoint {which!r}{why}; valid: "
            f"{', '.join(['newest', *sorted(there, key=int)])}"
        )
    read_own_position(found)
    return found


def own_checkpoints(run_dir: Path, run: str | None) -> list[Path]:
    """List the checkpoints that a run has written itself, the newest first.

    Checkpoints of other runs, of newer formats, or unreadable ones are left out: the run must not
    remove them.

    Args:
        run_dir: the folder of the run.
        run: the id in its record, if it has one.
    """
    found = []
    for folder in checkpoints_of(run_dir):
        with contextlib.suppress(ValueError):
            if read_manifest(folder).get("run") == run:
                found.append(folder)
    return found


def prune(run_dir: Path, keep: int, best: Path | None, run: str | None = None) -> None:
    """Remove all checkpoints of a run except the newest ones and the best one."""
    for folder in own_checkpoints(run_dir, run)[keep:]:
        if folder != best:
            remove_checkpoint(folder)


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint atomically, by renaming it first."""
    former = _former(folder)
    with contextlib.suppress(OSError):
        folder.replace(former)
        shutil.rmtree(former, ignore_errors=True)


def remove_unfinished(run_dir: Path) -> None:
    """Remove the remains of a process that died while saving."""
    for path in (run_dir / CHECKPOINTS).glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
