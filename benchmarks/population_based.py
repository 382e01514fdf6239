"""Does population-based training find better ciphers than a random search of the same compute?

On crypto, groups whose members learn from each other, and the same groups without that: the same
seeds, first hyper-parameters, steps and evaluations. Of each the member counts whose bob and alice
earned most against the members' eves when the group ended. Its bob and alice are then frozen, and a
fresh eve is trained against them alone.

    python benchmarks/population_based.py --seeds 0 1 2 --json benchmarks/population-based-cpu.json
"""

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from whole_runs import command_and_hardware, train_whole

import jaxmarl_envs
from jaxmarl_ppo import (
    EvaluationConfig,
    ObjectiveConfig,
    PbtConfig,
    Range,
    TrainConfig,
    Trainer,
    preset,
    use_compilation_cache,
    use_cpu_cores,
)
from jaxmarl_ppo.evaluation import evaluate_policies

EPISODES = 4096
MEASURE = "evaluation/rivals/{}/agents/bob_0/return_mean"
# What somebody would try who knows of the game, and of PPO's numbers, next to nothing.
WIDE = {
    "default_ppo.learning_rate": Range(1e-5, 1e-1, log=True),
    "default_ppo.entropy_coef": Range(1e-4, 1.0, log=True),
    "default_ppo.gamma": Range(0.0, 1.0),
    "default_ppo.gae_lambda": Range(0.0, 1.0),
    "default_ppo.clip_eps": Range(0.02, 1.0, log=True),
    "default_ppo.value_coef": Range(0.05, 5.0, log=True),
    "default_ppo.max_grad_norm": Range(0.05, 5.0, log=True),
}
# The same by somebody who does.
NARROW = {
    "default_ppo.learning_rate": Range(1e-4, 1e-2, log=True),
    "default_ppo.entropy_coef": Range(1e-3, 0.3, log=True),
    "default_ppo.gamma": Range(0.3, 0.99),
    "default_ppo.gae_lambda": Range(0.5, 1.0),
}
SPACES = {"wide": WIDE, "narrow": NARROW}
# A network for each agent, or one that bob and alice share, with which the game is much easier.
MAPPINGS: dict[str, Any] = {"per_agent": "per_agent", "shared": preset("crypto").config.mapping}


def group_config(args: argparse.Namespace, seed: int, learns: bool) -> TrainConfig:
    """The crypto preset in small, over the space."""
    pbt = PbtConfig(SPACES[args.space], fraction=0.0, rivals=("eve_0",))
    if learns:
        pbt = dataclasses.replace(
            pbt, fraction=args.fraction, perturb=args.perturb, resample_probability=args.resample
        )
    return dataclasses.replace(
        preset("crypto").config,
        mapping=MAPPINGS[args.mapping],
        total_env_steps=args.steps,
        num_envs=args.num_envs,
        seed=seed,
        num_seeds=args.members,
        evaluation=EvaluationConfig(every_env_steps=args.every, episodes=args.episodes),
        objective=ObjectiveConfig(measure=MEASURE.format(args.over)),
        pbt=pbt,
    )


def train_group(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    """Train members, and say which one was best and how good."""
    began = time.perf_counter()
    env, params = jaxmarl_envs.make("crypto")
    result = train_whole(Trainer(env, params, config, run_dir, progress=False))
    ends = {m.run_dir.name: m.evaluations[-1] for m in result.members}
    over = str(config.objective.measure).split("/")[2]
    scores = {k: end["rivals"][over]["agents"]["bob_0"]["return_mean"] for k, end in ends.items()}
    best = str(result.best_member)
    lines = (run_dir / "lineage.jsonl").read_text().splitlines()
    return {
        "best": best,
        "score": scores[best],
        "mean_score": statistics.fmean(scores.values()),
        "own_return": ends[best]["agents"]["bob_0"]["return_mean"],
        "bob_accuracy": ends[best]["accuracy"]["bob_0"],
        "copies": len(lines) - config.num_seeds,
        "seconds": round(time.perf_counter() - began, 1),
    }


def against_best_response(args: argparse.Namespace, member_dir: Path, run_dir: Path) -> float:
    """Train an Eve against a member's frozen Bob and Alice, and return their mean return."""
    base = preset("crypto").config
    names = ("good",) if args.mapping == "shared" else ("bob_0", "alice_0")
    frozen = {
        name: dataclasses.replace(base.default_policy, trainable=False, load=f"{member_dir}:{name}")
        for name in names
    }
    config = dataclasses.replace(
        base,
        total_env_steps=args.response_steps,
        num_envs=64,
        seed=1000,
        mapping=MAPPINGS[args.mapping],
        policies=frozen,
    )
    env, params = jaxmarl_envs.make("crypto")
    trainer = Trainer(env, params, config, run_dir, progress=False)
    report = evaluate_policies(trainer.learner, train_whole(trainer).population, EPISODES, seed=0)
    return report["agents"]["bob_0"]["return_mean"]


def main() -> None:
    """Print a line for each group, and the medians."""
    use_cpu_cores()
    use_compilation_cache()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 100, 200])
    parser.add_argument("--space", choices=list(SPACES), default="wide")
    parser.add_argument("--over", choices=["least", "mean"], default="least", help="all eves")
    parser.add_argument("--mapping", choices=list(MAPPINGS), default="per_agent")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=240_000, help="environment steps of a member")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--every", type=int, default=48_000, help="steps between comparisons")
    parser.add_argument("--episodes", type=int, default=64, help="of each pair in a comparison")
    parser.add_argument("--response-steps", type=int, default=400_000)
    parser.add_argument("--fraction", type=float, default=0.25)
    parser.add_argument("--perturb", type=float, default=1.2)
    parser.add_argument("--resample", type=float, default=0.25)
    parser.add_argument("--ways", nargs="+", choices=["random", "pbt"], default=["random", "pbt"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in args.seeds:
        for way in args.ways:
            with tempfile.TemporaryDirectory() as folder:
                group_dir = Path(folder) / way
                found = train_group(group_config(args, seed, way == "pbt"), group_dir)
                member = group_dir / "members" / found["best"]
                held = against_best_response(args, member, Path(folder) / "response")
            rows.append({"way": way, "seed": seed, "against_best_response": held, **found})
            print(json.dumps(rows[-1]), flush=True)
    medians = {
        way: {
            key: statistics.median(row[key] for row in rows if row["way"] == way)
            for key in ("against_best_response", "score", "mean_score", "seconds")
        }
        for way in args.ways
    }
    print(json.dumps(medians))
    if args.json:
        record = {
            **command_and_hardware(__file__),
            "medians": medians,
            "runs": rows,
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
