"""Hints on RLlib's keys that have no counterpart."""

_CODE = "RLlib's own code cannot run here"
_EVALUATE = "to evaluate: `jaxmarl-ppo evaluate RUN_DIR`"
_OFFLINE = "nothing is trained from recorded data here"
_SPACES = "the environment's actions lie within its bounds, and rewards are as it gives them"
_NETWORK = "give a network: replace(config, default_policy=PolicySpec(network=...))"
# What to do about a key; the longest beginning that fits counts.
HINTS = {
    "_learner": _CODE,
    "_env_to_module_connector": "for running mean and variance: normalise_observations=True",
    "_module_to_env_connector": _CODE,
    "add_default_connectors": _CODE,
    "sample_collector": _CODE,
    "env_runner_cls": _CODE,
    "observation_fn": "for a critic that sees what all agents see: PolicySpec(central_critic=True)",
    "callbacks": "opponents from the past: Snapshots; numbers of your own: info['metrics'] of the "
    "environment; drawings and checks: from `metrics.jsonl`",
    "exploration_config": "actions are drawn from the policy",
    "explore": "actions are drawn from the policy; greedy ones: `evaluate --greedy`",
    "clip_actions": _SPACES,
    "clip_rewards": _SPACES,
    "normalize_actions": _SPACES,
    "actions_in_input_normalized": _OFFLINE,
    "offline": _OFFLINE,
    "input": _OFFLINE,
    "use_critic": "there is always a critic",
    "use_gae": "set lambda=1.0, which is the same",
    "optimizer": "the optimiser is Adam",
    "horizon": "a time limit is the environment's",
    "soft_horizon": "the environment says whether an end is a termination or a truncation",
    "no_done_at_end": "the environment says whether an end is a termination or a truncation",
    "vf_share_layers": "set model.vf_share_layers",
    "shuffle": "minibatches are drawn anew in every epoch",
    "env": "the environment is handed to Trainer(env, env_params, config)",
    "env_config": "the environment is handed to Trainer(env, env_params, config)",
    "env_runner_": "there are no processes to watch",
    "env_task_fn": "env_schedules changes parameters of the environment during training",
    "action_space": "the environment defines it",
    "observation_space": "the environment defines it",
    "action_mask_key": "masks are a field of every observation",
    "batch_mode": "a rollout may end at any step: the rest of an episode is bootstrapped",
    "evaluation": _EVALUATE,
    "custom_eval_function": _EVALUATE,
    "framework": "this is JAX",
    "num_gpus": "JAX takes the devices that it sees; TrainConfig.num_devices says how many",
    "num_cpus": "use_cpu_cores() says how many",
    "log_level": "",
    "model.custom_model": _NETWORK,
    "model.conv": "give a network: PolicySpec(network=CNN(channels=...)), with 3 x 3 kernels",
    "model.fcnet_activation": "valid: tanh, relu, silu (swish), gelu",
    "model.use_attention": "there is none; an LSTM, a GRU, or a flax module of your own",
    "model.": _NETWORK,
}


def hint(key: str) -> str:
    """Return advice on a key without counterpart; empty where there is nothing to do."""
    fitting = [start for start in HINTS if key.startswith(start)]
    return HINTS[max(fitting, key=len)] if fitting else ""
