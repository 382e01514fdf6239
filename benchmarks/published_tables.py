"""Training results on tasks for which other libraries have published theirs.

    python benchmarks/published_tables.py

trains the presets of the tasks on one core, seed by seed, and enters the result of each run into
benchmarks/published-tables-cpu.json. A run that the record holds is not repeated, and one that was
interrupted resumes: its folder is under `--runs` until it is recorded. The result is the team's
mean return over fresh episodes of the last policy, with sampled actions, as in Mava's evaluations.
`--table` prints what has been recorded as the table of docs/learning.md.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from whole_runs import commit_of, enter_run, train_in

import jaxmarl_envs
from jaxmarl_ppo import Trainer, preset
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.machine.hardware import describe_hardware

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "published-tables-cpu.json"
SEEDS = (0, 1, 2)
EPISODES = 320
PACKAGES = ("jax", "jaxlib", "flax", "optax")
WHAT = (
    "Presets, trained on one core. The result is the team's mean return over fresh episodes of the "
    "last policy, with sampled actions. cpu_seconds are the core's work while training, without "
    "compilation; None for a run that was resumed. Where other programs share the core, seconds "
    "are longer."
)


@dataclass(frozen=True)
class Task:
    """A task and what has been published on it.

    Attributes:
        name: of the task in Mava.
        published: the team's return; None where nothing has been published on this task alone.
        is_shared: whether the environment pays the team's reward to each of its agents, and not to
            each its own part of it.
        env: the environment's name here.
        package: that the environment is from.
    """

    name: str
    published: str | None
    is_shared: bool = False
    env: str = "jumanji"
    package: str = "jumanji"


# By preset. Mava's returns are the last points of its curves, in docs/images of
# github.com/instadeepai/Mava at 57c8e64; Craftax's is that of the abstract of arXiv:2402.16801.
TASKS = {
    "lbf_2s_8x8_2p_2f_coop": Task("LBF `2s-8x8-2p-2f-coop`", "1.00"),
    "lbf_15x15_4p_3f": Task("LBF `15x15-4p-3f`", "0.98 to 1.00"),
    "connector_5x5x3a": Task("Connector `con-5x5x3a`", None),
    "rware_tiny_2ag": Task("RWARE `tiny-2ag`", "14 to 16", is_shared=True),
    "rware_tiny_4ag": Task("RWARE `tiny-4ag`", "16 to 19", is_shared=True),
    "craftax_classic": Task(
        "Craftax-Classic", "90 % of 22 after 1,000 M steps", env="gymnax", package="craftax"
    ),
}


def run_seed(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train a preset with one seed, or resume that run, and evaluate the last policy.

    Args:
        name: a key of `TASKS`.
        seed: of the run.
        folder: of the run.

    Returns:
        What the record holds of the run.
    """
    before = {"load_before": os.getloadavg()[0], "commit": commit_of(ROOT)}
    task = TASKS[name]
    chosen = preset(task.env, name)

    def begin(**options: Any) -> Trainer:
        env, params = jaxmarl_envs.make(task.env, **chosen.env_kwargs)
        config = dataclasses.replace(chosen.config, seed=seed, num_devices=1)
        return Trainer(env, params, config, folder, **options)

    trainer, result, cpu_seconds = train_in(folder, begin)
    report = evaluate_policies(trainer.learner, result.population, EPISODES)
    parts = len(report["agents"]) if task.is_shared else 1
    return {
        "preset": name,
        "seed": seed,
        "env_steps": result.env_steps,
        "seconds": round(result.history[-1]["wall_s"], 1),
        "cpu_seconds": cpu_seconds,
        "result": round(report["all"]["return_mean"] / parts, 4),
        "result_se": round(report["all"]["return_se"] / parts, 4),
        "episodes": report["episodes"],
        "acting": report["acting"],
        "agents": report["agents"],
        **before,
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python benchmarks/published_tables.py {name} --seeds {seed}",
        "hardware": describe_hardware(),
        "versions": {name: importlib.metadata.version(name) for name in (*PACKAGES, task.package)},
    }


def _key(run: Mapping[str, Any]) -> tuple[int, int]:
    return list(TASKS).index(run["preset"]), run["seed"]


def make_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Make a table of the tasks: every seed's result, and the means of their costs."""
    lines = [
        "| task and preset | steps | return of each seed (seeds) | published | "
        "core seconds (wall-clock) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, task in TASKS.items():
        own = [run for run in runs if run["preset"] == name]
        if not own:
            continue
        digits = 1 if task.is_shared else 2
        results = ", ".join(f"{run['result']:.{digits}f}" for run in own)
        results += f" ({', '.join(str(run['seed']) for run in own)})"
        work = [run["cpu_seconds"] for run in own if run["cpu_seconds"] is not None]
        seconds = [run["seconds"] for run in own]
        cost = f"{_mean(work)} ({_mean(seconds)})"
        steps = f"{own[0]['env_steps'] / 1e6:.1f} M"
        published = task.published or "not published"
        lines.append(f"| {task.name}, `{name}` | {steps} | {results} | {published} | {cost} |")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):,.0f}" if values else "-"


def main() -> None:
    """Keep to one core and run what is not recorded yet, or print what is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--runs", type=Path, default=Path("runs/published_tables"))
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    args = parser.parse_args()
    unknown = [name for name in args.presets if name not in TASKS]
    if unknown:
        parser.error(f"unknown preset {unknown[0]!r}; valid: {', '.join(TASKS)}")
    runs = json.loads(RECORD.read_text())["runs"] if RECORD.exists() else []
    if args.table:
        print(make_table(runs))
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    recorded = {(run["preset"], run["seed"]) for run in runs}
    for name in args.presets or TASKS:
        for seed in args.seeds:
            if (name, seed) in recorded:
                continue
            folder = args.runs / f"{name}-{seed}"
            run = run_seed(name, seed, folder)
            enter_run(RECORD, run, _key, what=WHAT)
            shutil.rmtree(folder)
            print(f"{name}, seed {seed}: {run['result']} ± {run['result_se']}", flush=True)


if __name__ == "__main__":
    main()
