"""Files: written complete or not at all, through no link to elsewhere; read up to a size."""

import contextlib
import hashlib
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

# Neither exists on every system. Windows follows links only where it lets users make them.
_OPEN = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0)  # as the opening of a named pipe would
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")
_MAX_PART = 150  # of the 255 bytes that most systems have for a name
_LEFT_BEHIND_S = 600.0  # no file takes as long to write


def names_in(folder: Path) -> list[str]:
    """List what is in a folder: nothing where there is none, be it removed at this moment.

    Raises:
        OSError: If there is one that cannot be read.
    """
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_atomically(path: Path, content: bytes, make_folder: bool = True) -> None:
    """Write a file that is either complete or absent, whatever happens meanwhile."""
    with open_atomically(path, make_folder) as file:
        file.write(content)


@contextlib.contextmanager
def open_atomically(path: Path, make_folder: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that appears, complete, once the body has ended without an error.

    It takes the place of what has its name, be it a link: what that points to does not change.

    Args:
        path: the file.
        make_folder: whether to make a missing folder. Do not use it where the folder may have been
            renamed or removed meanwhile: a second one would appear in its place.
    """
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # A full disk's error names no file, and the temporary name is uninformative.
        if isinstance(error, OSError) and error.errno is not None:
            is_named = error.filename not in (None, str(temporary))
            error.filename = error.filename if is_named else str(path)
        raise
    sync_folder(path.parent)


def open_to_append(path: Path, size: int) -> io.FileIO:
    """Open a file to append to without a buffer, cut to its first `size` bytes.

    A link of either kind is replaced by a copy first, so that the file it shares does not grow.

    Raises:
        OSError: If it cannot be opened, or it is a folder, a pipe or a device.
    """
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or status.st_nlink > 1:
            write_atomically(path, _first_bytes(path, size))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _NEVER_WAIT | _OPEN, 0o666)
    file = os.fdopen(descriptor, "ab", buffering=0)
    try:
        _check_regular(path, os.fstat(descriptor))
        file.truncate(size)
    except BaseException:
        file.close()
        raise
    return file


def read_at_most(path: Path, num_bytes: int) -> bytes:
    """Read a file, unless it is larger than what is read may be.

    Raises:
        OSError: If it cannot be read, or it is a folder, a pipe or a device.
        ValueError: If it is too large.
    """
    _check_regular(path, path.stat())  # before it is opened, for which a pipe could keep us
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > num_bytes:
            raise ValueError(
                f"{str(path)!r} has {size:,} bytes; at most {num_bytes:,} are read of such a file"
            )
        return file.read(size)  # for which so much memory is taken, however little comes


def path_part(name: str) -> str:
    """Write any name as one part of a path, different names differently.

    Letters, digits and `_.-~` stay, unless the name would be long or mean something to the system.
    """
    part = quote(name, safe="", errors="surrogatepass")
    if not part.strip("."):
        part = part.replace(".", "%2E") or "%"
    if len(part) > _MAX_PART:
        part = f"{part[:_MAX_PART]}-{hashlib.sha256(part.encode()).hexdigest()[:16]}"
    return part


def reject_link(path: Path) -> None:
    """Reject a file or folder of a run that is a link, before anything is written or removed.

    Raises:
        ValueError: If it is one, of either kind.
    """
    try:
        status = path.lstat()
    except OSError:  # there is none yet; whoever writes it reports what is wrong
        return
    if stat.S_ISLNK(status.st_mode):
        raise ValueError(
            f"{path} is a link to {os.readlink(path)!r}; nothing is written or removed outside "
            "the run folder: remove the link, or put a copy in its place"
        )
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise ValueError(
            f"{path} is a file with another name elsewhere, which writing would change; put a copy "
            "in its place"
        )


def remove_left_behind(folder: Path) -> None:
    """Remove what processes that died while they wrote have left in a folder and below it."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names if _TEMPORARY.fullmatch(name)):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _LEFT_BEHIND_S:
                    path.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _first_bytes(path: Path, size: int) -> bytes:
    """Read the beginning of a regular file; of a link to nothing there is none."""
    try:
        _check_regular(path, path.stat())
    except FileNotFoundError:
        return b""
    with path.open("rb") as file:
        return file.read(size)


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "it is not a regular file", str(path))
