"""One process at a time in a run's folder."""

import signal
import subprocess
import sys

import pytest

from jaxmarl_ppo.runs.lock import locked

HOLD = """
import sys, time
from pathlib import Path
from jaxmarl_ppo.runs.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with (
        pytest.raises(ValueError, match=f"is in use by process {process.pid} on"),
        locked(tmp_path),
    ):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with locked(tmp_path):  # what it left behind holds nobody up
        assert (tmp_path / ".lock").exists()
    with locked(tmp_path):
        pass
