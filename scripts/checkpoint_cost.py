"""Cost of saving checkpoints: training with and without them, in turn in one process.

    python scripts/checkpoint_cost.py --json

Runs with a checkpoint every few seconds are compared with runs without any. The two rates give the
cost of one checkpoint, and its fraction of training time at the default interval.
"""

import argparse
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path

import jaxmarl_envs
from jaxmarl_ppo import CheckpointConfig, TrainConfig, Trainer, use_cpu_cores
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.config.run import EVERY_MINUTES
from jaxmarl_ppo.runs.checkpoints import checkpoints_of

WORKLOADS = {
    "crypto": Workload(env="crypto", mapping="per_agent", num_envs=256),
    "shuttle_grid": Workload(env="shuttle_grid", network="lstm", num_envs=64),
}
EVERY_S = 1.0  # from one checkpoint to the next
SECONDS = 12.0  # of each run, compilation excluded, about


def rate(config: TrainConfig, workload: Workload, folder: Path) -> tuple[float, int]:
    """Train once; return environment steps per second and how many checkpoints fell into it."""
    env, params = jaxmarl_envs.make(workload.env)
    result = Trainer(env, params, config, folder, progress=False).train()
    # From the first entry on, where everything is warm.
    first, last = result.history[0], result.history[-1]
    steps = last["env_steps"] - first["env_steps"]
    return steps / (last["wall_s"] - first["wall_s"]), max(0, len(checkpoints_of(folder)) - 1)


def measure(name: str, pairs: int) -> dict[str, float]:
    """Measure one workload."""
    workload = WORKLOADS[name]
    config = dataclasses.replace(workload.make()[2], log_interval=5)
    often = CheckpointConfig(every_minutes=EVERY_S / 60, keep=10_000)
    none = CheckpointConfig(keep=0)
    ratios, seconds = [], []
    with tempfile.TemporaryDirectory() as place:
        short = dataclasses.replace(
            config, checkpoints=none, total_env_steps=30 * config.num_envs * config.num_steps
        )
        speed, _ = rate(short, workload, Path(place, "warm"))
        config = dataclasses.replace(config, total_env_steps=int(speed * SECONDS))
        for pair in range(pairs):
            found = {}
            for kind in ("often", "none") if pair % 2 else ("none", "often"):
                chosen = often if kind == "often" else none
                run = dataclasses.replace(config, checkpoints=chosen)
                found[kind] = rate(run, workload, Path(place, f"{kind}{pair}"))
            ratios.append(found["often"][0] / found["none"][0])
            time = config.total_env_steps / found["often"][0]
            seconds.append(time * (1.0 - ratios[-1]) / max(1, found["often"][1]))
    cost = statistics.median(seconds)
    return {
        "speed_with_one_a_second": statistics.median(ratios),
        "seconds_per_checkpoint": cost,
        "share_at_default_interval": cost / (60.0 * EVERY_MINUTES),
    }


def main() -> None:
    """Measure all workloads and print a line for each, or one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5, help="of runs with and without")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    use_cpu_cores()
    results = {name: measure(name, options.pairs) for name in WORKLOADS}
    if options.json:
        print(json.dumps(results))
        return
    for name, result in results.items():
        print(name, {key: round(value, 5) for key, value in result.items()})


if __name__ == "__main__":
    main()
