"""Manifests of checkpoints: their content, run and integrity.

Only a file that is missing or differs from its checksum is damage (`DamagedCheckpoint`). Any other
reason why a checkpoint cannot be read, such as a newer format, a permission or an I/O error, is a
plain `ValueError`, and no reason to rename or remove it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from jaxmarl_ppo.config.as_json import MAX_RECORD_BYTES, read_json, write_json
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.parsing import check_depth
from jaxmarl_ppo.machine.files import read_at_most
from jaxmarl_ppo.policies.snapshot_files import sha256_of, snapshot_path
from jaxmarl_ppo.runs.files import (
    CHECKPOINTS,
    CONFIG_FILE,
    MANIFEST_FILE,
    MEMBERS,
    SNAPSHOTS_FILE,
)
from jaxmarl_ppo.runs.lineage import from_json

FORMAT = 3
# Format 1 has its arrays as orbax writes them, and does not name its run. Format 2 has some arrays
# under their former names.
READABLE_FORMATS = (1, 2, FORMAT)
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DamagedCheckpoint(ValueError):  # noqa: N818
    """Reports a checkpoint with a file that is missing or differs from its checksum."""


@dataclass(frozen=True)
class RunPosition:
    """The progress of a run, beside its state.

    Attributes:
        iteration: iterations done.
        logged_iteration: those up to the newest entry of the log.
        env_steps: environment steps done.
        decisions: decisions up to the newest entry of the log.
        num_entries: entries of the log.
        num_evaluations: evaluations.
        log_interval: iterations per entry of the log.
        wall_s: seconds of training, compilation included.
        objective: the objective's value that this checkpoint is kept for; None for none.
        best: the best value of the objective so far.
        num_worse: entries or evaluations since the best one.
        saved_by: `interval`, `objective`, `end`, or what stopped the run.
        changes: the stage of the curriculum, and the values that callbacks have set; None where
            nothing changes.
    """

    iteration: int
    logged_iteration: int
    env_steps: int
    decisions: int
    num_entries: int
    num_evaluations: int
    log_interval: int
    wall_s: float
    objective: float | None
    best: float | None
    num_worse: int
    saved_by: str
    changes: Mapping[str, Any] | None = None


def write_manifest(
    folder: Path, record: Mapping[str, Any], position: RunPosition, further: Mapping[str, Any]
) -> None:
    """Write the manifest of a checkpoint whose other files are complete.

    Args:
        folder: of the checkpoint.
        record: the content of the run's `config.json`.
        position: the progress of the run.
        further: additional entries of the manifest.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        "format": FORMAT,
        "run": record.get("id"),
        **asdict(position),
        **further,
        "versions": record.get("versions"),
        "sha256": {path.relative_to(folder).as_posix(): _digest(path) for path in files},
    }
    manifest["sha256_of_manifest"] = _digest_of_manifest(manifest)
    write_json(folder / MANIFEST_FILE, manifest, make_folder=False)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a checkpoint, and check it against its own checksum.

    Raises:
        DamagedCheckpoint: If it is missing or damaged.
        ValueError: If it is of a newer format, or cannot be read now.
    """
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(read_at_most(path, MAX_RECORD_BYTES))
        check_depth(manifest, "it")
    except _MISSING as error:
        raise DamagedCheckpoint(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise _unreadable(folder, error) from error
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path} cannot be read: {error}") from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise ValueError(_newer(folder, version, manifest.get("versions")))
    if version not in READABLE_FORMATS:
        raise DamagedCheckpoint(f"{path} is no manifest of a checkpoint: {show(manifest)}")
    if manifest.pop("sha256_of_manifest", None) != _digest_of_manifest(manifest):
        raise DamagedCheckpoint(f"{path} differs from its checksum")
    odd = _find_odd(manifest)
    if odd is not None:
        raise DamagedCheckpoint(f"{path} is no manifest of a checkpoint: {odd}")
    return manifest


def read_position(folder: Path) -> RunPosition:
    """Read a run's progress from a checkpoint, after checking all files that it needs.

    Raises:
        DamagedCheckpoint: If a file is missing or damaged.
        ValueError: If the checkpoint is of a newer format, or cannot be read now.
    """
    manifest = read_manifest(folder)
    try:
        check_files(folder, manifest)
        for name, own in manifest.get("members", {}).items():
            if "sha256" in own:
                _check_member(folder, member_checkpoint(folder, name), own["sha256"])
    except OSError as error:
        raise _unreadable(folder, error) from error
    return RunPosition(
        **{
            field.name: manifest[field.name]
            for field in fields(RunPosition)
            if field.name in manifest
        }
    )


def read_own_position(folder: Path) -> RunPosition:
    """Read a run's progress from a checkpoint in its folder, see `read_position`.

    Raises:
        DamagedCheckpoint: If a file is missing or damaged.
        ValueError: If the checkpoint belongs to another run, is of a newer format, or cannot be
            read now.
    """
    run_dir, run = folder.parent.parent, read_manifest(folder).get("run")
    try:
        record = read_json(run_dir / CONFIG_FILE)
    except ValueError:  # a run's record may be lost; its checkpoints also have it
        record = {}
    if "config" in record and record.get("id") != run:
        raise ValueError(
            f"{folder} belongs to another run: its id is {show(run)}, that of {run_dir} is "
            f"{show(record.get('id'))}; move it out of {folder.parent}"
        )
    return read_position(folder)


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check the files of a checkpoint and the snapshots that it needs against their checksums.

    Raises:
        DamagedCheckpoint: If one is missing or damaged.
        OSError: If one cannot be read.
    """
    for name, digest in manifest["sha256"].items():
        _check_file(folder / name, digest, "")
    for path, digest in files_of_archive(folder):
        _check_file(path, digest, f", on which {folder} stands,")


