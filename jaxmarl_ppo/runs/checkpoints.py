"""Checkpoints: the whole state of training in a folder, which is whole or absent.

A checkpoint is a folder `checkpoints/<iteration>`. It has the record and the policies of a run, so
that it evaluates, exports and is loaded from as a run is; `state`, every array of the training
state as orbax writes it; and `manifest.json`, where the run stood and the SHA-256 of every other
file. Nothing read here executes.
"""

import contextlib
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.machine.files import sync_folder
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.policies.snapshot_files import sha256_of, snapshot_path
from jaxmarl_ppo.runs.files import (
    CHECKPOINTS,
    CONFIG_FILE,
    MANIFEST_FILE,
    MEMBERS,
    POLICIES_FILE,
    SNAPSHOTS_FILE,
    STATE_FOLDER,
)
from jaxmarl_ppo.types import Population, PyTree

FORMAT = 1
_DIGITS = 9  # of a folder's name, so that names sort as iterations do
_DAMAGED = ".damaged"


@dataclass(frozen=True)
class Standing:
    """Tells where a run stands, beside its state.

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


@dataclass(frozen=True)
class Snapshot:
    """Holds all that a checkpoint is made of, on the host.

    Attributes:
        arrays: by name, see `to_arrays`.
        population: the players.
        names: of the players.
        record: the content of `config.json`.
        standing: where the run stands.
        archive: pools of which a part lies in files of the run, by policy: lists of
            `{"iteration", "sha256", ...}`; None where there is no such pool.
    """

    arrays: Mapping[str, np.ndarray]
    population: Population
    names: tuple[str, ...]
    record: Mapping[str, Any]
    standing: Standing
    archive: Mapping[str, Any] | None = None


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Copy the leaves of a tree to the host, by their paths in it; keys as their words."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    leaves = jax.device_get([_words(leaf) for _, leaf in flat])
    # Copied, since on a CPU what comes may be the device's own memory, which training reuses.
    return {_name(path): np.array(leaf) for (path, _), leaf in zip(flat, leaves, strict=True)}


def from_arrays(arrays: Mapping[str, np.ndarray], expected: PyTree, where: Path) -> PyTree:
    """Make a tree from what `to_arrays` made of one.

    Args:
        arrays: by path.
        expected: a tree of the same structure, arrays or only their shapes and types.
        where: the file, for messages.

    Returns:
        The tree, its leaves as NumPy's arrays, keys as JAX's.

    Raises:
        ValueError: an array is missing, superfluous, or of another shape or type.
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(expected)
    wanted = {_name(path): leaf for path, leaf in flat}
    # Without a single number in it an array is not written.
    empty = {k: np.zeros(x.shape, x.dtype) for k, x in wanted.items() if not x.size}
    arrays = {**empty, **arrays}
    for name in sorted(wanted.keys() | arrays.keys()):
        found = _describe(arrays.get(name))
        words = jax.eval_shape(_words, wanted[name]) if name in wanted else None
        if found != _describe(words):
            raise ValueError(
                f"{where} does not fit the run: {name} is {found}, but should be {_describe(words)}"
            )
    leaves = [_typed(arrays[name], leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(structure, leaves)


def write_checkpoint(run_dir: Path, snapshot: Snapshot) -> Path:
    """Write a checkpoint; until it is whole nothing has its name.

    Raises:
        OSError: it cannot be written.
    """

    def fill(folder: Path) -> None:
        save_population(folder / POLICIES_FILE, snapshot.names, snapshot.population)
        _write_arrays(folder / STATE_FOLDER, snapshot.arrays)
        if snapshot.archive is not None:
            write_json(folder / SNAPSHOTS_FILE, snapshot.archive)

    return write_whole(run_dir, snapshot.record, snapshot.standing, fill)


def write_whole(
    run_dir: Path,
    record: Mapping[str, Any],
    standing: Standing,
    fill: Callable[[Path], None],
    **further: Any,
) -> Path:
    """Write a checkpoint; until it is whole nothing has its name.

    Args:
        run_dir: the folder of the run.
        record: the content of its `config.json`.
        standing: where it stands.
        fill: puts all else into the folder that it is called with.
        **further: what else its manifest is to say.

    Raises:
        OSError: it cannot be written.
    """
    folder = run_dir / CHECKPOINTS / f"{standing.iteration:0{_DIGITS}}"
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        write_json(temporary / CONFIG_FILE, record)
        fill(temporary)
        manifest = {
            "format": FORMAT,
            **asdict(standing),
            **further,
            "versions": record.get("versions"),
            "sha256": _digests(temporary),
        }
        manifest["sha256_of_manifest"] = _digest_of_manifest(manifest)
        write_json(temporary / MANIFEST_FILE, manifest)
        if folder.exists():  # of a run that went back to an older one
            shutil.rmtree(folder)
        temporary.replace(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def checkpoints_of(run_dir: Path) -> list[Path]:
    """List the folders of a run's checkpoints, the newest first."""
    folder = run_dir / CHECKPOINTS
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        (path for path in found if path.name.isdecimal() and path.is_dir()),
        key=lambda path: int(path.name),
        reverse=True,
    )


def read_standing(folder: Path) -> Standing:
    """Read where a run stood from a checkpoint, all of whose files are checked.

    Raises:
        ValueError: a file is missing or damaged.
    """
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is no manifest of format {FORMAT}: {show(manifest)}")
    if manifest.pop("sha256_of_manifest", None) != _digest_of_manifest(manifest):
        raise ValueError(f"{path} differs from its checksum")
    found = _digests(folder)  # with what others may have put beside, such as pictures
    for name, digest in manifest["sha256"].items():
        if found.get(name) != digest:
            what = "is missing" if name not in found else "differs from its checksum"
            raise ValueError(f"{folder / name} {what}")
    for path, sha256 in _files_of_archive(folder):
        if not path.is_file():
            raise ValueError(f"{path}, on which {folder} stands, is missing")
        if sha256_of(path) != sha256:
            raise ValueError(f"{path}, on which {folder} stands, differs from its checksum")
    for name, own in manifest.get("members", {}).items():
        if "sha256" in own:
            _check_member(folder, member_checkpoint(folder, name), own["sha256"])
    return Standing(**{field.name: manifest[field.name] for field in fields(Standing)})


def member_checkpoint(folder: Path, name: str) -> Path:
    """Return the checkpoint of a member on which that of a group stands."""
    return folder.parent.parent / MEMBERS / name / CHECKPOINTS / folder.name


def read_archive(folder: Path) -> Mapping[str, Any] | None:
    """Read what `Snapshot.archive` was of a checkpoint; None if it has none."""
    path = folder / SNAPSHOTS_FILE
    return json.loads(path.read_bytes()) if path.is_file() else None


def archived_files(run_dir: Path) -> set[Path]:
    """Collect the files of snapshots that the checkpoints of a run stand on."""
    found = set()
    for folder in checkpoints_of(run_dir):
        with contextlib.suppress(OSError, ValueError):
            found |= {path for path, _ in _files_of_archive(folder)}
    return found


def _check_member(group: Path, folder: Path, sha256: str) -> None:
    """Refuse a member's checkpoint that is damaged, or another one than the group's stands on."""
    read_standing(folder)
    if sha256_of(folder / MANIFEST_FILE) != sha256:
        raise ValueError(f"{folder} is not the one on which {group} stands")


def _files_of_archive(folder: Path) -> list[tuple[Path, str]]:
    """List the files of snapshots that a checkpoint stands on, with their checksums."""
    run_dir = folder.parent.parent
    return [
        (snapshot_path(run_dir, policy, taken["iteration"]), taken["sha256"])
        for policy, archived in (read_archive(folder) or {}).items()
        for taken in archived
    ]


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a checkpoint that `read_standing` found sound."""
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore((folder / STATE_FOLDER).absolute())
    return {name: np.asarray(array) for name, array in restored.items()}


def newest_sound(run_dir: Path, set_aside: bool = True) -> tuple[Path, Standing]:
    """Find the newest checkpoint without damage; damaged ones are told by a warning.

    Args:
        run_dir: the folder of the run.
        set_aside: whether damaged ones lose their names, so that new ones can take their places.

    Raises:
        ValueError: there is none.
    """
    damages = []
    for folder in checkpoints_of(run_dir):
        try:
            standing = read_standing(folder)
        except ValueError as error:
            damages.append(str(error))
            if set_aside:
                _set_aside(folder)
            continue
        if damages:
            _warn(
                f"{'; '.join(damages)}: going back to {folder}, of {standing.env_steps:,} "
                "environment steps"
            )
        return folder, standing
    if damages:
        raise ValueError(f"no checkpoint of {run_dir} is whole: {'; '.join(damages)}")
    raise ValueError(f"{run_dir} has no checkpoint to go on from")


def best_checkpoint(run_dir: Path, goal: str) -> Path | None:
    """Find the checkpoint with the best value of the objective; None if none has one."""
    values = {}
    for folder in checkpoints_of(run_dir):
        with contextlib.suppress(ValueError):
            value = read_standing(folder).objective
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
        ValueError: there is no such checkpoint.
    """
    there = {str(int(folder.name)): folder for folder in checkpoints_of(run_dir)}
    if which == "newest":
        return newest_sound(run_dir, set_aside=False)[0]
    found = best_checkpoint(run_dir, goal) if which == "best" else there.get(which.lstrip("0"))
    if found is None:
        why = "; the run had no objective" if which == "best" else ""
        raise ValueError(
            f"{run_dir} has no checkpoint {which!r}{why}; valid: "
            f"{', '.join(['newest', *sorted(there, key=int)])}"
        )
    read_standing(found)
    return found


def prune(run_dir: Path, keep: int, best: Path | None) -> None:
    """Remove all checkpoints but the newest ones and the best one."""
    for folder in checkpoints_of(run_dir)[keep:]:
        if folder != best:
            shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(run_dir: Path) -> None:
    """Remove what a process that died while saving has left."""
    for path in (run_dir / CHECKPOINTS).glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def _write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as orbax does, which refuses those without a number."""
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder.absolute(), {k: x for k, x in arrays.items() if x.size})


def _digests(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of every file but the manifest, by its path within a checkpoint."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != MANIFEST_FILE
    }


def _digest_of_manifest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _set_aside(folder: Path) -> None:
    aside = folder.with_name(folder.name + _DAMAGED)
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.replace(aside)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _typed(array: np.ndarray, leaf: Any) -> Any:
    if not _is_key(leaf):
        return array
    return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))


def _describe(array: Any) -> str:
    return "absent" if array is None else f"{array.dtype}{list(array.shape)}"


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
