"""`kill -9` at random moments: single runs, groups, searches and the processes of a job."""

import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import kill_processes
import kill_runs

from attack_kinds.attempts import Attempt, start, wait

NUM_TRIALS = 24
SPACE = f"""
env = {{ name = "tic_tac_toe", kwargs = {{ size = 2, k = 2 }} }}
total_env_steps = 4096
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
pruner = "asha"
num_trials = {NUM_TRIALS}
num_members = 2
"""


def killed_runs(place: Path, kills: int) -> Iterator[Attempt]:
    """Kill runs of every kind; each must come to what it comes to in peace, bit for bit."""
    del place
    for name in ("per_agent", "shuttle_lstm", *kill_runs.FURTHER_NAMES):
        result = kill_runs.compare(name, 1, kills, seed=0)
        wrong = "" if result["same"] else f"another result: {result.get('error', '')[-300:]}"
        for number in range(max(1, result["kills"])):
            yield Attempt("kills", f"{name}, kill {number}", wrong, str(result))


def killed_processes(place: Path, kills: int) -> Iterator[Attempt]:
    """Kill one of the two processes of a job."""
    result = kill_processes.compare(2, kills, 0, place)
    for number, kill in enumerate(result["kills"]):
        wrong = "hung" if kill["hung"] else "" if result["same"] else "another result"
        yield Attempt("kills of processes", f"{kill['moment']}, kill {number}", wrong, str(kill))


def killed_launchers(place: Path) -> Iterator[Attempt]:
    """Kill the command that started the processes of a job, which must end and free the folder."""
    steps = ["--total-env-steps", "1e9", "--num-envs", "8", "--num-steps", "8"]
    for number in range(3):
        words = ["train", "crypto", *steps, "--run-dir", f"run{number}", "--processes", "2"]
        process = start([*words, "--no-progress", "--checkpoints.every-minutes", "0.02"], place)
        run = place / f"run{number}"
        deadline = time.monotonic() + 180
        while not list(run.glob("checkpoints/0*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        ended = wait(process, place, 30)
        wrong = f"{len(ended.left)} processes trained on" if ended.left else ""
        yield Attempt("kills of launchers", f"kill {number}", wrong, ended.last)


def killed_searches(place: Path, kills: int) -> Iterator[Attempt]:
    """Kill a search with successive halving, which must end with all of its trials."""
    rng = random.Random(0)
    (place / "space.toml").write_text(SPACE)
    words = ["sweep", "space.toml", "--run-dir", "search", "--no-check-env", "--no-progress"]
    said = []
    for number in range(kills):
        process = start(words, place)
        before = sum(_states(place).values())
        deadline = time.monotonic() + 120
        while process.poll() is None and sum(_states(place).values()) <= before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 1.0))
        process.send_signal(signal.SIGKILL)
        ended = wait(process, place, 30)
        said.append((number, f"{len(ended.left)} processes were left" if ended.left else ""))
    ended = wait(start(words, place), place, 600)
    found = _states(place)
    whole = found["COMPLETE"] + found["PRUNED"] == NUM_TRIALS == sum(found.values())
    for number, wrong in said:
        wrong = wrong or ("" if whole and ended.status == 0 else f"{dict(found)}: {ended.last}")
        yield Attempt("kills of searches", f"kill {number}", wrong, str(dict(found)))


def _states(place: Path) -> Counter[str]:
    """Count the trials of a search by their states."""
    try:
        with closing(sqlite3.connect(place / "search" / "study.db", timeout=60)) as database:
            return Counter(state for (state,) in database.execute("SELECT state FROM trials"))
    except sqlite3.OperationalError:  # not there yet
        return Counter()
