"""The arrays of a checkpoint, in one file per process of the job.

Every process writes its own environments; the first one also writes what is the same on all. It
waits for the others' parts, moves them into the folder, and lists their checksums with those of its
own files. So a checkpoint with a missing part never gets its name.

Checkpoints of format 1 have the first part in a folder written by orbax. They are no longer
written: orbax finds its files by patterns, so it cannot read files below a folder with brackets in
its name.
"""

import glob
import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import serialization

from jaxmarl_ppo.devices.processes import Processes
from jaxmarl_ppo.machine.archives import restore_msgpack
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.runs.files import STATE_FOLDER

# Arrays of single environments, which belong to one process.
_PER_ENV = "state/per_env/"


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of the first process into the folder of a checkpoint."""
    write_atomically(folder / _part_name(0), _pack(arrays), make_folder=False)


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Read the arrays of all parts of a checkpoint that `read_position` found sound.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file is not one of arrays.
    """
    first = folder / _part_name(0)
    arrays = _unpack(first) if first.is_file() else _read_format_1(folder / STATE_FOLDER)
    parts = [_unpack(path) for path in _parts_in(folder)]
    for name in parts[0] if parts else ():
        arrays[name] = np.concatenate([arrays[name], *(part[name] for part in parts)])
    return arrays


def check_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Read a checkpoint back, and compare it with what the first process has written.

    Raises:
        OSError: If the content differs.
    """
    found = read_arrays(folder)
    is_shared = bool(_parts_in(folder))
    for name in sorted(found.keys() | arrays.keys()):
        read, written = found.get(name), arrays.get(name)
        if read is not None and written is not None and is_shared and name.startswith(_PER_ENV):
            read = read[: len(written)]
        if read is None or written is None or not _is_same(read, written):
            raise OSError(f"{folder / _part_name(0)} reads otherwise than it was written: {name}")


def write_part(folder: Path, arrays: Mapping[str, np.ndarray], processes: Processes) -> None:
    """Write this process's part of a checkpoint beside it, and notify the first process.

    Args:
        folder: of the checkpoint.
        arrays: of this process.
        processes: of the job.

    Raises:
        OSError: If it cannot be written.
    """
    try:
        folder.parent.mkdir(exist_ok=True)  # not the run's folder, which may have been moved
        packed = _pack({k: x for k, x in arrays.items() if k.startswith(_PER_ENV)})
        write_atomically(_beside(folder, processes.index), packed, make_folder=False)
    except Exception as error:  # after any error the first process still awaits an answer
        processes.gather(_label(folder), {"error": str(error)})
        raise
    processes.gather(_label(folder), {"sha256": hashlib.sha256(packed).hexdigest()})


def await_parts(folder: Path, processes: Processes) -> list[str]:
    """Wait until all other processes have written their parts; return the SHA-256 of each.

    Raises:
        OSError: If one could not, or its part cannot be seen here.
    """
    reports: Sequence[Mapping[str, Any]] = processes.gather(_label(folder), {})[1:]
    for index, report in enumerate(reports, 1):
        if "error" in report:
            remove_parts(folder, processes)
            raise OSError(f"process {index} could not write its part: {report['error']}")
        if not _beside(folder, index).is_file():
            remove_parts(folder, processes)
            raise OSError(
                f"what process {index} wrote is not to be seen here: the run's folder must lie on "
                "a file system that all processes share"
            )
    return [report["sha256"] for report in reports]


def take_parts(folder: Path, temporary: Path, digests: Sequence[str]) -> None:
    """Move the others' parts into a checkpoint that is being written.

    Args:
        folder: the final folder of the checkpoint.
        temporary: its present folder.
        digests: what `await_parts` returned.

    Raises:
        OSError: If a part, as seen here, differs from what was written.
    """
    for index, digest in enumerate(digests, 1):
        part = temporary / _part_name(index)
        _beside(folder, index).replace(part)
        if hashlib.sha256(part.read_bytes()).hexdigest() != digest:
            raise OSError(f"the part that process {index} wrote reads otherwise here")


def remove_parts(folder: Path, processes: Processes) -> None:
    """Remove other processes' parts of an abandoned checkpoint."""
    for index in range(1, processes.count):
        _beside(folder, index).unlink(missing_ok=True)


def _part_name(index: int) -> str:
    return f"{STATE_FOLDER}-{index}.msgpack"


def _parts_in(folder: Path) -> list[Path]:
    """List the parts of a checkpoint but the first, in their order."""
    found: list[Path] = []
    while (path := folder / _part_name(1 + len(found))).is_file():
        found.append(path)
    return found


def _beside(folder: Path, index: int) -> Path:
    # Named like unfinished files, so that it is removed with them.
    return folder.with_name(f".{folder.name}.{_part_name(index)}.tmp")


def _label(folder: Path) -> str:
    return f"part of {folder.name}"


def _pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    return serialization.msgpack_serialize(dict(arrays))


def _unpack(path: Path) -> dict[str, np.ndarray]:
    try:
        content: Any = restore_msgpack(path.read_bytes())
        # Copied, since unpacked arrays are read-only and unaligned.
        return {name: np.array(array) for name, array in content.items()}
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise any error
        raise ValueError(f"{path} holds no arrays: {error}") from error


def _is_same(read: np.ndarray, written: np.ndarray) -> bool:
    """Compare two arrays bit for bit, whatever their numbers mean."""
    if (read.shape, read.dtype) != (written.shape, written.dtype):
        return False
    first, second = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (read, written))
    return np.array_equal(first, second)


def _read_format_1(folder: Path) -> dict[str, np.ndarray]:
    """Read files written by orbax, from a copy where it would take the path for a pattern."""
    path = str(folder.absolute())
    if glob.escape(path) == path and "\\" not in path:
        return _restore(folder.absolute())
    with tempfile.TemporaryDirectory() as place:
        return _restore(Path(shutil.copytree(folder, Path(place, STATE_FOLDER))))


def _restore(folder: Path) -> dict[str, np.ndarray]:
    """Make orbax read for this process alone, independently of others."""
    import orbax.checkpoint as ocp

    checkpointer: Any
    if jax.process_count() == 1:
        checkpointer = ocp.PyTreeCheckpointer()
    else:
        own = jax.process_index()
        options = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=options)
        checkpointer = ocp.Checkpointer(handler, multiprocessing_options=options)
    with checkpointer:
        restored = checkpointer.restore(folder)
    return {name: np.asarray(array) for name, array in restored.items()}
