"""Keys of RLlib's PPO configuration that matter to what is learnt, with their defaults in 2.60."""

from typing import Any

from jaxmarl_ppo.config.rllib.defaults import Named, each

# Former names, which are still understood.
RENAMED = {
    "lambda_": "lambda",
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "mini_batch_size_per_learner": "minibatch_size",
    "train_batch_size_per_learner": "_train_batch_size_per_learner",
    "num_workers": "num_env_runners",
    "num_rollout_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_gpus_per_worker": "num_gpus_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_learner_workers": "num_learners",
    "num_trainer_workers": "num_learners",
    "num_gpus_per_trainer_worker": "num_gpus_per_learner",
    "num_cpus_per_trainer_worker": "num_cpus_per_learner",
    "num_gpus_per_learner_worker": "num_gpus_per_learner",
    "num_cpus_per_learner_worker": "num_cpus_per_learner",
    "custom_resources_per_learner_worker": "custom_resources_per_learner",
    "num_cpus_for_local_worker": "num_cpus_for_main_process",
    "worker_health_probe_timeout_s": "env_runner_health_probe_timeout_s",
    "worker_restore_timeout_s": "env_runner_restore_timeout_s",
    "delay_between_worker_restarts_s": "delay_between_env_runner_restarts_s",
    "max_num_worker_restarts": "max_num_env_runner_restarts",
    "num_consecutive_worker_failures_tolerance": "num_consecutive_env_runner_failures_tolerance",
    "validate_workers_after_construction": "validate_env_runners_after_construction",
    "num_cpus_for_driver": "num_cpus_for_main_process",
    "custom_resources_per_worker": "custom_resources_per_env_runner",
    "evaluation_num_workers": "evaluation_num_env_runners",
    "ignore_worker_failures": "ignore_env_runner_failures",
    "recreate_failed_workers": "restart_failed_env_runners",
    "recreate_failed_env_runners": "restart_failed_env_runners",
    "metrics_smoothing_episodes": "metrics_num_episodes_for_smoothing",
    "min_time_s_per_reporting": "min_time_s_per_iteration",
    "min_train_timesteps_per_reporting": "min_train_timesteps_per_iteration",
    "min_sample_timesteps_per_reporting": "min_sample_timesteps_per_iteration",
    "min_iter_time_s": "min_time_s_per_iteration",
    "callbacks_class": "callbacks",
    "framework_str": "framework",
    "input_": "input",
    "create_env_on_local_worker": "create_env_on_driver",
    "custom_evaluation_function": "custom_eval_function",
    "model_config": "_model_config",
    "_model_config_dict": "_model_config",
    "max_requests_in_flight_per_sampler_worker": "max_requests_in_flight_per_env_runner",
    "rl_trainer_class": "_learner_class",
    "rl_module_spec": "_rl_module_spec",
}
# What RLlib keeps for itself in a configuration.
INTERNAL = {
    "_per_module_overrides",
    "_prior_exploration_config",
    "__prior_exploration_config",
    "algo_class",
    "_is_online",
    "_enable_new_api_stack",
    "enable_env_runner_and_connector_v2",
}
# What `from_rllib_config` translates.
TRANSLATED: dict[str, Any] = {
    **each(
        None,
        """
        lr_schedule entropy_coeff_schedule grad_clip _train_batch_size_per_learner _rl_module_spec
        policies_to_train seed
    """,
    ),
    "lambda": 1.0,
    "gamma": 0.99,
    "lr": 5e-05,
    "clip_param": 0.3,
    "vf_clip_param": 10.0,
    "vf_loss_coeff": 1.0,
    "entropy_coeff": 0.0,
    "use_kl_loss": True,
    "kl_coeff": 0.2,
    "kl_target": 0.01,
    "grad_clip_by": "global_norm",
    "num_epochs": 30,
    "minibatch_size": 128,
    "train_batch_size": 4000,
    "num_learners": 0,
    "rollout_fragment_length": "auto",
    "num_env_runners": 2,
    "num_envs_per_env_runner": 1,
    "count_steps_by": "env_steps",
    "model": {},
    "_model_config": {},
    "policies": {"default_policy": (None, None, None, None)},
    "policy_mapping_fn": Named("DEFAULT_POLICY_MAPPING_FN"),
    "algorithm_config_overrides_per_module": {},
    "observation_filter": "NoFilter",
    "enable_rl_module_and_learner": True,
}
# What changes what is learnt and has no counterpart.
LOST: dict[str, Any] = {
    **each(
        None,
        """
        _learner_class _learner_connector _env_to_module_connector _module_to_env_connector
        callbacks_on_algorithm_init callbacks_on_checkpoint_loaded
        callbacks_on_env_runners_recreated callbacks_on_environment_created
        callbacks_on_episode_created callbacks_on_episode_end callbacks_on_episode_start
        callbacks_on_episode_step callbacks_on_evaluate_end callbacks_on_evaluate_offline_end
        callbacks_on_evaluate_offline_start callbacks_on_evaluate_start
        callbacks_on_offline_eval_runners_recreated callbacks_on_sample_end
        callbacks_on_train_result clip_rewards _torch_lr_scheduler_classes observation_fn
        env_runner_cls _torch_grad_scaler_class
    """,
    ),
    **each(
        False,
        """
        clip_actions actions_in_input_normalized ignore_final_observation offline_sampling
        torch_skip_nan_gradients postprocess_inputs
    """,
    ),
    **each(
        True,
        """
        add_default_connectors_to_env_to_module_pipeline add_default_connectors_to_learner_pipeline
        add_default_connectors_to_module_to_env_pipeline explore normalize_actions use_critic
        use_gae shuffle_batch_per_epoch
    """,
    ),
    "callbacks": Named("RLlibCallback"),
    "exploration_config": {},
    "optimizer": {},
    "learner_config_dict": {},
    "env_task_fn": -1,
    "input": "sampler",
    "sample_collector": Named("SimpleListCollector"),
    "vf_share_layers": -1,
    "worker_cls": -1,
    # Of earlier versions.
    "rl_module_class": None,
    "horizon": None,
    "soft_horizon": False,
    "no_done_at_end": False,
    "shuffle_sequences": True,
}
# Of `model`, and of the new API stack's `DefaultModelConfig`: what is translated.
MODEL: dict[str, Any] = {
    **each(
        False,
        """
        use_lstm lstm_use_prev_action lstm_use_prev_reward vf_share_layers free_log_std
    """,
    ),
    "fcnet_hiddens": [256, 256],
    "fcnet_activation": "tanh",
    "head_fcnet_hiddens": [],
    "head_fcnet_activation": "relu",
    "lstm_cell_size": 256,
    "max_seq_len": 20,
}
# ... what changes the network and has no counterpart.
MODEL_LOST: dict[str, Any] = {
    **each(
        None,
        """
        conv_bias_initializer conv_bias_initializer_config conv_bias_initializer_kwargs conv_filters
        conv_kernel_initializer conv_kernel_initializer_config conv_kernel_initializer_kwargs
        conv_transpose_bias_initializer conv_transpose_bias_initializer_config
        conv_transpose_kernel_initializer conv_transpose_kernel_initializer_config
        custom_action_dist custom_model custom_preprocessor encoder_latent_dim
        fcnet_bias_initializer fcnet_bias_initializer_config fcnet_bias_initializer_kwargs
        fcnet_kernel_initializer fcnet_kernel_initializer_kwargs fcnet_weights_initializer
        fcnet_weights_initializer_config fusionnet_bias_initializer
        fusionnet_bias_initializer_kwargs fusionnet_kernel_initializer
        fusionnet_kernel_initializer_kwargs head_fcnet_bias_initializer
        head_fcnet_bias_initializer_kwargs head_fcnet_kernel_initializer
        head_fcnet_kernel_initializer_kwargs lstm_bias_initializer lstm_bias_initializer_config
        lstm_bias_initializer_kwargs lstm_kernel_initializer lstm_kernel_initializer_kwargs
        lstm_weights_initializer lstm_weights_initializer_config post_fcnet_bias_initializer
        post_fcnet_bias_initializer_config post_fcnet_weights_initializer
        post_fcnet_weights_initializer_config
    """,
    ),
    **each(
        False,
        """
        fcnet_use_layernorm head_fcnet_use_layernorm no_final_linear use_attention
    """,
    ),
    "attention_dim": 64,
    "attention_head_dim": 32,
    "attention_init_gru_gate_bias": 2.0,
    "attention_memory_inference": 50,
    "attention_memory_training": 50,
    "attention_num_heads": 1,
    "attention_num_transformer_units": 1,
    "attention_position_wise_mlp_dim": 32,
    "attention_use_n_prev_actions": 0,
    "attention_use_n_prev_rewards": 0,
    "conv_activation": "relu",
    "custom_model_config": {},
    "fusionnet_activation": "tanh",
    "fusionnet_hiddens": [256, 256],
    "log_std_clip_param": 20.0,
    "post_fcnet_activation": "relu",
    "post_fcnet_hiddens": [],
}
# ... what belongs to RLlib's own preprocessing.
MODEL_MACHINERY: dict[str, Any] = {
    **each(
        False,
        """
        _disable_action_flattening _disable_preprocessor_api _time_major always_check_shapes
        grayscale
    """,
    ),
    "_use_default_native_models": -1,
    "dim": 84,
    "framestack": True,
    "num_framestacks": "auto",
    "zero_mean": True,
    "lstm_use_prev_action_reward": -1,
}
