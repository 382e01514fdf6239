"""A folder that one process takes for a run."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.files import CONFIG_FILE, LOCK_FILE, MEMBERS
from jaxmarl_ppo.runs.lock import locked
from jaxmarl_ppo.training import resume


@contextlib.contextmanager
def claimed(folder: Path, record: Mapping[str, Any], is_new: bool) -> Iterator[None]:
    """Hold the lock of a folder, with the record in it, and remove it if nothing comes to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if is_new:
            run_folder.check_unused(folder)  # again, now that nobody else can take it
        as_json.write_json(folder / CONFIG_FILE, record)
        if not is_new:
            resume.clear(folder)
        try:
            yield
        finally:
            _remove_if_unused(folder)


def _remove_if_unused(folder: Path) -> None:
    """Remove the folder of a run of which there is nothing but what says how it was to be."""
    with contextlib.suppress(OSError):
        (folder / MEMBERS).rmdir()  # which is empty where nothing came to any member
    if {path.name for path in folder.iterdir()} <= {CONFIG_FILE, LOCK_FILE}:
        for name in (CONFIG_FILE, LOCK_FILE):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
