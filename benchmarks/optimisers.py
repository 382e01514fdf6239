"""Training results of presets with Adam and with Muon: the same steps, over several seeds.

    python benchmarks/optimisers.py

trains each preset with each optimiser and enters the results of every seed into
benchmarks/optimisers-cpu.json, in place of earlier ones of the same preset, length, optimiser and
seed. Only the optimiser differs: the learning rate is that of the preset, which was tuned for Adam.
Some runs are shorter than the preset, and so are their schedules. `--table` prints the recorded
results as the table of docs/learning.md.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whole_runs import command_and_hardware, enter_run, train_whole

import jaxmarl_envs
from jaxmarl_ppo import Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies

RECORD = Path(__file__).resolve().parent / "optimisers-cpu.json"
OPTIMISERS = ("adam", "muon")
# Millions of environment steps; the preset's own are 3 of crypto, 16 of the others.
CASES = {
    "crypto/0.6M": ("crypto", 0.6),
    "crypto/3M": ("crypto", 3),
    "tic_tac_toe/1M": ("tic_tac_toe", 1),
    "tic_tac_toe/16M": ("tic_tac_toe", 16),
    "shuttle_grid/0.5M": ("shuttle_grid", 0.5),
}
# By preset: what each result is.
RESULTS = {
    "crypto": {"sample": "return of bob and alice, sampled play"},
    "tic_tac_toe": {
        "greedy": "exploitability of greedy play",
        "sample": "exploitability of sampled play",
    },
    "shuttle_grid": {
        "greedy": "deliveries per shift, greedy play",
        "sample": "deliveries per shift, sampled play",
    },
}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "distrax")


def train_and_evaluate(case: str, optimiser: str, seed: int) -> dict[str, Any]:
    """Train one seed of a preset with this optimiser; return its results."""
    name, millions = CASES[case]
    chosen = preset(name)
    env, params = jaxmarl_envs.make(name, **chosen.env_kwargs)
    config = dataclasses.replace(
        chosen.config,
        total_env_steps=round(millions * 1e6),
        default_ppo=dataclasses.replace(chosen.config.default_ppo, optimiser=optimiser),
        seed=seed,
        num_devices=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(env, params, config, Path(folder) / "run", progress=False)
        result = train_whole(trainer)
    results = {}
    for acting in RESULTS[name]:
        report = evaluate_policies(trainer.learner, result.population, greedy=acting == "greedy")
        results[acting] = _result_of(name, report)
    return {
        "case": case,
        "optimiser": optimiser,
        "seed": seed,
        "env_steps": result.env_steps,
        "wall_s": round(result.history[-1]["wall_s"], 1),
        "results": results,
    }


def _result_of(name: str, report: Mapping[str, Any]) -> float:
    """Read what counts in a preset from an evaluation."""
    if name == "crypto":
        return report["agents"]["bob_0"]["return_mean"]
    if name == "tic_tac_toe":
        kind = "greedy" if report["acting"] == "greedy" else "stochastic"
        return report["exploitability"][kind]
    return report["deliveries"]["mean"]


def record(run: Mapping[str, Any]) -> None:
    """Enter a seed's results into the record, in place of earlier ones."""
    about = {
        **run,
        **command_and_hardware(__file__),
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
    }

    def key(run: Mapping[str, Any]) -> tuple[int, int, int]:
        return list(CASES).index(run["case"]), OPTIMISERS.index(run["optimiser"]), run["seed"]

    enter_run(RECORD, about, key, results=RESULTS)


def make_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Make a table of every seed's results."""
    names = " | ".join(f"`{optimiser}`" for optimiser in OPTIMISERS)
    lines = [
        f"| scenario and metric | environment steps | {names} |",
        "| --- " * (2 + len(OPTIMISERS)) + "|",
    ]
    for name, metrics in RESULTS.items():
        for acting, metric in metrics.items():
            for case, (of, millions) in CASES.items():
                own = [run for run in runs if run["case"] == case]
                if of != name or not own:
                    continue
                cells = [
                    ", ".join(
                        f"{run['results'][acting]:.3g}"
                        for run in own
                        if run["optimiser"] == optimiser
                    )
                    for optimiser in OPTIMISERS
                ]
                lines.append(f"| `{name}`: {metric} | {millions:g} M | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train the presets, or print what is recorded."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--optimisers", nargs="+", choices=OPTIMISERS, default=OPTIMISERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    args = parser.parse_args()
    for case in args.cases:
        if case not in CASES:
            parser.error(f"unknown case {case!r}; valid: {', '.join(CASES)}")
    if args.table:
        print(make_table(json.loads(RECORD.read_text())["runs"]))
        return
    for case in args.cases or CASES:
        for seed in args.seeds:
            for optimiser in args.optimisers:
                run = train_and_evaluate(case, optimiser, seed)
                print(json.dumps(run), flush=True)
                record(run)


if __name__ == "__main__":
    main()
