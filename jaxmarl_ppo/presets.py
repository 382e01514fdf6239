"""Configurations that train the shipped scenarios well."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxmarl_ppo.config import Linear, PolicySpec, PPOConfig, TrainConfig
from jaxmarl_ppo.networks import LSTM, MLP


@dataclass(frozen=True)
class Preset:
    """How to make an environment and how to train on it."""

    config: TrainConfig
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


PRESETS: dict[str, Preset] = {
    # Self-play forgets what it no longer meets: strong entropy keeps the whole game tree in play.
    "tic_tac_toe": Preset(
        TrainConfig(
            total_env_steps=6_000_000,
            num_envs=256,
            num_steps=64,
            policies="shared",
            policy=PolicySpec(network=MLP(hidden_sizes=(128, 128), separate_critic=True)),
            ppo=PPOConfig(
                learning_rate=Linear(1e-3, 1e-4),
                entropy_coef=Linear(0.2, 0.1),
                gamma=1.0,
                gae_lambda=0.9,
            ),
        )
    ),
    # Unequal agents with opposed interests: a policy of its own for each.
    "crypto": Preset(
        TrainConfig(
            total_env_steps=6_000_000,
            num_envs=256,
            num_steps=100,
            policies="per_agent",
            policy=PolicySpec(network=MLP(hidden_sizes=(64, 64), separate_critic=True)),
            ppo=PPOConfig(learning_rate=Linear(1e-3, 1e-4), entropy_coef=Linear(0.05, 0.0)),
        )
    ),
    # Only idle shuttles decide, after 2 to 7 ticks or more: discounting goes by the clock.
    "shuttle_grid": Preset(
        TrainConfig(
            total_env_steps=4_000_000,
            num_envs=64,
            num_steps=128,
            policies="shared",
            policy=PolicySpec(network=LSTM(hidden_sizes=(128,), lstm_size=64), prev_action=True),
            ppo=PPOConfig(
                learning_rate=Linear(7e-4, 1e-4),
                entropy_coef=0.01,
                gamma=0.99,
                discount_by="tick",
                bptt_length=16,
            ),
        )
    ),
}


def preset(name: str) -> Preset:
    """The preset of an environment; `TrainConfig()` where there is none."""
    return PRESETS.get(name, Preset(TrainConfig()))
