"""Runs that are killed come to what they would have come to in peace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices"), [("league", 2), ("shuttle_lstm", 1), ("seeds", 2), ("curriculum", 2)]
)
def test_a_run_that_is_killed_again_and_again_ends_as_in_peace(tmp_path, name, devices):
    out = tmp_path / "kills.json"
    command = [sys.executable, str(ROOT / "scripts" / "kill_runs.py"), "--out", str(out)]
    command += ["--runs", name, "--devices", str(devices), "--kills", "2"]
    paths = [str(ROOT), str(ROOT / "envs"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(out.read_text()).values()
    assert result["same"]
    assert result["kills"] == 2
