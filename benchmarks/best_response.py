"""Robustness of a run's cipher against an Eve that is trained against it alone.

Trains crypto, freezes Bob's and Alice's policies, trains a fresh Eve against them, and reports what
Bob and Alice earn before and after. Repeats this for several ways of assigning policies: one for
each agent, any of three Bobs with any of three Alices, or three pairs of them that stay together.

    python benchmarks/best_response.py --seeds 0 1 2 --json results.json
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whole_runs import command_and_hardware, train_whole

import jaxmarl_envs
from jaxmarl_ppo import Matchups, TrainConfig, Trainer, make_learner, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies

EPISODES = 2048
NUM_PAIRS = 3
BEST_RESPONSE = "best_response"


def ways() -> Mapping[str, TrainConfig]:
    """The ensemble preset, and the same training with policies dealt out otherwise."""
    ensemble = preset("crypto", "ensemble").config
    return {
        "ensemble": ensemble,
        "single": dataclasses.replace(ensemble, mapping="per_agent", policies={}),
        # A pair may keep a cipher of its own, and no Eve is told whose messages she reads.
        "pairs": dataclasses.replace(
            ensemble,
            mapping=Matchups(
                tuple(pair(k, f"eve_{eve}") for k in range(NUM_PAIRS) for eve in range(NUM_PAIRS))
            ),
        ),
    }


def pair(k: int, eve: str) -> dict[str, str]:
    """One of the pairs and who listens, as a table from agent to policy."""
    return {"bob_0": f"bob_{k}", "alice_0": f"alice_{k}", "eve_0": eve}


def train(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    """Train and evaluate; the report of `evaluate_policies`."""
    env, params = jaxmarl_envs.make("crypto")
    trainer = Trainer(env, params, config, run_dir, progress=False)
    result = train_whole(trainer)
    return evaluate_policies(trainer.learner, result.population, EPISODES, seed=config.seed)


def against_best_response(config: TrainConfig, run_dir: Path, seed: int) -> TrainConfig:
    """The same Bobs and Alices, frozen and dealt out as before, and one fresh Eve."""
    mapping: Any
    players = make_learner(*jaxmarl_envs.make("crypto"), config).players.mapping
    if isinstance(config.mapping, Matchups):
        mapping = Matchups(tuple(pair(k, BEST_RESPONSE) for k in range(NUM_PAIRS)))
    else:
        mapping = {"eve_0": BEST_RESPONSE}
        for agent, candidates in zip(("bob_0", "alice_0"), players.candidates[1:], strict=True):
            mapping[agent] = [players.names[policy] for policy in candidates]
    frozen = dataclasses.replace(config.default_policy, ppo=None, trainable=False)
    specs = {
        players.names[policy]: dataclasses.replace(
            frozen, load=f"{run_dir}:{players.names[policy]}"
        )
        for candidates in players.candidates[1:]
        for policy in candidates
    }
    return dataclasses.replace(config, mapping=mapping, policies=specs, seed=1000 + seed)


def good_return(report: dict[str, Any]) -> float:
    """Return Bob's mean return, which is also Alice's."""
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
        **command_and_hardware(__file__),
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
