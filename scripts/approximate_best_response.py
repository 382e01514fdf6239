"""How much does a policy that is trained against a run's policy alone win from it?

Trains the preset of a two-player game, freezes its policy, trains a fresh responder against it in
each seat, and records what the responders win: from below what can be won, since a better responder
may exist. Half of their sum is the exploitability that they find. Where it is known exactly
(`jaxmarl-ppo evaluate` on kuhn_poker and leduc_holdem) both are recorded.

    python scripts/approximate_best_response.py phantom_tic_tac_toe --seeds 0 1 2
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
from jaxmarl_ppo import Linear, PolicySpec, PPOConfig, TrainConfig, Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.machine.hardware import describe_hardware

ROOT = Path(__file__).resolve().parent.parent
EPISODES = 65_536


def train(env_name: str, config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    """Train, evaluate with sampled and with most likely actions, and note how fast it was."""
    env, params = jaxmarl_envs.make(env_name)
    trainer = Trainer(env, params, config, run_dir, progress=False)
    result = trainer.train()
    reports = {
        how: evaluate_policies(trainer.learner, result.population, EPISODES, greedy=how == "greedy")
        for how in ("sample", "greedy")
    }
    seconds, before = 0.0, 0
    for entry in result.history:
        seconds += (entry["env_steps"] - before) / entry["env_steps_per_s"]
        before = entry["env_steps"]
    length = result.history[-1]["agents"][env.agents[0]]["length_mean"]
    rate = result.env_steps / seconds
    speed = {"env_steps_per_s": round(rate), "games_per_s": round(rate / length)}
    return {**reports, **speed, "train_s": round(seconds, 1), "env_steps": result.env_steps}


def responder(config: TrainConfig, run_dir: Path, seat: str, env_steps: int) -> TrainConfig:
    """The run's policy, frozen, and a fresh one in a seat that learns to beat it."""
    env, _ = jaxmarl_envs.make(run_dir.name.partition("-")[0])
    other = next(agent for agent in env.agents if agent != seat)
    frozen = dataclasses.replace(config.default_policy, ppo=None, trainable=False)
    policies = {
        "frozen": dataclasses.replace(frozen, load=f"{run_dir}:shared"),
        "responder": PolicySpec(network=config.default_policy.network),
    }
    ppo = PPOConfig(
        learning_rate=Linear(1e-3, 0.0),
        entropy_coef=Linear(0.05, 0.0),
        gamma=1.0,
        gae_lambda=0.95,
    )
    return dataclasses.replace(
        config,
        mapping={seat: "responder", other: "frozen"},
        policies=policies,
        default_policy=PolicySpec(),
        default_ppo=ppo,
        total_env_steps=env_steps,
        seed=1000 + config.seed,
    )


def main() -> None:
    """Print and record a line for each seed."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env", choices=["kuhn_poker", "leduc_holdem", "phantom_tic_tac_toe"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--env-steps", type=int, default=20_000_000, help="of each responder")
    args = parser.parse_args()
    path = ROOT / "benchmarks" / f"best-response-{args.env}.json"
    record: dict[str, Any] = {
        "command": shlex.join(["python", f"scripts/{Path(__file__).name}", *sys.argv[1:]]),
        "hardware": describe_hardware(),
        "runs": [],
    }
    for seed in args.seeds:
        config = dataclasses.replace(preset(args.env).config, seed=seed)
        env, _ = jaxmarl_envs.make(args.env)
        with tempfile.TemporaryDirectory() as folder:
            run_dir = Path(folder) / f"{args.env}-trained"
            trained = train(args.env, config, run_dir)
            won = {}
            for seat in env.agents:
                against = responder(config, run_dir, seat, args.env_steps)
                found = train(args.env, against, Path(folder) / f"{args.env}-{seat}")
                # A best response need not draw; of two estimates the better one is a little high.
                won[seat] = {
                    how: {
                        key: found[how]["agents"][seat][key] for key in ("return_mean", "return_se")
                    }
                    for how in ("sample", "greedy")
                }
        best = [max(how["return_mean"] for how in each.values()) for each in won.values()]
        row = {"seed": seed, "found_exploitability": sum(best) / 2, "responders": won, **trained}
        record["runs"].append(row)
        print(json.dumps({key: row[key] for key in ("seed", "found_exploitability", "responders")}))
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
