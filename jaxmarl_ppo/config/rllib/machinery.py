"""Keys of RLlib 2.60 that affect its operation, not learning."""

from typing import Any

from jaxmarl_ppo.config.rllib.defaults import Named, each

# How RLlib runs, watches and keeps what it learns: without these the same is learnt.
MACHINERY: dict[str, Any] = {
    **each(
        None,
        """
        _is_atari action_space custom_eval_function dataset_num_iters_per_learner env
        evaluation_config evaluation_error_after_n_consecutive_skips evaluation_interval
        input_filesystem input_read_batch_size min_time_s_per_iteration observation_space
        offline_data_class offline_eval_runner_class offline_evaluation_interval
        offline_loss_for_module_fn output output_filesystem output_max_rows_per_file
        prelearner_buffer_class prelearner_class replay_sequence_length sampler_perf_stats_ema_coef
        torch_compile_learner_dynamo_mode torch_compile_worker_dynamo_mode
    """,
    ),
    **each(
        False,
        """
        _disable_action_flattening _disable_initialize_loss_from_dummy_batch
        _disable_preprocessor_api _dont_auto_sync_env_runner_states _fake_gpus
        _tf_policy_handles_more_than_one_loss _use_msgpack_checkpoints
        broadcast_offline_eval_runner_states checkpoint_trainable_policies_only
        compress_observations create_env_on_driver disable_env_checking enable_tf1_exec_eagerly
        evaluation_parallel_to_training export_native_model_files fake_sampler
        ignore_env_runner_failures ignore_offline_eval_runner_failures in_evaluation
        input_read_episodes input_read_sample_batches keep_per_episode_custom_metrics log_gradients
        materialize_data offline_eval_rl_module_inference_only
        offline_evaluation_parallel_to_training output_write_remaining_data
        policy_states_are_swappable prelearner_use_recorded_module_states remote_worker_envs
        render_env restart_failed_sub_environments torch_compile_learner torch_compile_worker
        use_env_runner_state_server
    """,
    ),
    **each(
        True,
        """
        _validate_config broadcast_env_runner_states create_local_env_runner eager_tracing
        episodes_to_numpy evaluation_force_reset_envs_before_iteration input_spaces_jsonable
        log_sys_usage materialize_mapped_data ope_split_batch_by_episode output_write_episodes
        restart_failed_env_runners restart_failed_offline_eval_runners update_worker_filter_stats
        use_worker_filter_stats validate_env_runners_after_construction
        validate_offline_eval_runners_after_construction
    """,
    ),
    **each(
        -1,
        """
        _disable_execution_plan_api _enable_rl_module_api always_attach_evaluation_results
        auto_wrap_old_gym_envs custom_async_evaluation_function enable_async_evaluation
        enable_connectors policy_map_cache simple_optimizer synchronize_filters
    """,
    ),
    **each(
        0,
        """
        evaluation_num_env_runners local_gpu_idx min_sample_timesteps_per_iteration
        min_train_timesteps_per_iteration num_aggregator_actors_per_learner num_gpus
        num_gpus_per_env_runner num_gpus_per_learner num_gpus_per_offline_eval_runner
        num_offline_eval_runners remote_env_batch_wait_ms shuffle_buffer_size
    """,
    ),
    **each(
        {},
        """
        custom_resources_for_main_process custom_resources_per_env_runner
        custom_resources_per_learner custom_resources_per_offline_eval_runner env_config
        extra_python_environs_for_driver extra_python_environs_for_worker input_config
        input_filesystem_kwargs input_read_method_kwargs input_read_schema iter_batches_kwargs
        map_batches_kwargs off_policy_estimation_methods output_config output_filesystem_kwargs
        output_write_method_kwargs prelearner_buffer_kwargs torch_ddp_kwargs
    """,
    ),
    "action_mask_key": "action_mask",
    "batch_mode": "truncate_episodes",
    "dataset_num_iters_per_eval_runner": 1,
    "delay_between_env_runner_restarts_s": 60.0,
    "eager_max_retraces": 20,
    "env_runner_health_probe_timeout_s": 30.0,
    "env_runner_restore_timeout_s": 1800.0,
    "env_runner_state_server_max_concurrency": 16,
    "episode_lookback_horizon": 1,
    "evaluation_auto_duration_max_env_steps_per_sample": 2000,
    "evaluation_auto_duration_min_env_steps_per_sample": 100,
    "evaluation_duration": 10,
    "evaluation_duration_unit": "episodes",
    "evaluation_sample_timeout_s": 120.0,
    "evaluation_unhealthy_workers_timeout_s": 0.0,
    "framework": "torch",
    "gym_env_vectorize_mode": "sync",
    "input_compress_columns": ["obs", "new_obs"],
    "input_read_method": "read_parquet",
    "local_tf_session_args": {"intra_op_parallelism_threads": 8, "inter_op_parallelism_threads": 8},
    "log_level": "WARN",
    "max_num_env_runner_restarts": 1000,
    "max_num_offline_eval_runner_restarts": 1000,
    "max_requests_in_flight_per_aggregator_actor": 3,
    "max_requests_in_flight_per_env_runner": 1,
    "max_requests_in_flight_per_learner": 3,
    "max_requests_in_flight_per_offline_eval_runner": 1,
    "merge_env_runner_states": "training_only",
    "metrics_episode_collection_timeout_s": 60.0,
    "metrics_num_episodes_for_smoothing": 100,
    "num_consecutive_env_runner_failures_tolerance": 100,
    "num_cpus_for_main_process": 1,
    "num_cpus_per_env_runner": 1,
    "num_cpus_per_learner": "auto",
    "num_cpus_per_offline_eval_runner": 1,
    "offline_eval_batch_size_per_runner": 256,
    "offline_eval_runner_health_probe_timeout_s": 30.0,
    "offline_eval_runner_restore_timeout_s": 1800.0,
    "offline_evaluation_duration": 1,
    "offline_evaluation_timeout_s": 120.0,
    "offline_evaluation_type": "eval_loss",
    "output_compress_columns": ["obs", "new_obs"],
    "output_max_file_size": 67108864,
    "output_write_method": "write_parquet",
    "placement_strategy": "PACK",
    "policy_map_capacity": 100,
    "prelearner_module_synch_period": 10,
    "preprocessor_pref": "deepmind",
    "sample_timeout_s": 60.0,
    "stats_cls_lookup": {
        "mean": Named("MeanStats"),
        "ema": Named("EmaStats"),
        "min": Named("MinStats"),
        "max": Named("MaxStats"),
        "sum": Named("SumStats"),
        "lifetime_sum": Named("LifetimeSumStats"),
        "percentiles": Named("PercentilesStats"),
        "item": Named("ItemStats"),
        "item_series": Named("ItemSeriesStats"),
    },
    "sync_filters_on_rollout_workers_timeout_s": 10.0,
    "tf_session_args": {
        "intra_op_parallelism_threads": 2,
        "inter_op_parallelism_threads": 2,
        "gpu_options": {"allow_growth": True},
        "log_device_placement": False,
        "device_count": {"CPU": 1},
        "allow_soft_placement": True,
    },
    "torch_compile_learner_dynamo_backend": "inductor",
    "torch_compile_learner_what_to_compile": "forward_train",
    "torch_compile_worker_dynamo_backend": "onnxrt",
}
