"""Listing of runs: what lies in a folder, how far it is, and how much disk it takes.

Nothing in a folder is changed, links are not followed, and no code that a file names is imported. A
damaged run is described as far as possible.
"""

import contextlib
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.as_json import read_json
from jaxmarl_ppo.config.search import DEFAULT_TRIALS
from jaxmarl_ppo.machine.files import names_in
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.files import (
    CHECKPOINTS,
    CONFIG_FILE,
    EVALUATIONS_FILE,
    LINEAGE_FILE,
    LOCK_FILE,
    LOCKS_FOLDER,
    METRICS_FILE,
    POLICIES_FILE,
    SEARCH_FILE,
    STUDY_FILE,
    TRIALS,
)
from jaxmarl_ppo.runs.lock import is_held
from jaxmarl_ppo.runs.log import count_lines, read_newest
from jaxmarl_ppo.runs.manifest import read_manifest
from jaxmarl_ppo.runs.run_folder import members_of, read_record, saved_nothing
from jaxmarl_ppo.runs.status import (
    FAILED,
    FINISHED,
    RUNNING,
    STOPPED,
    planned_env_steps,
    read_end,
    read_status,
)

DAMAGED, UNKNOWN = "damaged", "unknown"
NOT_BEGUN = "before its first checkpoint"
# How deep below a folder runs are looked for.
MAX_DEPTH = 4
_UNNAMED = ("interval", "objective", "end")  # what a checkpoint was saved by, if nothing stopped it
_LATEST = 250_000_000_000.0  # of times, in the year 9892; a file may have any
_SQLITE_STEPS = 10_000_000  # no honest search needs as many


@dataclass(frozen=True)
class Listed:
    """Describes a run, a group of runs, or a search.

    Attributes:
        folder: its folder.
        kind: `"run"`, `"group"` of seeds, `"population"`, or `"search"`.
        num_parts: runs of a group, or trials of a search that have begun; 1 for a run.
        planned_parts: trials of a search in all; None if unknown, and otherwise.
        env: the environment's name; None if unknown.
        state: `"running"`, `"finished"`, `"stopped"`, `"failed"`, `"damaged"`, or `"unknown"` for a
            search whose database is elsewhere.
        reason: what stopped it, a signal's name or a sentence; None if nothing did, or it is not
            known.
        problem: what is damaged; None if nothing is.
        env_steps: environment steps done, of each run in a group; None if unknown.
        planned_env_steps: those of a finished run; None if unknown.
        measure: the name of its objective's number; None for none.
        best: of a search, the best value of the objective; None for none.
        entry: newest entry of its log; empty if there is none.
        evaluation: its newest evaluation; empty if there is none.
        env_record: its environment, as recorded; empty if unknown.
        changed: time of the last change, in seconds since 1970.
        num_bytes: size on disk.
    """

    folder: Path
    kind: str = "run"
    num_parts: int = 1
    planned_parts: int | None = None
    env: str | None = None
    state: str = DAMAGED
    reason: str | None = None
    problem: str | None = None
    env_steps: int | None = None
    planned_env_steps: int | None = None
    measure: str | None = None
    best: float | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    env_record: Mapping[str, Any] = field(default_factory=dict)
    changed: float = 0.0
    num_bytes: int = 0


def find_runs(folder: Path, depth: int = MAX_DEPTH) -> list[Path]:
    """List the folders of runs, groups and searches in a folder and below.

    The runs of a group and the trials of a search are parts of it. Links and hidden folders are
    left out.
    """
    if holds_run(folder):
        return [folder]
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for name in sorted(names_in(folder)) if depth else ():
            path = folder / name
            if not name.startswith(".") and path.is_dir() and not path.is_symlink():
                found += find_runs(path, depth - 1)
    return found


def holds_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, a group or a search, be it damaged."""
    with contextlib.suppress(OSError):
        names = set(names_in(folder))
        has_saved = any(name.isdecimal() for name in names_in(folder / CHECKPOINTS))
        # A process that died before its first write leaves a lock alone.
        return CONFIG_FILE in names or has_saved or names == {LOCK_FILE}
    return True  # it cannot be read, which a description says


def run_around(folder: Path, parts: Collection[str]) -> Path | None:
    """Return the run within which a folder lies, in one of the run's folders `parts`, or None."""
    path = folder.resolve()
    for part, parent in zip((path, *path.parents), path.parents, strict=False):
        if part.name in parts and (parent / CONFIG_FILE).exists():
            return parent
    return None


def newest_change(folder: Path) -> float:
    """Return the time of the newest file directly in a run's folder, in seconds since 1970."""
    times = [0.0]
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    return max(times)


def disk_use(folder: Path) -> tuple[int, float]:
    """Measure a folder and everything below: bytes on the disk, and the time of its newest file.

    Locks are left out: they are also written where nothing else is.
    """
    num_bytes, changed = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in set(names) - {LOCK_FILE}:
            with contextlib.suppress(OSError):  # removed meanwhile
                status = os.lstat(os.path.join(place, name))
                blocks = getattr(status, "st_blocks", None)  # not on Windows
                num_bytes += status.st_size if blocks is None else 512 * blocks
                changed = max(changed, status.st_mtime)
    return num_bytes, min(changed or newest_change(folder), _LATEST)


def describe(folder: Path) -> Listed:
    """Describe what lies in a folder that `find_runs` found; damage is a part of the result."""
    num_bytes, changed = disk_use(folder)
    listed = Listed(folder, changed=changed, num_bytes=num_bytes)
    try:
        if set(names_in(folder)) == {LOCK_FILE}:
            state = RUNNING if is_held(folder / LOCK_FILE) else FAILED
            return replace(listed, state=state, reason=NOT_BEGUN if state == FAILED else None)
        record = read_record(folder)
        listed = replace(listed, env=record["env"]["name"], env_record=record["env"])
        is_search = (folder / SEARCH_FILE).exists()
        return _describe_search(listed, record) if is_search else _describe_run(listed, record)
    except (OSError, ValueError) as error:
        return replace(listed, state=DAMAGED, problem=str(error))


