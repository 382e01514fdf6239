"""Kill processes of a job again and again, and see whether all end and the run goes on.

    python scripts/kill_processes.py --kills 20 --processes 3 --out kills.json

A run is trained once in peace and once with `kill -9` of a random process at random moments: while
the processes find each other or compile, while they train, while a checkpoint is being written.
Each time the whole command has to end soon, with the dead one's number in what it says, and the
next start goes on from the newest checkpoint. What both come to is compared to the bit. Exit status
1 says that a process hung, that an end was without a word, or that the run became another one.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.files import CHECKPOINTS, METRICS_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.log import WALL_CLOCK_FIELDS

NUM_ITERATIONS = 400
# With so few minutes from one checkpoint to the next, many kills fall into one.
EVERY_MINUTES = 0.3 / 60
OPTIONS = [
    "--num-steps",
    "8",
    "--hidden-sizes",
    "16",
    "--ppo.num-epochs",
    "1",
    "--log-interval",
    "50",
]
# No process may take longer than that to end after another has died.
HANGS_S = 60.0

Job = subprocess.Popen


def start(folder: Path, count: int, said: Path) -> "Job[bytes]":
    """Start the processes of a job that begins a run or goes on with it."""
    if checkpoints_of(folder):
        what = ["resume", str(folder)]
    else:
        shutil.rmtree(folder, ignore_errors=True)
        num_envs = 4 * count
        what = ["train", "crypto", "--run-dir", str(folder), "--num-envs", str(num_envs)]
        what += ["--total-env-steps", str(NUM_ITERATIONS * num_envs * 8), *OPTIONS]
        what += ["--log-interval", "50", "--num-devices", str(count)]
        what += ["--checkpoints.every-minutes", str(EVERY_MINUTES)]
    command = [sys.executable, "-m", "jaxmarl_ppo", *what, "--processes", str(count)]
    with said.open("wb") as file:
        return Job(command, stdout=subprocess.DEVNULL, stderr=file)


def processes_of(job: "Job[bytes]", count: int) -> list[int]:
    """Find the processes that a job has started, in their order."""
    found: list[int] = []
    while len(found) < count and job.poll() is None:
        listed = subprocess.run(
            ["ps", "--ppid", str(job.pid), "-o", "pid="], capture_output=True, text=True
        )
        found = sorted(map(int, listed.stdout.split()))
    return found


def wait_for_moment(job: "Job[bytes]", folder: Path, rng: random.Random) -> str | None:
    """Wait for the moment of a kill; tell which it is, None if the run has ended before."""
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0.0, 15.0))
        return "start" if job.poll() is None else None
    before = {path.name for path in checkpoints_of(folder)}
    while not {path.name for path in checkpoints_of(folder)} - before:
        if job.poll() is not None:
            return None
        time.sleep(0.002)
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.0, 1.0))
        return "training" if job.poll() is None else None
    while not any((folder / CHECKPOINTS).glob(".*.tmp")):
        if job.poll() is not None:
            return None
    time.sleep(rng.uniform(0.0, 0.02))
    return "saving"


def kill(job: "Job[bytes]", pids: list[int], victim: int, said: Path) -> dict[str, Any]:
    """Kill a process, and see how the others end."""
    began = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    try:
        job.wait(HANGS_S)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait()
    seconds = time.monotonic() - began
    alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    words = said.read_text(errors="replace")
    return {
        "victim": victim,
        "hung": bool(alive),
        "seconds": seconds,
        "status": job.returncode,
        # By the others themselves, who may not know each other yet; and by what started them.
        "named_by_others": words.count(f"process {victim} of {len(pids)} ("),
        "named": f"process {victim} was ended by SIGKILL" in words,
    }


def train_in_peace(folder: Path, count: int, said: Path) -> None:
    """Train a run to its end, or go on with it to there."""
    if start(folder, count, said).wait():
        raise RuntimeError(said.read_text())


def come_to(folder: Path) -> dict[str, Any]:
    """Read what a run came to, without what clocks say."""
    lines = (folder / METRICS_FILE).read_text().splitlines()
    log = [
        {k: v for k, v in json.loads(line).items() if k not in WALL_CLOCK_FIELDS} for line in lines
    ]
    return {"policies": (folder / POLICIES_FILE).read_bytes(), "log": log}


def compare(count: int, num_kills: int, seed: int, place: Path) -> dict[str, Any]:
    """Train a run in peace and with kills."""
    rng = random.Random(seed)
    whole, torn, said = place / "whole", place / "torn", place / "said.txt"
    train_in_peace(whole, count, said)
    kills: list[dict[str, Any]] = []
    resumes = 0
    while len(kills) < num_kills:
        continues = bool(checkpoints_of(torn))
        job = start(torn, count, said)
        pids = processes_of(job, count)
        moment = wait_for_moment(job, torn, rng)
        if moment is None:
            if job.wait():
                raise RuntimeError(said.read_text())
            shutil.rmtree(torn)  # at its end; once more from the beginning
            continue
        resumes += continues
        kills.append({"moment": moment, **kill(job, pids, rng.randrange(count), said)})
        print(kills[-1], flush=True)
    train_in_peace(torn, count, said)
    return {"kills": kills, "resumes": resumes + 1, "same": come_to(whole) == come_to(torn)}


def main() -> int:
    """Compare, and say in a line what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        # All processes compile the same, again and again.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(place, "cache")))
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        result = compare(options.processes, options.kills, options.seed, Path(place))
    kills = result["kills"]
    unclean = [k for k in kills if k["status"] != 128 + signal.SIGKILL or not k["named"]]
    print(
        f"{len(kills)} kills, {sum(k['hung'] for k in kills)} hangs, "
        f"{len(kills) - len(unclean)} clean ends, {result['resumes']} resumes; "
        f"{max(k['seconds'] for k in kills):.1f} s at most to the last end; "
        f"{'the same' if result['same'] else 'ANOTHER'} result as in peace"
    )
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    return int(bool(unclean) or not result["same"] or any(k["hung"] for k in kills))


if __name__ == "__main__":
    sys.exit(main())
