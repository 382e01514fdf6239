"""Training of a scenario by RLlib, iteration by iteration."""

# pyright: reportMissingImports=false

import logging
import time
from collections.abc import Iterator
from typing import Any

import ray
import torch

from ray_baseline.rllib_config import DECISIONS, make_config
from ray_baseline.scenarios import Scenario

# How much of RLlib's timers is the latest iteration, of which only the first is all.
TIMER_COEFFICIENT = 0.01


def train(scenario: Scenario, seed: int) -> Iterator[dict[str, Any]]:
    """Train for as long as the caller asks for more."""
    torch.set_num_threads(scenario.rllib.torch_threads)
    ray.init(
        num_cpus=1 + scenario.rllib.num_runners,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    algorithm = make_config(scenario, seed).build_algo()
    before: dict[str, float] = {}
    try:
        while True:
            began = time.perf_counter()
            result = algorithm.train()
            seconds = time.perf_counter() - began
            yield {"seconds": seconds, **_summary(result), **_times(result["timers"], before)}
            before = result["timers"]
    finally:
        algorithm.stop()
        ray.shutdown()


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    played = result["env_runners"]
    returns = {
        **played.get("module_episode_returns_mean", {}),
        **played.get("agent_episode_returns_mean", {}),
    }
    trained = result["learners"]["__all_modules__"]["num_module_steps_trained"]
    return {
        "env_steps": int(played["num_env_steps_sampled"]),
        "decisions": int(played[DECISIONS]),
        "returns": {name: float(value) for name, value in returns.items()},
        "trained_rows": int(trained),
    }


def _times(timers: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Seconds of the latest iteration, of timers that are moving averages and what they were."""

    def latest(name: str) -> float:
        now, was = float(timers[name]), before.get(name)
        return now if was is None else was + (now - was) / TIMER_COEFFICIENT

    return {
        "sampling_s": latest("env_runner_sampling_timer"),
        "learning_s": latest("learner_update_timer"),
    }
