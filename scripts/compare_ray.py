"""Ray RLlib's PPO against this package's: speed, learning and memory on the same four workloads.

    python scripts/compare_ray.py --quick
    python scripts/compare_ray.py --json benchmarks/ray-cpu.json --plot docs/ray.png

or, workload by workload, each of which is entered into the same file and picture:

    python scripts/compare_ray.py crypto --minutes 20 --json FILE --plot PICTURE

All sides train in processes of their own, one after the other on the same cores, for the same kind
of work: equal networks, passes over the data, rows per minibatch and constants. RLlib steps games
in plain Python; this package trains once on its own compiled environments and once on RLlib's, so
that environment and trainer are told apart. On RLlib's environments it trains once more, by the
preset for environments in Python, which has passes and minibatches of its own. RLlib has the
settings that were its fastest, of those that `ray_baseline/tuning.json` lists: numbers of runners,
environments and learners, and both of its API stacks. What is fastest on another machine is found
there, and entered into that file, by

    python scripts/compare_ray.py --tune

A side that fails is a row of the table.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ray_baseline.picture import draw
from ray_baseline.processes import run_side
from ray_baseline.report import NOT_THE_SAME, RATIOS, SIDES, caption, print_report, tuning_table
from ray_baseline.scenarios import SCENARIOS
from ray_baseline.summary import machine, ratios, summarise
from ray_baseline.tuning import (
    RECORD,
    candidates,
    changed,
    choose,
    enter,
    fastest,
    is_same,
    read_record,
)

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.backend import usable_cores
from jaxmarl_ppo.config.presets import SLOW_ENV

# Seconds for everything, and how a scenario's share of them is split.
QUICK_S = 560.0
SHARES = {"ours": 1.0, "twins": 1.5, "slow_env": 1.0, "rllib": 1.5}
TUNING_S = 40.0
MINUTES, ROUNDS = 60.0, 3
FORMAT = 3  # of what is recorded


def compare(
    names: Sequence[str],
    rounds: int,
    total_s: float,
    seed: int,
    tuning: Mapping[str, Any],
) -> dict[str, Any]:
    """Run all sides of the scenarios in turn, so that all end within about `total_s`.

    `tuning` is what `tune` found, of which RLlib gets the fastest settings.
    """
    tuned = fastest(tuning)
    deadline = time.monotonic() + total_s
    plan = [(name, r, side) for name in names for r in range(rounds) for side in SIDES]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for k, (name, r, side) in enumerate(plan):
        # What one leaves over, or takes too much, is shared out among those to come.
        left = sum(SHARES[later] for *_, later in plan[k:])
        seconds = max(deadline - time.monotonic(), 1.0) * SHARES[side] / left
        print(f"{name}: {SIDES[side]}, {seconds:.0f} s", flush=True)
        run = run_side(side, name, seconds, seed + r, rllib=tuned.get(name))
        runs.setdefault((name, side), []).append(run)
    found = {}
    for name in names:
        sides = {side: summarise(runs[name, side], SCENARIOS[name]) for side in SIDES}
        compared = {side: ratios(sides[side], sides["rllib"]) for side in RATIOS}
        settings = {
            "ours": vars(SCENARIOS[name].ours),
            "twins": vars(SCENARIOS[name].twins),
            "slow_env": {"preset": SLOW_ENV},
            "rllib": changed(name, tuned.get(name)),
        }
        found[name] = {
            **sides,
            "ratios": compared,
            "settings": settings,
            "tuned_on": tuning["machine"],
        }
    return {
        "format": FORMAT,
        "machine": machine(),
        "not_the_same": list(NOT_THE_SAME),
        "scenarios": found,
    }


def tune(names: Sequence[str], seconds: float, seed: int) -> dict[str, Any]:
    """RLlib's rates at every candidate setting."""
    from rich.console import Console

    found: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        for changes in candidates(name, usable_cores()):
            run = run_side("rllib", name, seconds, seed, rllib=changes)
            row = summarise([run], SCENARIOS[name])
            found.setdefault(name, []).append(
                {
                    "settings": changed(name, changes),
                    **{key: value and value["median"] for key, value in row["figures"].items()},
                    "error": row["error"],
                }
            )
        Console().print(tuning_table(name, found[name]))
    return {"machine": machine(), "scenarios": found}


