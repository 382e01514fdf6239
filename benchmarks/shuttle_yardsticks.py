"""Deliveries of the shuttles' scripted dispatchers, and of a central planner over the best one.

    python benchmarks/shuttle_yardsticks.py --json benchmarks/shuttle-yardsticks.json

`--shifts` sets the number of shifts of each dispatcher. The planner simulates thousands of steps
for each of its own, so it gets `--planned` shifts, and its lead over the best dispatcher is
measured on those shifts.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
from whole_runs import command_and_hardware

from jaxmarl_envs.shuttle_grid import ShuttleGrid, evaluate_dispatcher, make_planner
from jaxmarl_ppo import use_cpu_cores
from jaxmarl_ppo.evaluation.statistics import mean_and_se


def main() -> None:
    """Print a line for each, and record it."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shifts", type=int, default=8192)
    parser.add_argument("--planned", type=int, default=256)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    env = ShuttleGrid()
    params = env.default_params
    key = jax.random.key(args.seed)
    record: dict[str, Any] = {
        **command_and_hardware(__file__),
        "shifts": args.shifts,
        "planned": args.planned,
    }
    for name, dispatcher in env.baselines.items():
        deliveries = evaluate_dispatcher(env, params, dispatcher, key, args.shifts)
        record[name] = mean_and_se(deliveries)
        print(name, json.dumps(record[name]), flush=True)
    best = env.baselines[env.reference]
    planner = make_planner(env, best)
    began = time.perf_counter()
    planned = evaluate_dispatcher(env, params, planner, key, args.planned)
    planned.block_until_ready()
    record["planner"] = {
        **mean_and_se(planned),
        f"less_{env.reference}": mean_and_se(
            planned - evaluate_dispatcher(env, params, best, key, args.planned)
        ),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print("planner", json.dumps(record["planner"]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
