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
    try:
        while True:
            began = time.perf_counter()
            result = algorithm.train()
            seconds = time.perf_counter() - began
            yield {"seconds": seconds, **_summary(result)}
    finally:
        algorithm.stop()
        ray.shutdown()


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    played, timers = result["env_runners"], result["timers"]
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
        "sampling_s": float(timers["env_runner_sampling_timer"]),
        "learning_s": float(timers["learner_update_timer"]),
    }
