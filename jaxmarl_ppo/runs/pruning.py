"""Pruning of runs: which old checkpoints and failed starts may go, and their removal.

The newest checkpoint that is sound, the best one, and those that another run starts from stay. A
run in which a process trains, a search, and whatever a run has not written itself stay as they are.
"""

import contextlib
import fnmatch
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.machine.files import names_in, reject_link
from jaxmarl_ppo.runs.checkpoints import (
    best_checkpoint,
    checkpoints_of,
    newest_sound,
    own_checkpoints,
    remove_checkpoint,
)
from jaxmarl_ppo.runs.files import (
    CHECKPOINTS,
    CONFIG_FILE,
    CURVE_FILE,
    END_FILE,
    EVALUATIONS_FILE,
    LINEAGE_FILE,
    LOCK_FILE,
    LOGGERS_FILE,
    MEMBERS,
    METRICS_FILE,
    POLICIES_FILE,
    SEARCH_FILE,
    SNAPSHOTS,
    TRIALS,
    reject_links,
)
from jaxmarl_ppo.runs.listing import disk_use, is_failed_start, run_around, table_in
from jaxmarl_ppo.runs.lock import is_locked, locked
from jaxmarl_ppo.runs.run_folder import members_of, read_record

# What a run writes into its folder before its first checkpoint, and at an end without one.
_OWN_FILES = (
    *(CONFIG_FILE, CURVE_FILE, END_FILE, EVALUATIONS_FILE, LINEAGE_FILE, LOCK_FILE, LOGGERS_FILE),
    *(METRICS_FILE, CHECKPOINTS, MEMBERS, SNAPSHOTS, str(Path(POLICIES_FILE).parent), "wandb"),
    *("report.html", "events.out.tfevents.*"),
)


@dataclass(frozen=True)
class Removal:
    """Lists what may go from the folder of a run or a group.

    Attributes:
        folder: its folder.
        paths: folders of old checkpoints; the folder itself after a failed start.
        num_bytes: what they take on the disk.
    """

    folder: Path
    paths: tuple[Path, ...]
    num_bytes: int

    @property
    def is_failed_start(self) -> bool:
        """Return whether the run goes as a whole."""
        return self.paths == (self.folder,)


def check_prunable(folder: Path) -> None:
    """Reject a folder within a run, whose other parts may need what is in it.

    Raises:
        ValueError: If it is one.
    """
    if (run := run_around(folder, (CHECKPOINTS, MEMBERS, SNAPSHOTS, TRIALS))) is not None:
        raise ValueError(
            f"{str(folder)!r} lies within a run, which is pruned as a whole; name {str(run)!r}"
        )


def loads_of(folders: Sequence[Path]) -> list[str]:
    """List what runs start from, as they are configured; damaged records are left out."""
    loads: list[str] = []
    for folder in folders:
        with contextlib.suppress(ValueError):
            loads += _loads_in(read_record(folder)["config"])
    return loads


def plan_removals(folders: Sequence[Path]) -> tuple[list[Removal], dict[Path, str]]:
    """Find what may go from the folders of runs, groups and searches.

    Returns:
        What may go, and by folder, why nothing may go from it where that cannot be known.
    """
    found, left, loads = [], {}, loads_of(folders)
    for folder in folders:
        try:
            in_use = any(map(is_locked, (folder, *members_of(folder))))
            paths = () if in_use else tuple(_removable(folder, loads))
        except (OSError, ValueError) as error:
            left[folder] = str(error)
            continue
        if paths:
            found.append(Removal(folder, paths, sum(disk_use(path)[0] for path in paths)))
    return found, left


def remove(removal: Removal, loads: Sequence[str]) -> Removal:
    """Remove what was planned, as far as it may still go once the run's lock is held.

    Args:
        removal: what was planned.
        loads: what other runs start from by now, see `loads_of`.

    Returns:
        What was removed.

    Raises:
        ValueError: If another process holds the lock.
        OSError: If the lock cannot be taken, or something cannot be removed.
    """
    with contextlib.ExitStack() as stack:
        for folder in (removal.folder, *members_of(removal.folder)):
            stack.enter_context(locked(folder))
        still = set(_removable(removal.folder, loads))
        paths = [path for path in removal.paths if path in still]
        sizes = [disk_use(path)[0] for path in paths]
        for path in paths:
            if path == removal.folder:
                shutil.rmtree(path)
            else:
                remove_checkpoint(path)
    gone = [k for k, path in enumerate(paths) if not path.exists()]
    return Removal(removal.folder, tuple(paths[k] for k in gone), sum(sizes[k] for k in gone))


def _removable(folder: Path, loads: Sequence[str]) -> Iterator[Path]:
    """List the paths that may go from a folder, which are certain only under its lock.

    Args:
        folder: of a run or a group; nothing may go from that of a search.
        loads: what other runs start from, as configured.

    Raises:
        ValueError: If it is damaged or has links, so what may go is unknown.
        OSError: If it cannot be read.
    """
    reject_link(folder)
    reject_links(folder)
    if (folder / SEARCH_FILE).exists():
        return
    if is_failed_start(folder):
        if _is_all_its_own(folder) and not _is_named(folder.name, loads):
            yield folder
        return
    record = read_record(folder)
    goal = table_in(record["config"], "objective").get("goal") or "maximise"
    old = list(_old_checkpoints(folder, record, goal, loads))
    # The group's first: it stands on those of its members.
    yield from old
    kept = {checkpoint.name for checkpoint in checkpoints_of(folder) if checkpoint not in old}
    for member in members_of(folder):
        own = _old_checkpoints(member, read_record(member), goal, loads)
        yield from (checkpoint for checkpoint in own if checkpoint.name not in kept)


def _old_checkpoints(
    run_dir: Path, record: Mapping[str, Any], goal: str, loads: Sequence[str]
) -> Iterator[Path]:
    """List a run's own checkpoints older than its newest sound one, without those to be kept."""
    if len(checkpoints_of(run_dir)) < 2:
        return
    newest, _ = newest_sound(run_dir, strict=True)
    best = best_checkpoint(run_dir, goal)
    for checkpoint in own_checkpoints(run_dir, record.get("id")):
        is_named = _is_named(f"{run_dir.name}/{CHECKPOINTS}/{checkpoint.name}", loads)
        if int(checkpoint.name) < int(newest.name) and checkpoint != best and not is_named:
            yield checkpoint


def _is_named(name: str, loads: Sequence[str]) -> bool:
    """Return whether a run starts from a folder whose path ends in some name."""
    own = re.compile(rf"(^|/){re.escape(name)}($|[/:])")
    return any(own.search(load.replace("\\", "/")) for load in loads)


def _is_all_its_own(folder: Path) -> bool:
    """Return whether a folder has only what a run writes into it."""

    def is_own(path: Path) -> bool:
        if path.name == MEMBERS:
            return all(_is_all_its_own(path / name) for name in names_in(path))
        if path.name == CHECKPOINTS:
            return all(name.startswith(".") for name in names_in(path))
        return any(fnmatch.fnmatchcase(path.name, own) for own in _OWN_FILES)

    return all(is_own(folder / name) for name in names_in(folder))


def _loads_in(data: Any) -> Iterator[str]:
    children = (
        data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    )
    for each in children:
        yield from _loads_in(each)
    if isinstance(data, Mapping) and isinstance(data.get("load"), str):
        yield data["load"]
