"""Kill training runs again and again, and see whether each ends as if nothing had happened.

    python scripts/kill_runs.py --kills 20 --out kills.json

Every run is trained once in peace and once with `kill -9` at random moments, some of them while a
checkpoint is being written. What both come to is compared to the bit: the whole training state and
the log. Exit status 1 says that a run differed or could not continue.
"""

import argparse
import dataclasses
import hashlib
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

import fingerprint as runs_of
import jax
import numpy as np

import jaxmarl_envs
from jaxmarl_ppo import (
    CheckpointConfig,
    EvaluationConfig,
    Matchups,
    ObjectiveConfig,
    PbtConfig,
    Range,
    Snapshots,
    Stage,
    TrainConfig,
    Trainer,
    use_cpu_cores,
)
from jaxmarl_ppo.machine.files import names_in
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.files import CHECKPOINTS, MEMBERS
from jaxmarl_ppo.runs.log import WALL_CLOCK_FIELDS

DEVICES = (1, 2)
NUM_ITERATIONS = 3000  # some twenty seconds of training
# Minutes from one checkpoint to the next, so few that many kills fall into one.
EVERY_MINUTES = 0.3 / 60
NAMES = ("per_agent", "shuttle_lstm", "league", "cnn", "normalised")
# Groups, a league most of whose snapshots lie in files, workers that step in Python, and a
# curriculum that goes back and forth.
FURTHER_NAMES = ("seeds", "pbt", "archive", "python", "curriculum")
NUM_SEEDS = 4  # of the groups


def further_runs() -> dict[str, runs_of.Run]:
    """List runs that are more than one program on the device."""
    crypto, _, crypto_config = runs_of.self_play_runs()["per_agent"]
    steps = crypto_config.num_envs * crypto_config.num_steps
    seeds = dataclasses.replace(
        crypto_config, num_seeds=NUM_SEEDS, total_env_steps=NUM_ITERATIONS * steps
    )
    pbt = dataclasses.replace(
        seeds,
        evaluation=EvaluationConfig(every_env_steps=100 * steps, episodes=8),
        objective=ObjectiveConfig("evaluation/all/return_mean"),
        pbt=PbtConfig({"default_ppo.learning_rate": Range(1e-4, 1e-2, log=True)}),
    )
    archive = runs_of.config(
        1,
        8,
        16,
        mapping=Matchups(({"x": "main", "o": "main"}, {"x": "main", "o": "past"})),
        policies={
            "past": Snapshots("main", size=None, on_device=3, add_every=100, exchange_every=20)
        },
    )
    python = runs_of.config(1, 4, 16)
    options = {"env_id": "mpe2.simple_spread_v3", "max_cycles": 10, "num_workers": 2}
    curriculum = runs_of.config(1, 4, 16)
    steps = curriculum.num_envs * curriculum.num_steps
    going = "all.return_mean > -1"
    curriculum = dataclasses.replace(
        curriculum,
        total_env_steps=NUM_ITERATIONS * steps,
        log_interval=50,
        curriculum=(
            Stage({"env.params.max_steps": 9}, advance_when=going, min_env_steps=130 * steps),
            Stage({"gamma": 0.9}, return_when=going, min_env_steps=70 * steps),
        ),
    )
    return {
        "curriculum": ("basic", {}, curriculum),
        "seeds": (crypto, {}, seeds),
        "pbt": (crypto, {}, pbt),
        "archive": ("tic_tac_toe", {}, archive),
        "python": ("pettingzoo", options, python),
    }


def run_config(name: str, num_devices: int) -> runs_of.Run:
    """Make a run longer, with a checkpoint every few iterations."""
    all_runs = runs_of.self_play_runs() | runs_of.memory_runs() | runs_of.update_runs()
    env, kwargs, config = (all_runs | further_runs())[name]
    iterations = NUM_ITERATIONS // 10 if name == "python" else NUM_ITERATIONS
    longer: TrainConfig = dataclasses.replace(
        config,
        total_env_steps=iterations * config.num_envs * config.num_steps,
        num_devices=1 if name in ("archive", "python") else num_devices,
        checkpoints=CheckpointConfig(every_minutes=EVERY_MINUTES),
        log_interval=50,
    )
    return env, kwargs, longer


