"""Defaults of earlier versions of RLlib, and its own classes by name, as tables."""

from typing import Any

from jaxmarl_ppo.config.rllib.defaults import is_default

# Defaults of Ray 1.2's PPO that are not those of 2.60, and change nothing that is learnt here.
FORMER_DEFAULTS: dict[str, Any] = {
    "_use_trajectory_view_api": True,
    "clip_actions": True,
    "env_task_fn": None,
    "input_evaluation": ["is", "wis"],
    "logger_config": None,
    "normalize_actions": False,
    "replay_mode": "independent",
    "sample_async": False,
}
# RLlib's own classes, which do what is done here.
STOCK_CLASSES = {
    "callbacks": ("DefaultCallbacks", "RLlibCallback"),
    "env_runner_cls": ("MultiAgentEnvRunner", "SingleAgentEnvRunner"),
}


def is_former_default(key: str, value: Any) -> bool:
    """Tell whether a value is what an earlier version of RLlib gives to its key by itself."""
    name = value if isinstance(value, str) else getattr(value, "__name__", "")
    if key in STOCK_CLASSES and name.rpartition(".")[2] in STOCK_CLASSES[key]:
        return True
    return key in FORMER_DEFAULTS and is_default(value, FORMER_DEFAULTS[key])
