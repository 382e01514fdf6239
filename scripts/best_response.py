"""How well does a run's cipher hold against an Eve who is trained against it alone?

Trains crypto, freezes Bob's and Alice's policies, trains a fresh Eve against them, and reports what
Bob and Alice earn before and after. Repeats this for several ways of dealing out policies.

    python scripts/best_response.py --seeds 0 1 2 --json results.json
"""

import argparse
import dataclasses
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jaxmarl_envs
from jaxmarl_ppo import TrainConfig, Trainer, make_learner, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.machine.hardware import describe_hardware

EPISODES = 2048


def ways() -> Mapping[str, TrainConfig]:
    """The ensemble preset, and single policies with the same training."""
    ensemble = preset("crypto", "ensemble").config
    return {
        "ensemble": ensemble,
        "single": dataclasses.replace(ensemble, mapping="per_agent", policies={}),
    }


def train(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    """Train and evaluate; the report of `evaluate_policies`."""
    env, params = jaxmarl_envs.make("crypto")
    trainer = Trainer(env, params, config, run_dir, progress=False)
    result = trainer.train()
    return evaluate_policies(trainer.learner, result.population, EPISODES, seed=config.seed)


def against_best_response(config: TrainConfig, run_dir: Path, seed: int) -> TrainConfig:
    """The same Bobs and Alices, frozen, and one fresh Eve."""
    mapping = make_learner(*jaxmarl_envs.make("crypto"), config).players.mapping
    table: dict[str, Any] = {"eve_0": "best_response"}
    specs: dict[str, Any] = {}
    for agent, candidates in zip(("bob_0", "alice_0"), mapping.candidates[1:], strict=True):
        table[agent] = [mapping.names[policy] for policy in candidates]
        for name in table[agent]:
            spec = dataclasses.replace(config.default_policy, ppo=None, trainable=False)
            specs[name] = dataclasses.replace(spec, load=f"{run_dir}:{name}")
    return dataclasses.replace(config, mapping=table, policies=specs, seed=1000 + seed)


def good_return(report: dict[str, Any]) -> float:
    """What Bob, and with him Alice, earned."""
    return report["agents"]["bob_0"]["return_mean"]


def main() -> None:
    """Print a line for each way and seed."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=list(ways()), default=list(ways()))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    record = {
        "command": shlex.join(["python", "scripts/best_response.py", *sys.argv[1:]]),
        "hardware": describe_hardware(),
        "runs": results,
    }
    for seed in args.seeds:
        for way in args.ways:
            config = dataclasses.replace(ways()[way], seed=seed)
            with tempfile.TemporaryDirectory() as folder:
                run_dir = Path(folder) / "trained"
                trained = train(config, run_dir)
                response = train(
                    against_best_response(config, run_dir, seed), Path(folder) / "response"
                )
            row = {
                "way": way,
                "seed": seed,
                "good": good_return(trained),
                "good_against_best_response": good_return(response),
                "eve": trained["agents"]["eve_0"]["return_mean"],
                "best_response_eve": response["agents"]["eve_0"]["return_mean"],
            }
            results.append(row)
            print(json.dumps(row), flush=True)
            if args.json:
                args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
