"""Presets of Jumanji's environments of several agents, in the tasks of Mava's experiments.

The generator and the time limit of a task are those of the file with its name under
`mava/configs/env/scenario` of github.com/instadeepai/Mava. docs/learning.md compares the results
with Mava's.
"""

from typing import Any

from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP


def _team(
    total_env_steps: int, entropy_coef: float | Linear, normalise_observations: bool = False
) -> TrainConfig:
    """Configure one network that plays all agents, with a critic that sees what all of them see."""
    return TrainConfig(
        total_env_steps=total_env_steps,
        num_envs=32,
        num_steps=128,
        mapping="shared",
        default_policy=PolicySpec(
            network=MLP(hidden_sizes=(128, 128), separate_critic=True),
            central_critic=True,
            append_agent_id=True,
            normalise_observations=normalise_observations,
            normalise_rewards=True,
        ),
        default_ppo=PPOConfig(
            learning_rate=Linear(1e-3, 0.0), entropy_coef=entropy_coef, num_epochs=2
        ),
    )


def _foraging(grid_size: int, fov: int, agents: int, food: int, coop: bool) -> dict[str, Any]:
    generator = {
        "grid_size": grid_size,
        "fov": fov,
        "num_agents": agents,
        "num_food": food,
        "max_agent_level": 2,
        "force_coop": coop,
    }
    return {"env_id": "LevelBasedForaging-v0", "generator": generator, "time_limit": 100}


def _tiny_warehouse(agents: int) -> dict[str, Any]:
    generator = {
        "column_height": 8,
        "shelf_rows": 1,
        "shelf_columns": 3,
        "num_agents": agents,
        "sensor_range": 1,
        "request_queue_size": agents,
    }
    return {"env_id": "RobotWarehouse-v0", "generator": generator, "time_limit": 500}


# In sampled play a stray action may be a collision of robots, which ends the episode, or a trail in
# the way of others: at the end of these runs nothing rewards entropy.
_FADING = Linear(0.01, 0.0)
# How each task is trained, and what its environment is made with.
JUMANJI_PRESETS: dict[str, tuple[TrainConfig, dict[str, Any]]] = {
    "lbf_2s_8x8_2p_2f_coop": (_team(4 * 2**20, 0.01), _foraging(8, 2, 2, 2, coop=True)),
    "lbf_15x15_4p_3f": (_team(4 * 2**20, 0.01), _foraging(15, 15, 4, 3, coop=False)),
    "connector_5x5x3a": (
        _team(2 * 2**20, _FADING),
        {
            "env_id": "Connector-v3",
            "generator": {"grid_size": 5, "num_agents": 3},
            "time_limit": 25,
        },
    ),
    "rware_tiny_2ag": (_team(10 * 2**20, _FADING, normalise_observations=True), _tiny_warehouse(2)),
    "rware_tiny_4ag": (_team(10 * 2**20, _FADING, normalise_observations=True), _tiny_warehouse(4)),
}