def member_checkpoint(folder: Path, name: str) -> Path:
    """Return the member's checkpoint that a group's checkpoint refers to."""
    return folder.parent.parent / MEMBERS / name / CHECKPOINTS / folder.name


def read_archive(folder: Path) -> Mapping[str, Any] | None:
    """Read the `CheckpointData.archive` of a checkpoint; None if it has none."""
    path = folder / SNAPSHOTS_FILE
    return read_json(path) if path.is_file() else None


def files_of_archive(folder: Path) -> list[tuple[Path, str]]:
    """List the files of snapshots that a checkpoint needs, with their checksums.

    Raises:
        DamagedCheckpoint: If the list is damaged.
    """
    run_dir = folder.parent.parent
    try:
        return [
            (snapshot_path(run_dir, policy, int(taken["iteration"])), str(taken["sha256"]))
            for policy, archived in (read_archive(folder) or {}).items()
            for taken in archived
        ]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        path = folder / SNAPSHOTS_FILE
        raise DamagedCheckpoint(f"{path} is no list of snapshots: {error}") from error


def _find_odd(manifest: Mapping[str, Any]) -> str | None:
    """Find invalid content in a manifest with a correct checksum, which anybody can compute."""
    for field in fields(RunPosition):
        if field.name == "changes":  # which older ones lack
            continue
        if field.name not in manifest:
            return f"it lacks {field.name}"
        value = manifest[field.name]
        if isinstance(value, bool) or not isinstance(value, _KINDS[field.type]):
            return f"{field.name} is {show(value)}"
        if isinstance(value, int) and not 0 <= value < 2**63:
            return f"{field.name} is {value}"
    for table, is_name in (("sha256", _is_within), ("members", _is_folder)):
        entries = manifest.get(table, {})
        if not isinstance(entries, Mapping) or not all(map(is_name, entries)):
            return f"{table} is {show(entries)}"
    if "sha256" not in manifest or not all(map(_is_text, manifest["sha256"].values())):
        return "it has no checksums"
    for name, own in manifest.get("members", {}).items():
        if not isinstance(own, Mapping) or not all(map(_is_text, own.values())):
            return f"the member {name!r} is {show(own)}"
    return _find_odd_in_pbt(manifest.get("pbt")) or _find_odd_in_changes(manifest.get("changes"))


def _find_odd_in_pbt(learnt: Any) -> str | None:
    """Find invalid content in the state of population-based training."""
    if learnt is None:
        return None
    if not isinstance(learnt, Mapping):
        return f"pbt is {show(learnt)}"
    try:
        from_json(learnt.get("lineage"))
    except ValueError as error:
        return f"pbt.lineage: {error}"
    kinds = {"scores": (int, float), "failed": (str,)}
    for key, kind in kinds.items():
        table = learnt.get(key)
        if not isinstance(table, Mapping) or not all(type(x) in kind for x in table.values()):
            return f"pbt.{key} is {show(table)}"
    if type(learnt.get("scored_at")) is not int:
        return f"pbt.scored_at is {show(learnt.get('scored_at'))}"
    return None


def _find_odd_in_changes(changes: Any) -> str | None:
    """Find invalid content in the stage of a curriculum and the values set by callbacks."""
    if changes is None:
        return None
    if not isinstance(changes, Mapping):
        return f"changes is {show(changes)}"
    for key in ("stage", "since", "logged"):
        if type(changes.get(key)) is not int or not 0 <= changes[key] < 2**63:
            return f"changes.{key} is {show(changes.get(key))}"
    values, set_by = changes.get("values"), changes.get("set_by")
    kinds = (bool, int, float)
    if not isinstance(values, Mapping) or not all(type(x) in kinds for x in values.values()):
        return f"changes.values is {show(values)}"
    if not isinstance(set_by, list) or not all(map(_is_text, set_by)):
        return f"changes.set_by is {show(set_by)}"
    return None


# By the annotations of a `RunPosition`: what its values are in a file.
_KINDS: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    float | None: (int, float, type(None)),
    str: (str,),
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_within(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _is_folder(name: str) -> bool:
    return _is_within(name) and len(PurePosixPath(name).parts) == 1


def _check_file(path: Path, expected: str, for_whom: str) -> None:
    if path.exists() and not path.is_file():  # a pipe or a device might have no end
        raise DamagedCheckpoint(f"{path}{for_whom} is no file")
    try:
        found = sha256_of(path) if for_whom else _digest(path)
    except _MISSING as error:
        raise DamagedCheckpoint(f"{path}{for_whom} is missing") from error
    if found != expected:
        raise DamagedCheckpoint(f"{path}{for_whom} differs from its checksum")


def _check_member(group: Path, folder: Path, sha256: str) -> None:
    """Reject a member's checkpoint that is damaged or differs from the group's record."""
    read_position(folder)
    if sha256_of(folder / MANIFEST_FILE) != sha256:
        raise DamagedCheckpoint(f"{folder} is not the one on which {group} stands")


def _newer(folder: Path, version: int, versions: Any) -> str:
    writer = versions.get("jaxmarl-ppo") if isinstance(versions, Mapping) else None
    return (
        f"{folder} has format {version}, written by jaxmarl-ppo "
        f"{writer if isinstance(writer, str) else 'of an unknown version'}; this version reads the "
        f"formats {', '.join(map(str, READABLE_FORMATS))}; install that version, or move the "
        "checkpoint elsewhere to use an older one"
    )


def _unreadable(folder: Path, error: OSError) -> ValueError:
    return ValueError(
        f"{folder} cannot be read now: {error.strerror or error} "
        f"({error.filename or MANIFEST_FILE}); nothing was changed; make it readable and try "
        "again, or move it elsewhere to use an older one"
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_manifest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
