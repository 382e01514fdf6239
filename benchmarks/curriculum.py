"""A task that is not learned in its budget, and is with a curriculum: to remember for longer.

    python benchmarks/curriculum.py --json benchmarks/curriculum-cpu.json
    python benchmarks/curriculum.py --table     # the table of docs/learning.md

`RememberCue` shows a cue and asks for it some steps later. Both runs have the same LSTM and budget
and are evaluated on the longest delay; one of them trains on it alone, and the other on shorter
ones first.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jaxmarl_envs
from jaxmarl_ppo import LSTM, EvaluationConfig, PolicySpec, PPOConfig, Stage, TrainConfig, Trainer
from jaxmarl_ppo.machine.hardware import describe_hardware

RECORD = Path(__file__).with_name("curriculum-cpu.json")
DELAY = 120  # 62 decisions in an episode
DELAYS = (2, 6, 14, 30, 60)
SEEDS = (0, 1, 2)
STEPS = 1_000_000
PLAIN = TrainConfig(
    total_env_steps=STEPS,
    num_envs=64,
    num_steps=128,
    log_interval=1,
    default_policy=PolicySpec(network=LSTM(hidden_sizes=(32,), lstm_size=32)),
    default_ppo=PPOConfig(learning_rate=1e-3, bptt_length=64, gamma=1.0, gae_lambda=0.95),
)
STAGES = (
    *(Stage({"env.params.delay": d}, advance_when="agent_0.return_mean > 0.95") for d in DELAYS),
    Stage({}),
)
ROWS = {"the delay alone": (), "shorter delays first": STAGES}


def train(curriculum: tuple[Stage, ...], seed: int, env_steps: int = STEPS) -> dict[str, Any]:
    """Train a run; return what it earns in the end, and when every stage began."""
    env, params = jaxmarl_envs.make("jaxmarl_envs.toy:RememberCue")
    params = params.replace(delay=DELAY)
    config = dataclasses.replace(
        PLAIN,
        total_env_steps=env_steps,
        curriculum=curriculum,
        evaluation=EvaluationConfig(every_env_steps=env_steps, episodes=1024),
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        result = Trainer(env, params, config, run_dir, progress=False).train()
    stages = [entry.get("curriculum", {}).get("stage", 0) for entry in result.history]
    steps = [entry["env_steps"] for entry in result.history]
    return {
        "seed": seed,
        "return": result.evaluations[-1]["all"]["return_mean"],
        "stages_began": [steps[stages.index(k)] for k in sorted(set(stages))][1:],
        "seconds": result.history[-1]["wall_s"],
    }


def make_table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Write the results as a table in Markdown."""
    lines = [
        "| trained on | return, seeds 0, 1, 2 | stages began after (thousands of steps) |",
        "| --- | --- | --- |",
    ]
    for row, found in runs.items():
        returns = ", ".join(f"{run['return']:.2f}" for run in found)
        began = "; ".join(
            ", ".join(f"{steps / 1000:.0f}" for steps in run["stages_began"]) for run in found
        )
        lines.append(f"| {row} | {returns} | {began.strip('; ')} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is asked for, print it, and write it where a file is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--table", action="store_true", help="only print what is recorded")
    options = parser.parse_args(arguments)
    if options.table:
        print(make_table(json.loads(RECORD.read_text())["runs"]))
        return
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in options.rows:
        for seed in options.seeds:
            runs.setdefault(row, []).append(train(ROWS[row], seed))
            print(row, runs[row][-1], flush=True)
    print(make_table(runs))
    if options.json is not None:
        record = {
            "command": "python benchmarks/curriculum.py",
            "machine": describe_hardware(),
            "delay": DELAY,
            "env_steps": STEPS,
            "runs": runs,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
