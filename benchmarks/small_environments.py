"""Training results on the small environments, beside the best possible returns.

    python benchmarks/small_environments.py --json results.json

Every environment shows one kind of life or of agent: deaths at different steps, recycled slots,
turns, a life after another, unequal agents, chance moves, continuous actions, memory. Prints a line
for each: the returns and lengths of evaluated episodes beside the best there is.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whole_runs import command_and_hardware, train_whole

import jaxmarl_envs
from jaxmarl_ppo import (
    LSTM,
    Linear,
    PolicySpec,
    PPOConfig,
    TrainConfig,
    Trainer,
    preset,
    use_cpu_cores,
)
from jaxmarl_ppo.evaluation import evaluate_policies

EPISODES = 2048


@dataclass(frozen=True)
class Case:
    """An environment, how to train on it and the best mean return of its agents."""

    env: str
    best: str
    config: TrainConfig
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


def small(policies: str = "shared", steps: int = 300_000, **ppo: Any) -> TrainConfig:
    """Small rollouts with a learning rate that falls to nothing."""
    ppo = {"learning_rate": Linear(3e-3, 1e-4), **ppo}
    return TrainConfig(
        total_env_steps=steps,
        num_envs=64,
        num_steps=32,
        mapping=policies,
        default_ppo=PPOConfig(**ppo),
    )


def remembering(steps: int) -> TrainConfig:
    """A recurrent policy whose observations and rewards are scaled."""
    network = LSTM(hidden_sizes=(64,), lstm_size=64)
    return TrainConfig(
        total_env_steps=steps,
        num_envs=64,
        num_steps=128,
        default_policy=PolicySpec(
            network=network, normalise_observations=True, normalise_rewards=True
        ),
        default_ppo=PPOConfig(learning_rate=Linear(2e-3, 1e-4), gae_lambda=0.9),
    )


def controlling(steps: int, gamma: float, entropy_coef: float) -> TrainConfig:
    """Continuous actions, observations and rewards scaled."""
    return TrainConfig(
        total_env_steps=steps,
        num_envs=64,
        num_steps=128,
        default_policy=PolicySpec(normalise_observations=True, normalise_rewards=True),
        default_ppo=PPOConfig(
            learning_rate=Linear(1e-3, 1e-5),
            gamma=gamma,
            num_epochs=10,
            num_minibatches=8,
            entropy_coef=entropy_coef,
        ),
    )


CASES = {
    "basic": Case("basic", "25 each", small()),
    "early_done": Case("early_done", "3 and 5", small("per_agent")),
    "round_robin": Case("round_robin", "5 each", small()),
    "flex_agents": Case("flex_agents", "its length in steps", small()),
    "relay": Case("relay", "-3 and 0", small("per_agent")),
    "multi_spaces": Case("multi_spaces", "25 each", small("per_agent", steps=1_000_000)),
    "press_your_luck": Case("press_your_luck", "+-0.113", small("per_agent")),
    "cartpole": Case("gymnax", "500 each", preset("gymnax").config, preset("gymnax").env_kwargs),
    "pendulum": Case(
        "gymnax",
        "about -150 each",
        controlling(2_000_000, 0.95, 0.0),
        {"env_id": "Pendulum-v1", "num_agents": 2},
    ),
    "mountain_car": Case(
        "gymnax",
        "about 94",
        controlling(2_000_000, 0.995, 0.02),
        {"env_id": "MountainCarContinuous-v0", "num_agents": 2},
    ),
    "stateless_cartpole": Case(
        "gymnax", "500", remembering(2_000_000), {"env_id": "StatelessCartPole", "num_agents": 1}
    ),
}


def train_and_evaluate(case: Case, seed: int) -> dict[str, Any]:
    """Returns and lengths per agent, greedily."""
    env, params = jaxmarl_envs.make(case.env, **case.env_kwargs)
    config = TrainConfig(**{**vars(case.config), "seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(env, params, config, Path(folder) / "run", progress=False)
        result = train_whole(trainer)
    report = evaluate_policies(trainer.learner, result.population, EPISODES, greedy=True)
    return {
        "env_steps": result.env_steps,
        "wall_s": round(result.history[-1]["wall_s"], 1),
        "agents": {
            agent: {
                key: _rounded(found.get(key)) for key in ("return_mean", "return_se", "length_mean")
            }
            for agent, found in report["agents"].items()
        },
    }


def _rounded(value: float | None) -> float | None:
    """None where a slot was never, or only once, taken."""
    return None if value is None else round(value, 3)


def main() -> None:
    """Train on all, or some, and print a line for each."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    for name in args.names:
        if name not in CASES:
            parser.error(f"unknown environment {name!r}; valid: {', '.join(CASES)}")
    runs: list[dict[str, Any]] = []
    record = {
        **command_and_hardware(__file__),
        "runs": runs,
    }
    for name in args.names or CASES:
        for seed in args.seeds:
            run = {"name": name, "seed": seed, "best": CASES[name].best}
            runs.append(run | train_and_evaluate(CASES[name], seed))
            print(json.dumps(runs[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