def is_failed_start(folder: Path) -> bool:
    """Return whether a run has ended, or died, without a checkpoint.

    A run that saves no checkpoints has not failed once it has a log.

    Raises:
        ValueError: If its record is damaged.
        OSError: If it cannot be read.
    """
    if set(names_in(folder)) == {LOCK_FILE}:
        return True
    if (folder / SEARCH_FILE).exists() or checkpoints_of(folder):
        return False
    end = read_end(folder)
    if not (saved_nothing(folder) if end is None else end.state == FAILED):
        return False
    keeps = table_in(read_record(folder)["config"], "checkpoints").get("keep") != 0
    return keeps or not count_lines(folder / METRICS_FILE)


def _describe_run(listed: Listed, record: Mapping[str, Any]) -> Listed:
    folder, members = listed.folder, members_of(listed.folder)
    kind = "population" if (folder / LINEAGE_FILE).exists() else "group" if members else "run"
    entry = read_newest(folder / METRICS_FILE)
    status = read_status(folder, record, [] if entry is None else [entry])
    state, reason, env_steps = status.state, status.reason, status.env_steps
    position, problem = _newest_checkpoint(folder)
    planned = _count(planned_env_steps(record))
    env_steps = max(_count(env_steps) or 0, position.get("env_steps", 0))
    if state != RUNNING and is_failed_start(folder):
        state, reason = FAILED, NOT_BEGUN if read_end(folder) is None else reason
    elif state == STOPPED and read_end(folder) is None and position:
        state, reason = _older_end(position, planned, _has_ended(folder, members), reason)
    return replace(
        listed,
        kind=kind,
        num_parts=max(1, len(members)),
        state=state,
        reason=reason,
        problem=problem,
        env_steps=env_steps,
        planned_env_steps=planned,
        measure=_measure(record),
        entry=entry or {},
        evaluation=read_newest(folder / EVALUATIONS_FILE) or {},
    )


def _has_ended(folder: Path, members: Sequence[Path]) -> bool:
    """Return whether a run has saved its policies, which it does at its end alone."""
    return any((each / POLICIES_FILE).exists() for each in (folder, *members))


def _older_end(
    position: Mapping[str, Any], planned: int | None, has_ended: bool, otherwise: str | None
) -> tuple[str, str | None]:
    """Tell how a run of a version that did not record its end has ended, from its checkpoint."""
    if planned is not None and position["env_steps"] >= planned:
        return FINISHED, None
    if not has_ended:
        return STOPPED, otherwise
    return STOPPED, None if position["saved_by"] in _UNNAMED else position["saved_by"]


def _newest_checkpoint(folder: Path) -> tuple[Mapping[str, Any], str | None]:
    """Read the newest manifest that can be read, and what is wrong with a newer one."""
    problem = None
    for checkpoint in checkpoints_of(folder):
        try:
            return read_manifest(checkpoint), problem
        except ValueError as error:
            problem = problem or str(error)
    return {}, problem


def _describe_search(listed: Listed, record: Mapping[str, Any]) -> Listed:
    folder = listed.folder
    search = table_in(read_json(folder / SEARCH_FILE), "search")
    planned = _count(search.get("num_trials"))
    if planned is None and search.get("sampler") != "grid":
        planned = DEFAULT_TRIALS
    goal = table_in(record["config"], "objective").get("goal")
    counts, best = _read_study(folder / STUDY_FILE, "MIN" if goal == "minimise" else "MAX")
    num_over = sum(counts.get(state, 0) for state in ("COMPLETE", "PRUNED", "FAIL"))
    locks = [folder / LOCKS_FOLDER / name for name in names_in(folder / LOCKS_FOLDER)]
    is_over = num_over >= (sum(counts.values()) if planned is None else planned)
    state = FINISHED if is_over else STOPPED
    return replace(
        listed,
        kind="search",
        num_parts=num_over if counts else len(names_in(folder / TRIALS)),
        planned_parts=planned,
        state=RUNNING if any(map(is_held, locks)) else state if counts else UNKNOWN,
        measure=_measure(record),
        best=best,
    )


def _read_study(path: Path, best: str) -> tuple[dict[str, int], float | None]:
    """Count the trials of a study in a file by Optuna's states, and find the best value.

    Both are empty if there is no such file, or it cannot be read.
    """
    if path.is_symlink() or not path.is_file():
        return {}, None
    trials = "SELECT state, COUNT(*) FROM trials GROUP BY state"
    values = f"SELECT {best}(value) FROM trial_values JOIN trials USING (trial_id)"
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as database:
            database.set_progress_handler(lambda: 1, _SQLITE_STEPS)
            counts = {str(state): int(count) for state, count in database.execute(trials)}
            ((value,),) = database.execute(f"{values} WHERE state = 'COMPLETE'")
            return counts, value if isinstance(value, float) else None
    except (sqlite3.Error, ValueError, TypeError):
        return {}, None


def _measure(record: Mapping[str, Any]) -> str | None:
    measure = table_in(record["config"], "objective").get("measure")
    return measure if isinstance(measure, str) else None


def _count(value: Any) -> int | None:
    """Return a number from a file if it can be a count; None otherwise."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def table_in(data: Any, key: str) -> Mapping[str, Any]:
    """Return a table within another one of a file; empty if it is not there."""
    found = data.get(key) if isinstance(data, Mapping) else None
    return found if isinstance(found, Mapping) else {}
