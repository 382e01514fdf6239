"""Ray RLlib's PPO against this package's: speed, learning and memory on the same four workloads.

    python scripts/compare_ray.py --quick
    taskset -c 0,1 python scripts/compare_ray.py --json benchmarks/ray-cpu.json --plot docs/ray.png

Both sides train in processes of their own, one after the other on the same cores, for the same kind
of work: equal networks, passes over the data, rows per minibatch and constants. RLlib steps plain
Python games with the settings that were fastest for it; `--tune` measures those. A side that fails
is a row of the table.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ray_baseline.processes import run_side
from ray_baseline.report import NOT_THE_SAME, SIDES, draw, print_report, tuning_table
from ray_baseline.scenarios import SCENARIOS
from ray_baseline.summary import machine, ratios, summarise
from ray_baseline.tuning import CANDIDATES, tried

from jaxmarl_envs.adapters import import_extra

# Seconds for everything, and how a scenario's share of them is split.
QUICK_S = 560.0
SHARES = {"ours": 1.0, "rllib": 1.5}
TUNING_S = 40.0


def compare(names: Sequence[str], rounds: int, total_s: float, seed: int) -> dict[str, Any]:
    """Run both sides of the scenarios in turn, so that all end within about `total_s`."""
    deadline = time.monotonic() + total_s
    plan = [(name, r, side) for name in names for r in range(rounds) for side in SIDES]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for k, (name, r, side) in enumerate(plan):
        # What one leaves over, or takes too much, is shared out among those to come.
        left = sum(SHARES[later] for *_, later in plan[k:])
        seconds = max(deadline - time.monotonic(), 1.0) * SHARES[side] / left
        print(f"{name}: {SIDES[side]}, {seconds:.0f} s", flush=True)
        runs.setdefault((name, side), []).append(run_side(side, name, seconds, seed + r))
    found = {}
    for name in names:
        sides = {side: summarise(runs[name, side], SCENARIOS[name]) for side in SIDES}
        compared = ratios(sides["ours"], sides["rllib"])
        settings = {side: vars(getattr(SCENARIOS[name], side)) for side in SIDES}
        found[name] = {**sides, "ratios": compared, "settings": settings}
    return {"machine": machine(), "not_the_same": list(NOT_THE_SAME), "scenarios": found}


def tune(names: Sequence[str], seconds: float, seed: int) -> dict[str, Any]:
    """RLlib's rates at every candidate setting."""
    from rich.console import Console

    found: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        for changes in CANDIDATES[name]:
            run = run_side("rllib", name, seconds, seed, rllib=changes)
            row = summarise([run], SCENARIOS[name])
            del row["curves"], row["seconds_to_target"]
            found.setdefault(name, []).append({"settings": tried(name, changes), **row})
        Console().print(tuning_table(name, found[name]))
    return {"machine": machine(), "scenarios": found}


def main(args: Sequence[str]) -> None:
    """Measure, print, record and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="all in under ten minutes")
    parser.add_argument("--minutes", type=float, default=60.0, help="for everything; default 60")
    parser.add_argument("--rounds", type=int, help="runs of each side; default 3, quick 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to record what was measured")
    parser.add_argument("--plot", type=Path, help="where to draw return against time, as PNG")
    parser.add_argument("--tune", action="store_true", help="only RLlib, at many settings")
    parser.add_argument("--show", type=Path, help="only show what --json recorded earlier")
    options = parser.parse_args(args)
    for name in options.names:
        if name not in SCENARIOS:
            parser.error(f"unknown scenario {name!r}; valid: {', '.join(SCENARIOS)}")
    if options.tune and options.plot:
        parser.error("--plot has no effect with --tune")
    names = options.names or list(SCENARIOS)
    if options.show:
        result = json.loads(options.show.read_text())
    else:
        for module in ("ray", "torch"):
            import_extra(module, "ray")
        if options.tune:
            result = tune(names, TUNING_S, options.seed)
        else:
            rounds = options.rounds or (1 if options.quick else 3)
            total_s = QUICK_S if options.quick else 60.0 * options.minutes
            result = compare(names, rounds, total_s, options.seed)
        result["command"] = shlex.join(["python", "scripts/compare_ray.py", *args])
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if not options.tune:
        print_report(result)
    if options.plot:
        draw(result, options.plot)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ImportError as error:
        sys.exit(f"error: {error}")
