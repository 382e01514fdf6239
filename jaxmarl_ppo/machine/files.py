"""Atomic writing: a file is either absent or whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is either absent or whole, whatever happens meanwhile."""
    with open_atomically(path) as file:
        file.write(content)


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write that is there, and whole, once the body has ended without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
