"""Training of a scenario by RLlib, iteration by iteration."""

# pyright: reportMissingImports=false

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ray
import torch

from ray_baseline.rllib_config import DECISIONS, make_config
from ray_baseline.rllib_former import FormerResults
from ray_baseline.scenarios import Scenario

# How much of RLlib's timers is the latest iteration, of which only the first is all.
TIMER_COEFFICIENT = 0.01


def train(scenario: Scenario, seed: int) -> Iterator[dict[str, Any]]:
    """Train for as long as the caller asks for more."""
    torch.set_num_threads(scenario.rllib.torch_threads)
    ray.init(
        "local",  # not the cluster that may be running here
        num_cpus=1 + scenario.rllib.num_runners + scenario.rllib.num_learners,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    algorithm = make_config(scenario, seed).build_algo()
    is_new = scenario.rllib.api_stack == "new"
    results = NewResults() if is_new else FormerResults(algorithm, scenario)
    try:
        while True:
            began = time.perf_counter()
            result = algorithm.train()
            seconds = time.perf_counter() - began
            yield {"seconds": seconds, **results.read(result)}
    finally:
        algorithm.stop()
        ray.shutdown()


class NewResults:
    """Reads the results of an algorithm on the new API stack, one after the other."""

    def __init__(self) -> None:
        self._timers: Mapping[str, float] = {}

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what an iteration did."""
        played = result["env_runners"]
        returns = {
            **played.get("module_episode_returns_mean", {}),
            **played.get("agent_episode_returns_mean", {}),
        }
        before, self._timers = self._timers, result["timers"]
        return {
            "env_steps": int(played["num_env_steps_sampled"]),
            "decisions": int(played[DECISIONS]),
            "returns": {name: float(value) for name, value in returns.items()},
            "trained_rows": int(result["learners"]["__all_modules__"]["num_module_steps_trained"]),
            "sampling_s": _latest("env_runner_sampling_timer", self._timers, before),
            "learning_s": _latest("learner_update_timer", self._timers, before),
        }


def _latest(name: str, now: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Seconds of the latest iteration, of a timer that is a moving average."""
    if name not in before:
        return float(now[name])
    return float(before[name] + (now[name] - before[name]) / TIMER_COEFFICIENT)
