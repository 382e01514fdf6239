"""What a user says of a run, checked as soon as it is said."""

from jaxmarl_ppo.config.mapping import Draw, Ensemble, MappingFunction, Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.presets import PRESETS, Preset, preset
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.train import TrainConfig

__all__ = [
    "PRESETS",
    "Draw",
    "Ensemble",
    "Linear",
    "MappingFunction",
    "Matchups",
    "PPOConfig",
    "PolicySpec",
    "Preset",
    "Scripted",
    "Snapshots",
    "TrainConfig",
    "preset",
]
