"""Multi-agent PPO in JAX.

>>> env, params = jaxmarl_envs.make("tic_tac_toe")
>>> result = Trainer(env, params, TrainConfig(total_env_steps=1_000_000)).train()

Names are imported when they are first used, so that `import jaxmarl_ppo` costs next to nothing.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxmarl_ppo.config.curriculum import Stage
    from jaxmarl_ppo.config.mapping import Draw, Ensemble, MappingFunction, Matchups
    from jaxmarl_ppo.config.pbt import PbtConfig
    from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
    from jaxmarl_ppo.config.ppo import PPOConfig
    from jaxmarl_ppo.config.presets import PRESETS, Preset, preset
    from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
    from jaxmarl_ppo.config.schedules import Linear
    from jaxmarl_ppo.config.search import Choices, Range, SearchConfig
    from jaxmarl_ppo.config.train import TrainConfig
    from jaxmarl_ppo.deploy.exported import ExportedPolicy, load_exported
    from jaxmarl_ppo.deploy.policy import Policy
    from jaxmarl_ppo.devices.joining import join_processes
    from jaxmarl_ppo.evaluation.cross_play import cross_play
    from jaxmarl_ppo.evaluation.evaluate import evaluate_policies, evaluate_run
    from jaxmarl_ppo.learner.build import make_learner
    from jaxmarl_ppo.learner.learner import Learner
    from jaxmarl_ppo.learner.metrics import Metrics
    from jaxmarl_ppo.learner.summary import summarise
    from jaxmarl_ppo.machine.compilation_cache import use_compilation_cache
    from jaxmarl_ppo.machine.cores import use_cpu_cores
    from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM, MLP, MinGRU
    from jaxmarl_ppo.pages.report import report_runs
    from jaxmarl_ppo.pages.watch import WatchedRun, watch_run
    from jaxmarl_ppo.runs.callbacks import Callback, CallbackError, Control, RunInfo, TrainResult
    from jaxmarl_ppo.runs.loggers import MLflowLogger, WandbLogger
    from jaxmarl_ppo.runs.run_folder import LoadedRun, load_run
    from jaxmarl_ppo.sweeps.sweep import Sweep
    from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
    from jaxmarl_ppo.training.trainer import Trainer
    from jaxmarl_ppo.types import TrainState

__version__: str  # that of jaxmarl_envs

_NAMES = {  # by the module that has them
    "config.curriculum": "Stage",
    "config.mapping": "Draw Ensemble MappingFunction Matchups",
    "config.pbt": "PbtConfig",
    "config.policies": "PolicySpec Scripted Snapshots",
    "config.ppo": "PPOConfig",
    "config.presets": "PRESETS Preset preset",
    "config.run": "CheckpointConfig EvaluationConfig ObjectiveConfig",
    "config.schedules": "Linear",
    "config.search": "Choices Range SearchConfig",
    "config.train": "TrainConfig",
    "deploy.exported": "ExportedPolicy load_exported",
    "deploy.policy": "Policy",
    "devices.joining": "join_processes",
    "evaluation.cross_play": "cross_play",
    "evaluation.evaluate": "evaluate_policies evaluate_run",
    "learner.build": "make_learner",
    "learner.learner": "Learner",
    "learner.metrics": "Metrics",
    "learner.summary": "summarise",
    "machine.compilation_cache": "use_compilation_cache",
    "machine.cores": "use_cpu_cores",
    "networks.actor_critic": "CNN GRU LSTM MLP MinGRU",
    "pages.report": "report_runs",
    "pages.watch": "WatchedRun watch_run",
    "runs.callbacks": "Callback CallbackError Control RunInfo TrainResult",
    "runs.loggers": "MLflowLogger WandbLogger",
    "runs.run_folder": "LoadedRun load_run",
    "sweeps.sweep": "Sweep",
    "training.errors": "EnvironmentFault TrainingDiverged",
    "training.trainer": "Trainer",
    "types": "TrainState",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CNN",
    "GRU",
    "LSTM",
    "MLP",
    "PRESETS",
    "Callback",
    "CallbackError",
    "CheckpointConfig",
    "Choices",
    "Control",
    "Draw",
    "Ensemble",
    "EnvironmentFault",
    "EvaluationConfig",
    "ExportedPolicy",
    "Learner",
    "Linear",
    "LoadedRun",
    "MLflowLogger",
    "MappingFunction",
    "Matchups",
    "Metrics",
    "MinGRU",
    "ObjectiveConfig",
    "PPOConfig",
    "PbtConfig",
    "Policy",
    "PolicySpec",
    "Preset",
    "Range",
    "RunInfo",
    "Scripted",
    "SearchConfig",
    "Snapshots",
    "Stage",
    "Sweep",
    "TrainConfig",
    "TrainResult",
    "TrainState",
    "Trainer",
    "TrainingDiverged",
    "WandbLogger",
    "WatchedRun",
    "__version__",
    "cross_play",
    "evaluate_policies",
    "evaluate_run",
    "join_processes",
    "load_exported",
    "load_run",
    "make_learner",
    "preset",
    "report_runs",
    "summarise",
    "use_compilation_cache",
    "use_cpu_cores",
    "watch_run",
]

if importlib.util.find_spec("optuna") is None:  # an extra, without which all else is to be had
    __all__.remove("Sweep")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("jaxmarl_envs").__version__
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
