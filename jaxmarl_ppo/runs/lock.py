"""One process at a time in a run's folder."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from jaxmarl_ppo.machine.files import open_to_append, reject_link, remove_left_behind
from jaxmarl_ppo.machine.text import printable
from jaxmarl_ppo.runs.files import LOCK_FILE, reject_links


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which the system releases if the process dies.

    Raises:
        ValueError: If another process holds it, the file cannot be a lock, or folders of the run
            are links to elsewhere.
    """
    path = folder / LOCK_FILE
    reject_link(path)
    reject_links(folder)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ValueError(
            f"run folder {str(folder)!r} is in use by {_holder(path)}; wait for its end or choose "
            "another folder"
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        # For processes that find it held. A holder that died leaves its name, but no lock.
        with open_to_append(path, 0) as file:
            file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        remove_left_behind(folder)
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether a process trains in a folder; nothing in the folder is changed."""
    return is_held(folder / LOCK_FILE)


def is_held(path: Path) -> bool:
    """Return whether a process holds a lock, whose file stays as it is."""
    if path.is_symlink() or not path.is_file():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # as in a folder that may only be read
        return False
    lock.release()
    return False


def check_free(folder: Path) -> None:
    """Reject a folder in which another process trains, or whose folders are links.

    Raises:
        ValueError: If it is one.
    """
    reject_links(folder)
    if (folder / LOCK_FILE).exists():
        with locked(folder):
            pass


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return printable(path.read_text()[:200]) or "another process"
    return "another process"
