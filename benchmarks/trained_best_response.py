"""Lower bounds on exploitability, by training a fresh opponent against a two-seat policy alone.

    python benchmarks/trained_best_response.py phantom_tic_tac_toe --seeds 0 1 2 --json results.json

Trains the preset of a two-player zero-sum game, freezes its policy, and trains a fresh one in each
seat against it. What these win on average is a lower bound on the policy's exploitability, up to
the error of the games that measure it: no opponent wins more than a best response, and one that was
trained longer or otherwise may win more than this one. Beside the bound stands the exact
exploitability, which says how good a bound it is. Also reports how many games a second were played
while the policy was trained.
"""

import argparse
import dataclasses
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whole_runs import command_and_hardware, train_whole

import jaxmarl_envs
from jaxmarl_ppo import Linear, TrainConfig, Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.evaluation.scenarios.registry import is_exact_on_request
from jaxmarl_ppo.networks.actor_critic import ActorCritic

GAMES = ("phantom_tic_tac_toe", "kuhn_poker", "leduc_holdem")
SHARED, TRAINED, RESPONSE = "shared", "trained", "response"
RESPONSE_ENV_STEPS, EPISODES = 10_000_000, 65536
NUM_LAST_ENTRIES = 10  # of the log, of which the length of a game is taken


def response_config(
    config: TrainConfig, run_dir: Path, own: str, other: str, total_env_steps: int
) -> TrainConfig:
    """A fresh policy in the seat `own` against the frozen one of a run in the seat `other`.

    Its opponent stands still, so it needs no magnet, log barrier or share of uniform play, and its
    entropy and learning rate fall to 0 over its own training, however long the run's was.
    """
    frozen = dataclasses.replace(
        config.default_policy, ppo=None, trainable=False, load=f"{run_dir}:{SHARED}"
    )
    ppo = dataclasses.replace(
        config.default_ppo,
        learning_rate=Linear(1e-3, 0.0),
        entropy_coef=Linear(0.05, 0.0),
        magnet="off",
        magnet_coef=None,
        magnet_rate=None,
        log_barrier_coef=None,
    )
    network = config.default_policy.network
    if isinstance(network, ActorCritic):
        network = dataclasses.replace(network, unimix=0.0)
    return dataclasses.replace(
        config,
        total_env_steps=total_env_steps,
        mapping={own: RESPONSE, other: TRAINED},
        policies={TRAINED: frozen},
        default_policy=dataclasses.replace(config.default_policy, network=network),
        default_ppo=ppo,
        seed=1000 + config.seed,
    )


def train_and_respond(
    name: str, config: TrainConfig, response_env_steps: int, episodes: int
) -> dict[str, Any]:
    """One seed: what a response wins in each seat, per game and with its standard error."""
    env, params = jaxmarl_envs.make(name)
    first, second = env.agents
    row: dict[str, Any] = {"seed": config.seed}
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "trained"
        trainer = Trainer(env, params, config, run_dir, progress=False)
        result = train_whole(trainer)
        row |= {"env_steps": result.env_steps, **speed(result.history, first)}
        report = evaluate_policies(
            trainer.learner, result.population, 1, config.seed, exact=is_exact_on_request(env)
        )
        exact = report["exploitability"]
        row["exact_exploitability"] = exact["stochastic"]
        for own, other in ((first, second), (second, first)):
            row[f"best_response_as_{own}"] = exact["best_response"]["stochastic"][other][SHARED]
        won = {}
        for own, other in ((first, second), (second, first)):
            response = response_config(config, run_dir, own, other, response_env_steps)
            trainer = Trainer(env, params, response, Path(folder) / own, progress=False)
            population = train_whole(trainer).population
            report = evaluate_policies(trainer.learner, population, episodes, seed=config.seed)
            won[own] = report["agents"][own]
            row[f"response_as_{own}"] = won[own]["return_mean"]
            row[f"response_as_{own}_se"] = won[own]["return_se"]
    row["exploitability_at_least"] = sum(seat["return_mean"] for seat in won.values()) / 2
    row["exploitability_se"] = math.hypot(*(seat["return_se"] for seat in won.values())) / 2
    return row


def speed(history: Sequence[Mapping[str, Any]], agent: str) -> dict[str, Any]:
    """Games per second of training, at the median rate and the length that games had last."""
    entries = [entry["agents"][agent] for entry in history]
    lengths = [entry["length_mean"] for entry in entries if "length_mean" in entry]
    steps = sum(lengths[-NUM_LAST_ENTRIES:]) / len(lengths[-NUM_LAST_ENTRIES:])
    rates = sorted(entry["env_steps_per_s"] for entry in history)
    return {
        "wall_s": round(history[-1]["wall_s"], 1),
        "ticks_per_game": round(steps, 2),
        "games_per_s": round(rates[len(rates) // 2] / steps),
    }


def main() -> None:
    """Print a line for each seed."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("game", choices=GAMES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--env-steps", type=int, help="of the policy, rather than the preset's")
    parser.add_argument("--response-env-steps", type=int, default=RESPONSE_ENV_STEPS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    record = {
        **command_and_hardware(__file__),
        "runs": runs,
    }
    for seed in args.seeds:
        config = dataclasses.replace(preset(args.game).config, seed=seed)
        if args.env_steps is not None:
            config = dataclasses.replace(config, total_env_steps=args.env_steps)
        row = train_and_respond(args.game, config, args.response_env_steps, args.episodes)
        runs.append(row)
        print(json.dumps(row), flush=True)
        if args.json:
            args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
