"""A study in PostgreSQL, of a server that the test starts for itself."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from driving import (
    SPAWNED,
    check_that_several_share,
    check_that_the_killed_are_followed,
    open_study,
)

pytest.importorskip("psycopg")
# Debian does not put it on the path.
_PLACES = [shutil.which("pg_ctl"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))]
_PG_CTL = next((Path(place) for place in _PLACES if place is not None), None)


@pytest.fixture(scope="module")
def database():
    """URL of a database that is reached by a socket in a folder of its own."""
    if _PG_CTL is None:
        pytest.skip("there is no PostgreSQL server here; Debian's package is called postgresql")
    # Sockets have short paths, and whoever runs the server must be able to reach them.
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:
        folder = Path(name)
        user = {}
        if os.getuid() == 0:  # who may not run a server
            account = _account()
            os.chown(folder, account.pw_uid, account.pw_gid)
            user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

        def run(*command):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
            subprocess.run(command, check=True, cwd=folder, timeout=120, **quiet, **user)

        data = str(folder / "data")
        run(str(_PG_CTL.with_name("initdb")), "-D", data, "-U", "searcher", "-A", "trust", "-N")
        options = (
            f"-k {folder} -c listen_addresses= -c fsync=off -c dynamic_shared_memory_type=mmap"
        )
        run(str(_PG_CTL), "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://searcher@/postgres?host={folder}"
        finally:
            run(str(_PG_CTL), "-D", data, "-m", "immediate", "stop")


def _account():
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return pytest.skip("root may not run PostgreSQL, and there is nobody else here")


def test_two_processes_run_no_trial_twice_and_lose_none(tmp_path, database):
    search = {"num_trials": 16, "storage": database, "study": "shared"}
    check_that_several_share(tmp_path, SPAWNED.Process, search)


def test_trials_of_a_process_that_is_killed_are_run_by_the_next(tmp_path, database):
    search = {"num_trials": 4, "storage": database, "study": "killed"}
    check_that_the_killed_are_followed(tmp_path, search)


def test_studies_of_one_database_are_apart(tmp_path, database):
    for name in ("one", "other"):
        study = open_study(tmp_path, storage=database, study=name)
        with study.driving():
            assert study.ask().number == 0
