"""JaxMARL's environments through the adapter: trains, evaluates, records it under benchmarks/.

    python scripts/train_jaxmarl.py spread --seeds 0 1
    python scripts/train_jaxmarl.py smax --seeds 0 1
    python scripts/train_jaxmarl.py overcooked --seeds 0 1

Each writes its runs into benchmarks/learning-jaxmarl.json, in place of earlier ones of the same
name and seed, and leaves what else stands there, such as what they are compared with.
"""

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jaxmarl_envs
from jaxmarl_ppo import (
    MLP,
    Linear,
    PolicySpec,
    PPOConfig,
    TrainConfig,
    Trainer,
    use_cpu_cores,
)
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.machine.hardware import describe_hardware

RECORD = Path(__file__).resolve().parent.parent / "benchmarks" / "learning-jaxmarl.json"
EPISODES = 1024
POINTS_APART = 5  # entries of the log from one point of a recorded curve to the next


@dataclass(frozen=True)
class Case:
    """What is trained on, how, and what only training is paid for."""

    config: TrainConfig
    env_kwargs: Mapping[str, Any]
    shaping: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "spread": Case(
        TrainConfig(
            total_env_steps=3_000_000,
            num_envs=32,
            num_steps=104,
            default_policy=PolicySpec(network=MLP(separate_critic=True), normalise_rewards=True),
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), gamma=0.95, entropy_coef=0.005),
        ),
        {"env_id": "MPE_simple_spread_v3"},
    ),
    "smax": Case(
        TrainConfig(
            total_env_steps=1_000_000,
            num_envs=64,
            num_steps=64,
            default_policy=PolicySpec(network=MLP(hidden_sizes=(128, 128), separate_critic=True)),
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), entropy_coef=0.005),
        ),
        {"env_id": "HeuristicEnemySMAX", "scenario": "3m"},
    ),
    "overcooked": Case(
        TrainConfig(
            total_env_steps=3_000_000,
            num_envs=32,
            num_steps=128,
            default_policy=PolicySpec(network=MLP(separate_critic=True), normalise_rewards=True),
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), entropy_coef=Linear(0.02, 0.0)),
        ),
        {"env_id": "overcooked", "layout": "cramped_room"},
        {"shaped_reward": True},
    ),
}


def train_and_evaluate(case: Case, seed: int) -> dict[str, Any]:
    """One run: returns and metrics of fresh episodes, actions sampled as in training."""
    env, params = jaxmarl_envs.make("jaxmarl", **case.env_kwargs, **case.shaping)
    with tempfile.TemporaryDirectory() as folder:
        config = replace(case.config, seed=seed)
        trainer = Trainer(env, params, config, Path(folder) / "run", progress=False)
        started = time.perf_counter()
        result = trainer.train()
        wall_s = time.perf_counter() - started
    env, params = jaxmarl_envs.make("jaxmarl", **case.env_kwargs)
    report = evaluate_policies(trainer.learner, result.population, EPISODES)
    first = env.agents[0]
    curve = [
        (entry["env_steps"], round(entry["agents"][first]["return_mean"], 3))
        for entry in result.history
        if "return_mean" in entry["agents"][first]
    ][::-POINTS_APART][::-1]
    return {
        "env": dict(case.env_kwargs),
        "env_steps": result.env_steps,
        "wall_s_with_compilation": round(wall_s, 1),
        "episodes": EPISODES,
        "acting": report["acting"],
        "agents": report["agents"],
        f"training return of {first}": curve,
    }


def write_run(run: dict[str, Any], command: str) -> None:
    """Put a run into the record."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"reference": {}, "runs": []}
    others = [r for r in record["runs"] if (r["name"], r["seed"]) != (run["name"], run["seed"])]
    run = {"command": command, "hardware": describe_hardware(), **run}
    runs = sorted([*others, run], key=lambda r: (r["name"], r["seed"]))
    RECORD.write_text(json.dumps({**record, "runs": runs}, indent=1) + "\n")


def main() -> None:
    """Train on one of them, seed by seed."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=CASES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--total-env-steps", type=int, help="other than the recorded runs")
    args = parser.parse_args()
    case = CASES[args.name]
    if args.total_env_steps:
        config = replace(case.config, total_env_steps=args.total_env_steps)
        case = replace(case, config=config)
    for seed in args.seeds:
        run = {"name": args.name, "seed": seed, **train_and_evaluate(case, seed)}
        write_run(run, shlex.join(["python", "scripts/train_jaxmarl.py", *sys.argv[1:]]))
        for agent, found in run["agents"].items():
            print(f"{args.name}, seed {seed}, {agent}: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
