"""Multi-agent PPO in JAX.

>>> env, params = jaxmarl_envs.make("tic_tac_toe")
>>> result = Trainer(env, params, TrainConfig(total_env_steps=1_000_000)).train()

Names are imported when they are first used, so that `import jaxmarl_ppo` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxmarl_ppo.build import make_learner
    from jaxmarl_ppo.checkpoint import LoadedRun, load_run
    from jaxmarl_ppo.config import Linear, PolicySpec, PPOConfig, TrainConfig
    from jaxmarl_ppo.exported import ExportedPolicy, load_exported
    from jaxmarl_ppo.league import Snapshots
    from jaxmarl_ppo.mapping import Draw, Ensemble, MappingFunction, Matchups
    from jaxmarl_ppo.networks import CNN, LSTM, MLP
    from jaxmarl_ppo.parallel import use_cpu_cores
    from jaxmarl_ppo.policy import Policy
    from jaxmarl_ppo.presets import PRESETS, Preset, preset
    from jaxmarl_ppo.scripted import Scripted
    from jaxmarl_ppo.trainer import EnvironmentFault, Trainer, TrainingDiverged, TrainResult

__version__ = "0.1.0"

_MODULES = {
    "CNN": "networks",
    "Draw": "mapping",
    "Ensemble": "mapping",
    "EnvironmentFault": "trainer",
    "ExportedPolicy": "exported",
    "LSTM": "networks",
    "Linear": "config",
    "LoadedRun": "checkpoint",
    "MLP": "networks",
    "MappingFunction": "mapping",
    "Matchups": "mapping",
    "PPOConfig": "config",
    "PRESETS": "presets",
    "Policy": "policy",
    "PolicySpec": "config",
    "Preset": "presets",
    "Scripted": "scripted",
    "Snapshots": "league",
    "TrainConfig": "config",
    "TrainResult": "trainer",
    "Trainer": "trainer",
    "TrainingDiverged": "trainer",
    "load_exported": "exported",
    "load_run": "checkpoint",
    "make_learner": "build",
    "preset": "presets",
    "use_cpu_cores": "parallel",
}

__all__ = [
    "CNN",
    "LSTM",
    "MLP",
    "PRESETS",
    "Draw",
    "Ensemble",
    "EnvironmentFault",
    "ExportedPolicy",
    "Linear",
    "LoadedRun",
    "MappingFunction",
    "Matchups",
    "PPOConfig",
    "Policy",
    "PolicySpec",
    "Preset",
    "Scripted",
    "Snapshots",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "TrainingDiverged",
    "__version__",
    "load_exported",
    "load_run",
    "make_learner",
    "preset",
    "use_cpu_cores",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
