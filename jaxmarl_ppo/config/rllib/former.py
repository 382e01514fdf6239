"""Keys and defaults of RLlib from Ray 1.2 to 2.54 that are not 2.60's, as tables."""

from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.config.rllib.defaults import DEPRECATED, is_default

# Keys of RLlib's operation that 2.60 no longer has, with their former defaults.
FORMER_MACHINERY: dict[str, tuple[Any, ...]] = {
    "_enable_learner_api": (True, False),
    "_enable_rl_trainer_api": (True, False),
    "_evaluation_parallel_to_training_wo_thread": (False,),
    "_is_frozen": (True, False),
    "_rl_trainer_hps": (),
    "_run_training_always_in_thread": (False,),
    "_use_trajectory_view_api": (True,),
    "collect_metrics_timeout": (180,),
    "evaluation_num_episodes": (10,),
    "input_evaluation": (["is", "wis"], {}),
    "is_atari": (None,),
    "logger_config": (None, {}),
    "logger_creator": (None,),
    "memory": (0,),
    "memory_per_worker": (0,),
    "monitor": (False,),
    "no_eager_on_workers": (False,),
    "object_store_memory": (0,),
    "object_store_memory_per_worker": (0,),
    "record_env": (False,),
    "replay_mode": ("independent",),
    "sample_async": (False,),
    "timesteps_per_iteration": (0,),
    # Of algorithms other than PPO.
    "buffer_size": (),
    "learning_starts": (),
    "prioritized_replay": (),
    "prioritized_replay_alpha": (),
    "prioritized_replay_beta": (),
    "prioritized_replay_eps": (),
    "replay_batch_size": (),
}
# Keys that 2.60 has, with other defaults than its own, under its names.
_FORMER_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "_disable_execution_plan_api": (True,),
    "_enable_rl_module_api": (True, False),
    "always_attach_evaluation_results": (True, False),
    "auto_wrap_old_gym_envs": (True,),
    "clip_actions": (True,),
    "custom_async_evaluation_function": (None,),
    "disable_env_checking": (),
    "eager_tracing": (False,),
    "enable_async_evaluation": (False,),
    "enable_connectors": (True, False),
    "env_runner_health_probe_timeout_s": (60,),
    "env_task_fn": (None,),
    "evaluation_config": ({},),
    "evaluation_sample_timeout_s": (180.0,),
    "framework": ("tf", "tf2"),
    "gym_env_vectorize_mode": ("SYNC",),
    "horizon": (),
    "log_gradients": (True,),
    "max_requests_in_flight_per_env_runner": (2,),
    "min_time_s_per_iteration": (0,),
    "no_done_at_end": (),
    "normalize_actions": (False,),
    "num_cpus_per_learner": (1,),
    "offline_evaluation_type": (None,),
    "policy_map_cache": (None,),
    "replay_sequence_length": (1,),
    "restart_failed_env_runners": (False,),
    "simple_optimizer": (False,),
    "soft_horizon": (),
    "sync_filters_on_rollout_workers_timeout_s": (60.0,),
    "synchronize_filters": (True,),
    "worker_cls": (None,),
}
# One of these shows that a configuration is written for a former version.
_FORMER_NAMES = ("multiagent", "num_rollout_workers", "num_sgd_iter", "num_workers")
# RLlib's own classes, which do what is done here.
_STOCK_CLASSES = {
    "callbacks": ("DefaultCallbacks", "RLlibCallback"),
    "env_runner_cls": ("MultiAgentEnvRunner", "SingleAgentEnvRunner"),
}


def is_of_former_version(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is written for a version before 2.60."""
    return any(not is_default(config.get(name, DEPRECATED), DEPRECATED) for name in _FORMER_NAMES)


def is_former_default(key: str, value: Any) -> bool:
    """Return whether a value is what some former version gives to its key by itself."""
    defaults = {**FORMER_MACHINERY, **_FORMER_DEFAULTS}.get(key)
    if defaults is None:
        return False
    return any(is_default(value, default) for default in (*defaults, DEPRECATED))


def is_stock_class(key: str, value: Any) -> bool:
    """Return whether a value is, or names, a class of RLlib's own that does what is done here."""
    name = value if isinstance(value, str) else getattr(value, "__name__", "")
    return name.rpartition(".")[2] in _STOCK_CLASSES.get(key, ())