def train(name: str, num_devices: int, folder: Path, result: Path) -> None:
    """Begin a run or go on with it, and write a hash of what it comes to."""
    use_cpu_cores(max(DEVICES))
    env, kwargs, config = run_config(name, num_devices)
    if checkpoints_of(folder):
        trainer = Trainer.resume(folder, progress=False)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        trainer = Trainer(*jaxmarl_envs.make(env, **kwargs), config, folder, progress=False)
    done = trainer.train()
    leaves = [runs_of.as_numpy(leaf) for leaf in jax.tree.leaves(done.state)]
    text = (folder / "metrics.jsonl").read_text()
    log = [
        {k: v for k, v in json.loads(line).items() if k not in WALL_CLOCK_FIELDS}
        for line in text.splitlines()
    ]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves))
    result.write_text(
        json.dumps(
            {"state": digest.hexdigest(), "log": runs_of.hash_text(log), "entries": len(log)}
        )
    )


def start(name: str, num_devices: int, folder: Path, result: Path) -> subprocess.Popen[bytes]:
    """Start a process that trains."""
    command = [
        sys.executable,
        __file__,
        "--train",
        name,
        str(num_devices),
        str(folder),
        str(result),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def is_saving(folder: Path) -> bool:
    """Tell whether a checkpoint is being written at this moment."""
    members = folder / MEMBERS
    folders = [folder, *(members / name for name in names_in(members))]
    names = (name for each in folders for name in names_in(each / CHECKPOINTS))
    return any(name.startswith(".") and name.endswith(".tmp") for name in names)


def kill_at_random(
    process: subprocess.Popen[bytes], folder: Path, rng: random.Random
) -> str | None:
    """Kill a process once it has gone on from where it was; tell in what, None if it ended.

    Half of the kills wait for the next save and fall somewhere into it.
    """
    before = {path.name for path in checkpoints_of(folder)}
    while not {path.name for path in checkpoints_of(folder)} - before:
        if process.poll() is not None:
            return None
        time.sleep(0.002)
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.0, 0.4))
    else:
        while not is_saving(folder):
            if process.poll() is not None:
                return None
        time.sleep(rng.uniform(0.0, 0.03))
    if process.poll() is not None:
        return None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return "saving" if is_saving(folder) else "training"


def compare(name: str, num_devices: int, kills: int, seed: int) -> dict[str, Any]:
    """Train a run in peace and with kills, and say whether both came to the same."""
    rng = random.Random(f"{name} {num_devices} {seed}")
    with tempfile.TemporaryDirectory() as place:
        whole, torn = Path(place, "whole"), Path(place, "torn")
        first, second = Path(place, "whole.json"), Path(place, "torn.json")
        process = start(name, num_devices, whole, first)
        errors = process.communicate()[1].decode()
        if process.returncode:
            raise RuntimeError(errors)
        moments: list[str] = []
        while len(moments) < kills:
            process = start(name, num_devices, torn, second)
            moment = kill_at_random(process, torn, rng)
            if moment is not None:
                moments.append(moment)
                continue
            if process.wait():
                assert process.stderr is not None
                return {
                    "same": False,
                    "kills": len(moments),
                    "error": process.stderr.read().decode(),
                }
            break
        else:
            process = start(name, num_devices, torn, second)
            errors = process.communicate()[1].decode()
            if process.returncode:
                return {"same": False, "kills": len(moments), "error": errors}
        expected, found = (json.loads(path.read_text()) for path in (first, second))
    return {
        "same": expected == found,
        "kills": len(moments),
        "while_saving": moments.count("saving"),
        "entries": found["entries"],
    }


def main() -> int:
    """Compare all runs and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="of every run")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--runs", nargs="+", default=[*NAMES, *FURTHER_NAMES])
    parser.add_argument("--devices", nargs="+", type=int, default=DEVICES)
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        name, num_devices, folder, result = options.train
        train(name, int(num_devices), Path(folder), Path(result))
        return 0
    results = {}
    with tempfile.TemporaryDirectory() as cache:
        # All processes of a run compile the same.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        for name in options.runs:
            for num_devices in options.devices:
                result = compare(name, num_devices, options.kills, options.seed)
                results[f"{name}, {num_devices} devices"] = result
                print(f"{name}, {num_devices} devices: {result}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(result["same"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
