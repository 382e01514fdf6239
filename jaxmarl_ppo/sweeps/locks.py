"""Locks that processes hold while they live, released by the system at their death.

For a study in a file they are file locks; in a database they are advisory locks, freed with the
connection of their holder.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from jaxmarl_ppo.machine.files import reject_link
from jaxmarl_ppo.runs.lock import is_held

# How soon a database notices that a machine is gone without closing connections.
_KEEPALIVES = ("idle = 30", "interval = 10", "count = 3")


class FileLocks:
    """Locks in a folder.

    Args:
        folder: where their files lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Wait for a lock and hold it."""
        reject_link(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._path(name)):
            yield

    def is_held(self, name: str) -> bool:
        """Return whether a process that lives holds a lock."""
        return is_held(self._path(name))

    def _path(self, name: str) -> Path:
        path = self._folder / f"{name}.lock"
        reject_link(path)
        return path


class PostgresLocks:
    """Advisory locks of PostgreSQL.

    Args:
        engine: SQLAlchemy's, of the database.
        study: of the locks; other studies in the same database have other locks.
    """

    def __init__(self, engine: Any, study: str) -> None:
        self._engine, self._study = engine, study

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Wait for a lock and hold it."""
        with self._connect() as connection:
            for setting in _KEEPALIVES:
                connection.exec_driver_sql(f"SET tcp_keepalives_{setting}")
            connection.exec_driver_sql(f"SELECT pg_advisory_lock({self._number(name)})")
            try:
                yield
            finally:
                connection.exec_driver_sql(f"SELECT pg_advisory_unlock({self._number(name)})")

    def is_held(self, name: str) -> bool:
        """Return whether a process that lives holds a lock."""
        with self._connect() as connection:
            number = self._number(name)
            taken = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({number})").scalar()
            if taken:
                connection.exec_driver_sql(f"SELECT pg_advisory_unlock({number})")
            return not taken

    def _connect(self) -> Any:
        # Without transactions, which would stay open while a lock is held.
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _number(self, name: str) -> int:
        digest = hashlib.sha256(f"{self._study}/{name}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)


Locks = FileLocks | PostgresLocks  # by name, shared by all drivers of a search
