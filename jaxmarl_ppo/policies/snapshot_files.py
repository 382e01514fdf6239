"""Snapshots in separate files, which are written once and never change."""

import functools
import hashlib
from pathlib import Path

import jax.numpy as jnp

from jaxmarl_ppo.machine.files import path_part
from jaxmarl_ppo.policies.population_file import POLICIES_FILE, load_player, save_population
from jaxmarl_ppo.policies.snapshot_pools import parse_name, snapshot_name
from jaxmarl_ppo.types import League, PolicyStack, Population

SNAPSHOTS = "snapshots"  # in the folder of a run; a folder for each pool
CHECKPOINTS = "checkpoints"  # one folder for each, called after its iteration
MEMBERS = "members"  # in the folder of a group of runs; a folder for each


def snapshot_path(run_dir: Path, pool: str, iteration: int) -> Path:
    """Name the file of a snapshot."""
    return run_dir / SNAPSHOTS / path_part(pool) / f"{iteration:09}.msgpack"


def find_snapshot(folder: Path, name: str) -> Path | None:
    """Find the file of a snapshot by its name; None if there is none.

    Args:
        folder: of a run, or of one of its checkpoints.
        name: such as `past@it150`.
    """
    parsed = parse_name(name)
    if parsed is None:
        return None
    run_dir = folder.parent.parent if folder.parent.name == CHECKPOINTS else folder
    path = snapshot_path(run_dir, *parsed)
    return path if path.is_file() else None


def path_of_player(folder: Path, name: str) -> Path:
    """Find the file that holds a player of a run: a snapshot's own, or that of all.

    Raises:
        ValueError: If the folder is that of a group of runs.
    """
    reject_group(folder)
    return find_snapshot(folder, name) or folder / POLICIES_FILE


def reject_group(folder: Path) -> None:
    """Reject the folder of a group where that of a single run is needed.

    Raises:
        ValueError: If it is one.
    """
    members = sorted(path.name for path in (folder / MEMBERS).glob("*") if path.is_dir())
    if members:
        raise ValueError(
            f"{folder} holds {len(members)} runs; name one of them, such as "
            f"{folder / MEMBERS / members[0]}"
        )


def write_snapshot(run_dir: Path, pool: str, iteration: int, stack: PolicyStack) -> str:
    """Write a snapshot, `[1, ...]` leaves, atomically; return the SHA-256 of the file.

    Raises:
        OSError: If it cannot be written, or the folder of the run is not there.
    """
    path = snapshot_path(run_dir, pool, iteration)
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(exist_ok=True)
    nobody_met = jnp.zeros((1, 1))
    league = League(score=nobody_met, payoff=nobody_met, games=nobody_met, pools=())
    names = (snapshot_name(pool, iteration),)
    save_population(path, names, Population((stack,), league), make_folder=False)
    return sha256_of(path)


def read_snapshot(run_dir: Path, pool: str, iteration: int, expected: PolicyStack) -> PolicyStack:
    """Read a snapshot, one policy of the shapes that `expected` has.

    Raises:
        ValueError: If the file is missing or damaged, or does not fit.
    """
    path = snapshot_path(run_dir, pool, iteration)
    return load_player(path, snapshot_name(pool, iteration), expected)


def sha256_of(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    stat = path.stat()
    return _sha256(path, stat.st_mtime_ns, stat.st_size)


# A league may have thousands, all used by several checkpoints.
@functools.cache
def _sha256(path: Path, mtime_ns: int, size: int) -> str:
    del mtime_ns, size  # a change of these means another file
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