def _recorded(path: Path) -> dict[str, Any]:
    """Read what `--json` wrote.

    Raises:
        ValueError: it is no such file, or of another version.
    """
    result = json.loads(path.read_text())
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise ValueError(f"{path}: not recorded by this version of compare_ray.py; measure anew")
    return result


def _recorded_before(path: Path | None, here: Mapping[str, Any]) -> dict[str, Any]:
    """Read the scenarios that `--json` wrote into a file before, on the same kind of machine.

    Raises:
        ValueError: the file is another machine's, or not one of `--json`'s.
    """
    if path is None or not path.exists():
        return {}
    earlier = _recorded(path)
    there = earlier["machine"]
    if not is_same(there, here) or there["versions"] != here["versions"]:
        raise ValueError(f"{path}: recorded on {caption(there)}; give another file")
    return earlier["scenarios"]


def main(args: Sequence[str]) -> None:
    """Measure, print, record and draw."""
    options = _options(args)
    names = options.names or list(SCENARIOS)
    if options.show:
        result = _recorded(options.show)
        before = _recorded_before(options.json, result["machine"])
    else:
        before = _recorded_before(options.json, machine())
        for module in ("ray", "torch"):
            import_extra(module, "ray")
        record = read_record(options.tuning)
        if options.tune:
            found = enter(record, tune(names, TUNING_S, options.seed))
            options.tuning.write_text(json.dumps(found, indent=1) + "\n")
            return
        rounds = options.rounds or (1 if options.quick else ROUNDS)
        total_s = QUICK_S if options.quick else 60.0 * (options.minutes or MINUTES)
        result = compare(names, rounds, total_s, options.seed, choose(record, machine()))
        for found in result["scenarios"].values():
            found["command"] = shlex.join(["python", "scripts/compare_ray.py", *args])
    scenarios = {**before, **result["scenarios"]}
    result["scenarios"] = {name: scenarios[name] for name in SCENARIOS if name in scenarios}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print_report(result)
    if options.plot:
        draw(result, options.plot)


def _options(args: Sequence[str]) -> argparse.Namespace:
    """Read the command line, and refuse what would have no effect."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="all in under ten minutes")
    parser.add_argument("--minutes", type=float, help=f"for everything; default {MINUTES:g}")
    parser.add_argument("--rounds", type=int, help=f"runs of each side; default {ROUNDS}, quick 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to record it; other workloads there stay")
    parser.add_argument("--plot", type=Path, help="where to draw what was learnt, as PNG")
    parser.add_argument("--tune", action="store_true", help="only RLlib, at many settings")
    parser.add_argument(
        "--tuning", type=Path, default=RECORD, help="record of --tune; default the one that ships"
    )
    parser.add_argument("--show", type=Path, help="only show what --json recorded earlier")
    options = parser.parse_args(args)
    for name in options.names:
        if name not in SCENARIOS:
            parser.error(f"unknown scenario {name!r}; valid: {', '.join(SCENARIOS)}")
    measuring = ("quick", "minutes", "rounds")
    without_effect = {
        "tune": (*measuring, "json", "plot", "show"),
        "show": (*measuring, "names"),
        "quick": ("minutes",),
    }
    for mode, others in without_effect.items():
        for other in others if getattr(options, mode) else ():
            if getattr(options, other):
                shown = "NAME" if other == "names" else f"--{other}"
                parser.error(f"{shown} has no effect with --{mode}")
    for option in ("minutes", "rounds"):
        value = getattr(options, option)
        if value is not None and not value > 0:
            parser.error(f"--{option} {value}: give more than 0")
    return options


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ImportError, ValueError) as error:
        sys.exit(f"error: {error}")
