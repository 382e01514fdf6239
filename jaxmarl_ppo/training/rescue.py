"""Rescue of a run whose folder was renamed or removed during training."""

from pathlib import Path

from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.files import CONFIG_FILE, EVALUATIONS_FILE, METRICS_FILE
from jaxmarl_ppo.runs.log import JsonLines
from jaxmarl_ppo.runs.place import RunFolderMoved
from jaxmarl_ppo.training.loop import Loop
from jaxmarl_ppo.training.outcome import Logged


def rescue(loop: Loop, error: Exception | None) -> Exception | None:
    """Move a run that has ended to an existing folder if its own is gone.

    A renamed folder is used under its new name where the system reports it. Otherwise the record,
    the log and a checkpoint are written again beside it, into `<name>-recovered`.

    Args:
        loop: of the run.
        error: that ended it; None for none.

    Returns:
        The error to end the run with.
    """
    place = loop.around.place
    if place is None:
        return error
    try:
        place.check()
    except RunFolderMoved as raised:
        moved = raised
    else:
        return error
    folder = place.renamed_to
    is_new = folder is None
    folder = _beside(place.folder) if folder is None else folder
    if is_new:
        folder.mkdir(parents=True)
    members = loop.move_to(folder)
    for logged in members if is_new else ():
        _write_log(logged)
    # A fault or non-finite parameters must not enter a checkpoint.
    if loop.around.processes.count == 1 and (error is None or isinstance(error, RunFolderMoved)):
        loop.leave()
        loop.finish_saving()
    if is_new:
        around = loop.around
        _write_log(Logged(folder, around.config, around.record, loop.history, loop.evaluations))
    resumable = ", which can be resumed" if checkpoints_of(folder) else ""
    told = RunFolderMoved(f"{moved}; what was learnt is saved in {folder}{resumable}")
    told.__cause__ = error
    return told


def _beside(folder: Path) -> Path:
    """Choose a folder that does not exist."""
    found, count = folder.with_name(f"{folder.name}-recovered"), 1
    while found.exists():
        count += 1
        found = folder.with_name(f"{folder.name}-recovered-{count}")
    return found


def _write_log(logged: Logged) -> None:
    """Write the record and the log of a run into a folder that lacks them."""
    logged.run_dir.mkdir(parents=True, exist_ok=True)
    write_json(logged.run_dir / CONFIG_FILE, logged.record)
    for name, entries in zip((METRICS_FILE, EVALUATIONS_FILE), logged.both, strict=True):
        if entries:
            lines = JsonLines(logged.run_dir / name)
            for entry in entries:
                lines.append(entry)
            lines.close()
