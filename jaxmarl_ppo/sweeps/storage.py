"""Databases that hold a search, by URL: a file of SQLite, or PostgreSQL."""

from pathlib import Path

import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.machine.extras import how_to_install
from jaxmarl_ppo.runs.files import LOCKS_FOLDER, STUDY_FILE
from jaxmarl_ppo.sweeps.locks import FileLocks, Locks, PostgresLocks

# How long a process waits for another's write.
_SQLITE_TIMEOUT_S = 120.0


def database_url(storage: str | None, folder: Path) -> URL:
    """Find the database of a search.

    Args:
        storage: the user's choice; None for a file in the folder.
        folder: of the search.

    Raises:
        ValueError: If it is not a PostgreSQL URL.
    """
    if storage is None:
        return URL.create("sqlite", database=str(folder / STUDY_FILE))
    try:
        url = make_url(storage)
    except ArgumentError:
        url = None
    if url is None or url.get_backend_name() != "postgresql":
        raise ValueError(
            f"storage must be postgresql://USER@HOST/DATABASE, got {show(storage)}; without it "
            f"trials are kept in the file {STUDY_FILE}"
        )
    return url.set(drivername="postgresql+psycopg")


def without_password(storage: str | None) -> str | None:
    """Write a URL without its password, for files that others read."""
    if storage is None:
        return None
    return make_url(storage)._replace(password=None).render_as_string()


def open_locks(url: URL, folder: Path, study: str) -> Locks:
    """Make the locks of all drivers of a study.

    Raises:
        ValueError: If the database's driver is not installed.
    """
    if url.get_backend_name() == "sqlite":
        return FileLocks(folder / LOCKS_FOLDER)
    try:
        return PostgresLocks(sqlalchemy.create_engine(url, poolclass=NullPool), study)
    except ImportError as error:
        raise ValueError(
            f"storage in PostgreSQL needs psycopg: {how_to_install('optuna', 'postgres')}"
        ) from error


def open_storage(url: URL, locks: Locks) -> RDBStorage:
    """Open a database, and make its tables if it is new.

    Raises:
        ValueError: If it cannot be reached.
    """
    options = (
        {"connect_args": {"timeout": _SQLITE_TIMEOUT_S}}
        if url.get_backend_name() == "sqlite"
        # A connection lasts only for its purpose, and so no longer than the server.
        else {"poolclass": NullPool}
    )
    try:
        # Two processes that make the same tables at once would conflict.
        with locks.hold("tables"):
            return RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=options)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise ValueError(f"the database {url!r} cannot be used: {reason}") from error
