"""A scenario as a configuration of this package, and its training in windows of time."""

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo import LSTM, MLP, Ensemble, Matchups, PolicySpec, PPOConfig, TrainConfig
from jaxmarl_ppo.config.presets import SLOW_ENV, preset
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.summary import summarise
from ray_baseline.noise import Noise
from ray_baseline.scenarios import Scenario

# A window is to last about this long, and may have at most this many times the last one's work.
WINDOW_S = 1.0
WINDOW_GROWTH = 4


def make_run(
    scenario: Scenario, seed: int, side: str = "ours"
) -> tuple[MultiAgentEnv, Any, TrainConfig]:
    """Return the environment, its parameters and everything that the trainer is told.

    Args:
        scenario: the workload.
        seed: of everything random.
        side: `"ours"`, `"twins"` or `"slow_env"`, as in `report.SIDES`.
    """
    env, env_params = _make_env(scenario) if side == "ours" else _make_twins(scenario)
    return env, env_params, make_config(scenario, seed, side)


def make_config(scenario: Scenario, seed: int, side: str) -> TrainConfig:
    """Return everything that the trainer is told; arguments are those of `make_run`."""
    lstm_size = scenario.lstm_size
    mlp = MLP(hidden_sizes=scenario.hidden_sizes)
    network = LSTM(hidden_sizes=scenario.hidden_sizes, lstm_size=lstm_size) if lstm_size else mlp
    advised = preset(scenario.game, SLOW_ENV).config
    config = dataclasses.replace(
        advised if side == "slow_env" else _shared_config(scenario, on_twins=side == "twins"),
        total_env_steps=10**12,  # until time is up; schedules stay at their start
        seed=seed,
        mapping=Matchups(scenario.tables, scenario.weights) if scenario.tables else Ensemble(3),
        policies={name: PolicySpec(network=network, trainable=False) for name in scenario.frozen},
    )
    policy = dataclasses.replace(config.default_policy, network=network)
    return dataclasses.replace(config, default_policy=policy)


def _shared_config(scenario: Scenario, on_twins: bool) -> TrainConfig:
    """Return what all sides share, with the sizes of ours."""
    settings = scenario.twins if on_twins else scenario.ours
    return TrainConfig(
        num_envs=settings.num_envs,
        num_steps=settings.num_steps,
        default_ppo=PPOConfig(
            learning_rate=scenario.learning_rate,
            num_epochs=scenario.num_epochs,
            num_minibatches=settings.num_minibatches,
            gamma=scenario.gamma,
            gae_lambda=scenario.gae_lambda,
            entropy_coef=scenario.entropy_coef,
            bptt_length=scenario.sequence_length if scenario.lstm_size else None,
            adam_eps=1e-8,  # as torch has it
        ),
        micro_batch_rows=settings.micro_batch_rows,
    )


def _make_env(scenario: Scenario) -> tuple[MultiAgentEnv, Any]:
    if scenario.game == "noise":
        return Noise(), ()
    return jaxmarl_envs.make(scenario.game)


def _make_twins(scenario: Scenario) -> tuple[MultiAgentEnv, Any]:
    """The class that RLlib steps, brought in as anybody's would be."""
    from ray_baseline.rllib_env import TwinEnv, env_config

    env = from_rllib_env(
        functools.partial(TwinEnv, env_config(scenario)),
        max_actors=scenario.max_actors,
        horizon=scenario.episode_steps,
    )
    return env, env.default_params


def train_on_twins(scenario: Scenario, seed: int) -> Iterator[dict[str, Any]]:
    """Train on the environments that RLlib steps, as `train` does."""
    return train(scenario, seed, "twins")


def train_by_preset(scenario: Scenario, seed: int) -> Iterator[dict[str, Any]]:
    """Train on the environments that RLlib steps, by the preset for them."""
    return train(scenario, seed, "slow_env")


def train(scenario: Scenario, seed: int, side: str = "ours") -> Iterator[dict[str, Any]]:
    """Compile, then train window by window for as long as the caller asks for more."""
    env, env_params, config = make_run(scenario, seed, side)
    learner = make_learner(env, env_params, config)
    compiled = CompiledRuns(learner)
    compiled.compile()
    state, empty = compiled.init([jax.random.key(config.seed)])
    iterations = 1
    while True:
        began = time.perf_counter()
        state, metrics = compiled.train(state, np.array([iterations]), empty)
        found = summarise(learner, metrics)
        seconds = time.perf_counter() - began
        yield {
            "seconds": seconds,
            "env_steps": found["env_steps"],
            "decisions": found["decisions"],
            "returns": _returns(found),
            **_work(found, scenario),
        }
        wanted = int(WINDOW_S * iterations / seconds)
        iterations = max(1, min(wanted, WINDOW_GROWTH * iterations))


def _returns(found: dict[str, Any]) -> dict[str, float]:
    """Mean return of every agent and policy that ended a life in this window."""
    groups = {**found["policies"], **found["agents"]}
    return {name: group["return_mean"] for name, group in groups.items() if "return_mean" in group}


def _work(found: dict[str, Any], scenario: Scenario) -> dict[str, float]:
    """Rows that were trained on, and the optimiser's steps over all policies."""
    trained = [p for p in found["policies"].values() if "optimiser_steps" in p]
    return {
        "trained_rows": scenario.num_epochs * sum(p["trained_decisions"] for p in trained),
        "optimiser_steps": sum(p["optimiser_steps"] for p in trained),
    }
