"""The arrays of a checkpoint, and the parts of them that the processes of a job write each.

Every process holds its own environments, and writes them; what is the same on all, the first one
writes. It waits for the others' parts, takes them into the folder, and lists their checksums among
those of its own files. So a checkpoint in which a part is missing never gets its name. A part is a
file for itself, since orbax writes what is on the host for the first process alone.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import serialization

from jaxmarl_ppo.devices.processes import Processes
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.runs.files import STATE_FOLDER

# What belongs to single environments, and with them to a process.
_PER_ENV = "state/per_env/"


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as orbax does, which refuses those without a number."""
    with _checkpointer() as checkpointer:
        checkpointer.save(folder.absolute(), {k: x for k, x in arrays.items() if x.size})


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a checkpoint that `read_standing` found sound, of all its parts."""
    with _checkpointer() as checkpointer:
        restored = checkpointer.restore((folder / STATE_FOLDER).absolute())
    arrays = {name: np.asarray(array) for name, array in restored.items()}
    parts = [serialization.msgpack_restore(path.read_bytes()) for path in _parts_in(folder)]
    for name in parts[0] if parts else ():
        arrays[name] = np.concatenate([arrays[name], *(part[name] for part in parts)])
    return arrays


def write_part(folder: Path, arrays: Mapping[str, np.ndarray], processes: Processes) -> None:
    """Write this process's part of a checkpoint beside it, and tell the first process of it.

    Args:
        folder: of the checkpoint that it is to be a part of.
        arrays: of this process.
        processes: of the job.

    Raises:
        OSError: it cannot be written.
    """
    try:
        own = {k: x for k, x in arrays.items() if k.startswith(_PER_ENV) and x.size}
        packed = serialization.msgpack_serialize(own)
        write_atomically(_beside(folder, processes.index), packed)
    except Exception as error:  # whatever it is, the first process waits for a word
        processes.gather(_label(folder), {"error": str(error)})
        raise
    processes.gather(_label(folder), {"sha256": hashlib.sha256(packed).hexdigest()})


def await_parts(folder: Path, processes: Processes) -> list[str]:
    """Wait until all other processes have written their parts; return the SHA-256 of each.

    Raises:
        OSError: one could not, or its part is not to be seen here.
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
        folder: that the checkpoint is to have.
        temporary: that it has now.
        digests: what `await_parts` returned.

    Raises:
        OSError: what is to be seen here of a part is not what was written.
    """
    for index, digest in enumerate(digests, 1):
        part = temporary / _part_name(index)
        _beside(folder, index).replace(part)
        if hashlib.sha256(part.read_bytes()).hexdigest() != digest:
            raise OSError(f"the part that process {index} wrote reads otherwise here")


def remove_parts(folder: Path, processes: Processes) -> None:
    """Remove what other processes wrote for a checkpoint that does not come about."""
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
    # As what is unfinished is called, so that it is removed with it.
    return folder.with_name(f".{folder.name}.{_part_name(index)}.tmp")


def _label(folder: Path) -> str:
    return f"part of {folder.name}"


def _checkpointer() -> Any:
    """Make what writes and reads for this process alone, whatever others do meanwhile."""
    import orbax.checkpoint as ocp

    if jax.process_count() == 1:
        return ocp.PyTreeCheckpointer()
    own = jax.process_index()
    options = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=options)
    return ocp.Checkpointer(handler, multiprocessing_options=options)
