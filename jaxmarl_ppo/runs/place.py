"""The place of a run's folders on the disk, which may be renamed or removed during training."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path


class RunFolderMoved(ValueError):  # noqa: N818
    """Reports that a run's folder was renamed or removed while the run trained."""


class RunFolders:
    """Tracks the folders of a run, and notices when they are moved.

    Args:
        folder: of the run, which exists.
        members: of the runs in it.
    """

    def __init__(self, folder: Path, members: Iterable[Path] = ()) -> None:
        self.folder = folder
        self.members = [*members]
        self._identities = {each: _identity(each) for each in (folder, *self.members)}
        # Held open for its name, which only Linux reports.
        self._handle = os.open(folder, os.O_RDONLY) if sys.platform == "linux" else None

    def is_there(self) -> bool:
        """Return whether the folder of the run is still the one that it was."""
        return _identity(self.folder) == self._identities[self.folder]

    def check(self) -> None:
        """Raise if a folder is no longer the one that it was.

        Raises:
            RunFolderMoved: If it was renamed, removed or replaced.
        """
        for folder, identity in self._identities.items():
            if _identity(folder) != identity:
                found = self.renamed_to
                what = "removed" if found is None else f"renamed to {str(found)!r}"
                raise RunFolderMoved(f"run folder {str(folder)!r} was {what} while the run trained")

    @property
    def renamed_to(self) -> Path | None:
        """The folder's new name, if it and those of its members are complete under that one."""
        if self._handle is None or self.is_there():
            return None
        folder = Path(os.readlink(f"/proc/self/fd/{self._handle}"))
        members = {folder / each.relative_to(self.folder): each for each in self.members}
        now = {folder: self.folder, **members}
        is_complete = all(_identity(new) == self._identities[old] for new, old in now.items())
        return folder if is_complete else None

    def close(self) -> None:
        """Release the folder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
