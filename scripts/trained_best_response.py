"""How much a fresh opponent wins against a policy for two seats that it is trained against alone.

    python scripts/trained_best_response.py phantom_tic_tac_toe --seeds 0 1 2 --json results.json

Trains the preset of a two-player zero-sum game, freezes its policy, and trains a fresh one in each
seat against it. What these win on average is a lower bound on the policy's exploitability, for
games that are too large for an exact best response. Also says how many games it was trained on, and
how many a second.
"""

import argparse
import dataclasses
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import jaxmarl_envs
from jaxmarl_ppo import TrainConfig, Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.machine.hardware import describe_hardware

TRAINED, RESPONSE = "trained", "response"


def response_config(
    config: TrainConfig, run_dir: Path, seats: tuple[str, str], total_env_steps: int
) -> TrainConfig:
    """A fresh policy in the first of the seats against the frozen one of a run in the other.

    Without a magnet and with entropy that ends low: it need not be hard to exploit itself.
    """
    own, other = seats
    frozen = dataclasses.replace(
        config.default_policy, ppo=None, trainable=False, load=f"{run_dir}:shared"
    )
    ppo = dataclasses.replace(config.default_ppo, magnet="off", magnet_coef=None, magnet_rate=None)
    return dataclasses.replace(
        config,
        total_env_steps=total_env_steps,
        mapping={own: RESPONSE, other: TRAINED},
        policies={TRAINED: frozen, RESPONSE: config.default_policy},
        default_ppo=ppo,
        seed=1000 + config.seed,
    )


def train_and_respond(name: str, config: TrainConfig, response_steps: int, episodes: int) -> Any:
    """One seed: what a response wins in each seat."""
    env, params = jaxmarl_envs.make(name)
    row: dict[str, Any] = {"seed": config.seed}
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "trained"
        result = Trainer(env, params, config, run_dir, progress=False).train()
        last = result.history[-1]
        lengths = [entry["agents"][env.agents[0]]["length_mean"] for entry in result.history]
        row["env_steps"], row["wall_s"] = result.env_steps, round(last["wall_s"], 1)
        row["ticks_per_game"] = sum(lengths[-10:]) / len(lengths[-10:])
        rates = [entry["env_steps_per_s"] for entry in result.history]
        row["games_per_s"] = round(sorted(rates)[len(rates) // 2] / row["ticks_per_game"])
        for own, other in (env.agents, env.agents[::-1]):
            response = response_config(config, run_dir, (own, other), response_steps)
            trainer = Trainer(env, params, response, Path(folder) / own, progress=False)
            population = trainer.train().population
            report = evaluate_policies(trainer.learner, population, episodes, seed=config.seed)
            row[f"response_as_{own}"] = report["agents"][own]["return_mean"]
            row[f"response_as_{own}_se"] = report["agents"][own]["return_se"]
    first, second = (row[f"response_as_{agent}"] for agent in env.agents)
    row["exploitability_at_least"] = (first + second) / 2
    return row


def main() -> None:
    """Print a line for each seed."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("game", choices=["phantom_tic_tac_toe", "kuhn_poker", "leduc_holdem"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--response-env-steps", type=int, default=10_000_000)
    parser.add_argument("--episodes", type=int, default=16384)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    record = {
        "command": shlex.join(["python", "scripts/trained_best_response.py", *sys.argv[1:]]),
        "hardware": describe_hardware(),
        "runs": runs,
    }
    for seed in args.seeds:
        config = dataclasses.replace(preset(args.game).config, seed=seed)
        row = train_and_respond(args.game, config, args.response_env_steps, args.episodes)
        runs.append(row)
        print(json.dumps(row), flush=True)
        if args.json:
            args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
