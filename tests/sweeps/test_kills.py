"""A search that is killed again and again, and several that share one: the command itself."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing

import pytest

NUM_TRIALS = 12
SPACE = f"""
env = {{ name = "tic_tac_toe", kwargs = {{ size = 2, k = 2 }} }}
total_env_steps = 2048
num_envs = 8
num_steps = 16
log_interval = 4
[default_policy.network]
hidden_sizes = [4]
[default_ppo]
num_minibatches = 2
[objective]
measure = "agents/x/return_mean"
[space.default_ppo]
learning_rate = {{ low = 1e-4, high = 1e-2, log = true }}
[search]
sampler = "random"
num_trials = {NUM_TRIALS}
num_members = 2
"""


def start(folder):
    (folder / "space.toml").write_text(SPACE)
    command = "-m jaxmarl_ppo sweep space.toml --run-dir run --no-check-env"
    return subprocess.Popen(
        [sys.executable, *command.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def states(folder):
    """How many trials are in which state."""
    try:
        with closing(sqlite3.connect(folder / "run" / "study.db", timeout=60)) as database:
            return Counter(state for (state,) in database.execute("SELECT state FROM trials"))
    except sqlite3.OperationalError:  # not there yet
        return Counter()


def check_whole(folder):
    with closing(sqlite3.connect(folder / "run" / "study.db")) as database:
        rows = database.execute("SELECT number, state FROM trials ORDER BY number").fetchall()
    assert rows == [(number, "COMPLETE") for number in range(NUM_TRIALS)]
    rates = set()
    for number, _ in rows:
        run = folder / "run" / "trials" / f"{number:06d}"
        lines = (run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["env_steps"] for line in lines] == [512, 1024, 1536, 2048]
        rates.add(
            json.loads((run / "config.json").read_text())["config"]["default_ppo"]["learning_rate"]
        )
    assert len(rates) == NUM_TRIALS


@pytest.mark.slow
def test_a_search_that_is_killed_twice_ends_whole(tmp_path):
    kept = {}
    for wanted in (2, 6):
        process = start(tmp_path)
        deadline = time.monotonic() + 300
        while states(tmp_path)["COMPLETE"] < wanted:
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        process.communicate()
        found = states(tmp_path)
        assert found["COMPLETE"] < NUM_TRIALS
        for number in range(wanted // 2):  # these are over, and not touched again
            log = tmp_path / "run" / "trials" / f"{number:06d}" / "metrics.jsonl"
            assert kept.setdefault(log, log.read_text()) == log.read_text()
    process = start(tmp_path)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    assert f"{NUM_TRIALS} of {NUM_TRIALS} trials are over" in out
    check_whole(tmp_path)
    assert all(log.read_text() == text for log, text in kept.items())


@pytest.mark.slow
def test_two_that_share_a_search_end_whole_though_one_is_killed(tmp_path):
    killed, other = start(tmp_path), start(tmp_path)
    deadline = time.monotonic() + 300
    while not states(tmp_path)["COMPLETE"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    out, _ = other.communicate(timeout=600)
    assert other.returncode == 0, out
    check_whole(tmp_path)
