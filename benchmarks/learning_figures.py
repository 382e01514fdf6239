"""Learning results of the presets over several seeds: trains, evaluates and records them.

    python benchmarks/learning_figures.py tic_tac_toe --seeds 0 1 2 3 4

writes benchmarks/learning-tic_tac_toe.json: per seed the evaluation report, the seconds of training
and the learning curve, beside the hardware, the versions and the command. With --picture it draws
the pictures of docs/ from what benchmarks/ holds.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whole_runs import command_and_hardware, train_whole

import jaxmarl_envs
from jaxmarl_ppo import PRESETS, Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies, format_report
from jaxmarl_ppo.evaluation.scenarios.registry import is_exact_on_request
from jaxmarl_ppo.training.trainer import TrainResult

ROOT = Path(__file__).resolve().parent.parent
# Metrics that show the progress of a scenario, by agent; returns in all other scenarios.
CURVES = {
    "tic_tac_toe": [("x", "draw", "games drawn")],
    "crypto": [("bob_0", "return_mean", "alice and bob"), ("eve_0", "return_mean", "eve")],
    "shuttle_grid": [("shuttle_0", "deliveries", "deliveries per shift")],
    "asymmetric_play": [
        ("bob", "success", "bob's success"),
        ("alice", "task_length", "alice's steps"),
        ("alice", "shortest", "shortest solution"),
    ],
}
# Units of curves that are not returns; and those that are shares, from 0 to 1.
UNITS = {
    "games drawn": "share of games",
    "bob's success": "share of tasks solved",
    "alice's steps": "steps",
    "deliveries per shift": "deliveries in 256 steps",
}
SHARES = {"games drawn", "bob's success"}
# Names of curves in older records.
OLD_NAMES = {"alice's steps": "alice's ticks"}
# Pictures under docs/, as panels of a scenario and some of its curves.
PICTURES = {
    "learning_curves.png": [
        ("tic_tac_toe", ("games drawn",)),
        ("crypto", ("alice and bob", "eve")),
        ("shuttle_grid", ("deliveries per shift",)),
    ],
    "asymmetric_play.png": [
        ("asymmetric_play", ("bob's success",)),
        ("asymmetric_play", ("alice's steps", "shortest solution")),
    ],
}
# (value, label) of the lines to compare with.
MARKS: dict[str, list[tuple[float, str]]] = {
    "tic_tac_toe": [(1.0, "perfect play: every game")],
    "crypto": [(24.0, "minimax value 24"), (-25.0, "minimax value -25")],
    "shuttle_grid": [(24.7, "best scripted dispatcher")],
}


def returns_of(agents: Sequence[str]) -> list[tuple[str, str, str]]:
    """The mean return of every agent."""
    return [(agent, "return_mean", agent) for agent in agents]


def train_and_evaluate(name: str, seed: int, episodes: int | None) -> dict[str, Any]:
    """One run of a preset: what `benchmarks/` keeps of it."""
    env_name, _, variant = name.partition("/")
    chosen = preset(env_name, variant or None)
    env, env_params = jaxmarl_envs.make(env_name, **chosen.env_kwargs)
    config = dataclasses.replace(chosen.config, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(env, env_params, config, Path(folder) / "run", progress=False)
        started = time.perf_counter()
        result = train_whole(trainer)
        wall_s = time.perf_counter() - started
    record: dict[str, Any] = {
        "seed": seed,
        "env_steps": result.env_steps,
        "wall_s_with_compilation": round(wall_s, 1),
        "train_s": round(result.env_steps / _mean_rate(result), 1),
    }
    for greedy in (False, True):
        report = evaluate_policies(
            trainer.learner,
            result.population,
            episodes,
            greedy=greedy,
            exact=is_exact_on_request(env) and not greedy,  # which covers greedy play too
        )
        print(format_report(report), flush=True)
        record["greedy" if greedy else "sample"] = report
    record["curves"] = {
        label: [[entry["env_steps"], round(entry["agents"][agent][key], 3)]
                for entry in result.history if key in entry["agents"][agent]]
        for agent, key, label in CURVES.get(name) or returns_of(env.agents)
    }  # fmt: skip
    return record


def _mean_rate(result: TrainResult) -> float:
    """Environment steps per second over the run, compilation left out."""
    seconds, before = 0.0, 0
    for entry in result.history:
        seconds += (entry["env_steps"] - before) / entry["env_steps_per_s"]
        before = entry["env_steps"]
    return result.env_steps / seconds


def draw_curves(path: Path, panels: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Panels side by side, a line per seed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(4 * len(panels), 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, labels) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        record = json.loads((ROOT / "benchmarks" / f"learning-{name}.json").read_text())
        for color, label in zip(("C0", "C3"), labels, strict=False):
            for index, run in enumerate(record["runs"]):
                curves = run["curves"]
                points = curves[label] if label in curves else curves[OLD_NAMES[label]]
                axes.plot(*zip(*points, strict=True), color=color, alpha=0.75, linewidth=1.4,
                          label=label if index == 0 else None)  # fmt: skip
        for index, (value, label) in enumerate(MARKS.get(name, [])):
            axes.axhline(value, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)))
            below = index > 0
            axes.annotate(label, (0.98, value), xycoords=("axes fraction", "data"), fontsize=8,
                          xytext=(0, -3 if below else 3), textcoords="offset points", ha="right",
                          va="top" if below else "bottom", color="0.35")  # fmt: skip
        axes.set_title(f"{name} ({len(record['runs'])} seeds)", fontsize=10)
        axes.set_xlabel("environment steps")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.margins(x=0.01, y=0.12)
        axes.set_ylabel(UNITS.get(labels[0], "mean return per life"))
        if labels[0] in SHARES:
            axes.set_ylim(0.0, 1.1)
        axes.legend(frameon=False, fontsize=8, loc="best")
    figure.savefig(path)


def main() -> None:
    """Run the seeds of one scenario, or draw what is recorded."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="?", choices=sorted(PRESETS), metavar="SCENARIO")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=None)
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    if args.scenario is None and not args.picture:
        parser.error("name a scenario, or give --picture")
    if args.scenario is not None:
        path = ROOT / "benchmarks" / f"learning-{args.scenario.replace('/', '-')}.json"
        record = {
            **command_and_hardware(__file__),
            "runs": [],
        }
        for seed in args.seeds:
            record["runs"].append(train_and_evaluate(args.scenario, seed, args.episodes))
            path.write_text(json.dumps(record, indent=1) + "\n")
    if args.picture:
        for name, panels in PICTURES.items():
            draw_curves(ROOT / "docs" / name, panels)


if __name__ == "__main__":
    main()
