"""The claim of one process on the folder of a run."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.machine.files import sync_folder, write_atomically
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.files import CHECKPOINTS, CONFIG_FILE, LOCK_FILE, MEMBERS, POLICIES_FILE
from jaxmarl_ppo.runs.lock import locked
from jaxmarl_ppo.runs.place import RunFolders
from jaxmarl_ppo.training import resume
from jaxmarl_ppo.training.resume import Found

# Longer than the name of any file in a checkpoint or a log.
_LONG_NAME = "x" * 100


@contextlib.contextmanager
def claimed(folder: Path, record: Mapping[str, Any], found: Found | None) -> Iterator[None]:
    """Hold the lock of a folder that has the record; remove the folder if nothing is saved in it.

    Args:
        folder: of a run, or of a member of a group.
        record: the content of its `config.json`.
        found: the run to resume in it; None for a new run.

    Raises:
        ValueError: If the folder is in use, has something else in it, or cannot hold a run.
    """
    try:
        made = _make_folder(folder)
    except OSError as error:
        raise ValueError(_unusable(folder, error)) from error
    with locked(folder):
        if found is None:
            run_folder.check_unused(folder)  # again, now that no other process can claim it
        elif folder == found.run_dir:
            resume.check_still_newest(found)
        _check_usable(folder)
        as_json.write_json(folder / CONFIG_FILE, record)
        for path in (folder, *made):
            sync_folder(path)
        if found is not None:
            resume.clear(folder, begins_anew=found.resumption is None)
        place = RunFolders(folder)
        try:
            yield
        finally:
            if found is None and place.is_there():
                _remove_if_unused(folder)
            place.close()


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder, and return the folders that got a new entry."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return [path.parent for path in missing]


def _check_usable(folder: Path) -> None:
    """Check before training that a checkpoint can be written in a folder and read back.

    Raises:
        ValueError: If it cannot, for example because the path is too long.
    """
    checkpoints = folder / CHECKPOINTS
    if checkpoints.is_symlink():
        raise ValueError(
            f"{checkpoints} is a link to {str(checkpoints.readlink())!r}; a run writes into its "
            "own folder only: put a folder in its place"
        )
    probe = checkpoints / ".000000000.probe.tmp"
    is_new = not checkpoints.exists()
    try:
        path = probe / Path(POLICIES_FILE).parent / _LONG_NAME
        write_atomically(path, b"probe")
        moved = probe.rename(probe.with_name(".probe.tmp"))
        if (moved / path.relative_to(probe)).read_bytes() != b"probe":
            raise OSError("a file reads otherwise than it was written")
    except OSError as error:
        raise ValueError(_unusable(folder, error)) from error
    finally:
        for each in (probe, probe.with_name(".probe.tmp")):
            shutil.rmtree(each, ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):
                checkpoints.rmdir()


def _unusable(folder: Path, error: OSError) -> str:
    return (
        f"run folder {str(folder)!r} cannot hold a run: {error.strerror or error}; choose another "
        "folder"
    )


def _remove_if_unused(folder: Path) -> None:
    """Remove the folder of a run that holds nothing but its configuration."""
    with contextlib.suppress(OSError):
        (folder / MEMBERS).rmdir()  # empty where no member saved anything
    if {path.name for path in folder.iterdir()} <= {CONFIG_FILE, LOCK_FILE}:
        for name in (CONFIG_FILE, LOCK_FILE):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
