"""Tests that `make test` leaves out: the rarer combinations, and what takes long for what it shows.

`make slow` runs them. Each file has others that hold the same promise on a simpler case, so that
what a newcomer runs second takes minutes.
"""

from collections.abc import Iterator

import pytest

from jaxmarl_ppo.config.jaxmarl_presets import jaxmarl_presets

ALL = ()  # cases of a test
# Presets of JaxMARL's environments but for one.
MOST_OF_JAXMARL = sorted(jaxmarl_presets().keys() - {"smax_3m_theirs"})

# By file, as it is called below `tests/`, and test: the ids of its cases.
RARE: dict[str, dict[str, tuple[str, ...]]] = {
    "bench/test_bench.py": {
        "test_a_fresh_process_is_timed": ALL,
        "test_arithmetic_of_a_step_is_that_of_its_decisions": ALL,
        "test_a_sweep_is_measured_and_drawn": ALL,
        "test_both_sides_of_gymnax_play": ALL,
    },
    "cli/test_cli.py": {
        "test_interrupted_run_is_whole_and_says_where_it_is": ALL,
    },
    "cli/test_own_env.py": {
        "test_an_environment_of_ones_own_is_measured": ALL,
    },
    "cli/test_sweep.py": {
        "test_a_search_says_what_it_found_and_goes_on": ALL,
    },
    "config/test_config.py": {
        "test_preset_fits_its_environment": (
            "gymnax",
            *(f"jaxmarl/{name}" for name in MOST_OF_JAXMARL),
        ),
    },
    "config/test_printing.py": {
        "test_the_printed_file_is_the_preset_to_the_letter": (
            "gymnax--toml",
            "gymnax--yaml",
            *(f"jaxmarl-{name}-{form}" for name in MOST_OF_JAXMARL for form in ("toml", "yaml")),
        ),
    },
    "credit/test_advantages.py": {
        "test_cutting_a_run_into_rollouts_trains_every_decision_once": ("True",),
    },
    "deploy/test_policy.py": {
        "test_greedy_actions_are_those_of_the_rollout": (
            "central",
            "continuous",
            "cnn",
            "bounds",
        ),
        "test_an_exported_policy_acts_as_the_original": (
            "1-None-continuous",
            "1-None-cnn",
            "6-None-cnn",
            "6-key2-continuous",
            "6-None-continuous",
            "6-key2-cnn",
        ),
        "test_drawn_actions_are_those_of_the_rollout": (
            "continuous",
            "cnn",
            "bounds",
        ),
    },
    "devices/test_members.py": {
        "test_side_by_side_is_the_same_but_for_rounding": ("2",),
    },
    "devices/test_processes.py": {
        "test_a_signal_to_one_process_stops_all_with_a_checkpoint": ALL,
        "test_a_callback_that_fails_ends_all_with_what_was_learnt": ALL,
        "test_a_folder_that_is_renamed_while_several_train_is_told_by_all": ALL,
    },
    "devices/test_sharding.py": {
        "test_a_rollout_teaches_two_devices_what_it_teaches_one": (
            "memory",
            "banks",
            "league",
        ),
        "test_a_snapshot_waits_for_a_life_on_the_other_device": ALL,
        "test_a_run_on_more_devices_than_there_are_can_be_loaded": ALL,
        "test_parameters_stay_the_same_on_all_devices": ALL,
    },
    "envs/adapters/test_gymnasium.py": {
        "test_a_vector_is_gymnasium_s_own_vector_of_single_views": ("random_lives",),
    },
    "envs/adapters/test_gymnax.py": {
        "test_gymnax_waits_until_it_is_needed_and_warns_of_nothing": ALL,
    },
    "envs/adapters/test_host.py": {
        "test_a_run_repeats_in_any_number_of_processes": ALL,
        "test_processes_end_with_the_program": ALL,
        "test_a_parallel_environment_is_the_raw_one": (
            "mpe2.simple_crypto_v3-options2-3",
            "mpe2.simple_spread_v3-options1-2",
        ),
        "test_the_contract_is_kept_in_other_processes": ALL,
        "test_every_reward_is_accounted_for": ALL,
        "test_processes_end_with_close_and_with_their_pool": ALL,
    },
    "envs/adapters/test_jaxmarl.py": {
        "test_an_episode_is_jaxmarl_s_own_tick_for_tick": (
            "HeuristicEnemySMAX",
            "MPE_simple_spread_v3",
            "overcooked",
        ),
        "test_jaxmarl_waits_until_it_is_needed_and_prints_and_warns_of_nothing": ALL,
        "test_a_dead_unit_waits_and_earns_with_its_team": ALL,
        "test_a_battle_that_is_won_terminates_and_is_counted": ALL,
        "test_what_ends_by_time_alone_is_truncated_at_the_horizon": (
            "overcooked",
            "MPE_simple_spread_v3",
        ),
        "test_hanabi_terminates_and_one_player_acts_at_a_tick": ALL,
    },
    "envs/adapters/test_out_to_rllib.py": {
        "test_rllib_records_every_decision_once_with_all_that_it_earned": ("random_lives",),
    },
    "envs/adapters/test_pettingzoo.py": {
        "test_pettingzoo_s_own_checks_pass": (
            "shuttle_grid-auto",
            "multi_spaces-auto",
            "round_robin-auto",
            "press_your_luck-auto",
            "crypto-auto",
            "asymmetric_play-auto",
            "relay-auto",
            "basic-auto",
            "early_done-auto",
        ),
    },
    "envs/adapters/test_pgx.py": {
        "test_games_of_one_player_have_no_outcomes": ALL,
        "test_every_tick_is_pgx_s_own": (
            "2048",
            "minatar-breakout",
            "leduc_holdem",
            "kuhn_poker",
        ),
        "test_the_contract_is_kept": (
            "minatar-breakout",
            "leduc_holdem",
            "kuhn_poker",
        ),
        "test_the_mover_sees_the_observation_that_pgx_keeps": (
            "2048",
            "minatar-breakout",
            "leduc_holdem",
            "kuhn_poker",
        ),
    },
    "envs/test_asymmetric_play.py": {
        "test_random_episodes_equal_the_plain_game": ("reverse",),
    },
    "envs/test_check_env.py": {
        "test_registered_environments_keep_the_contract": (
            "shuttle_grid",
            "crypto",
            "multi_spaces",
            "early_done",
            "basic",
            "asymmetric_play",
            "round_robin",
            "relay",
            "flex_agents",
        ),
        "test_the_interpreter_plays_as_the_compiled_environment": ("shuttle_grid",),
    },
    "envs/test_core.py": {
        "test_step_batch_is_vmap_of_step_to_the_bit": (
            "shuttle_grid",
            "multi_spaces",
            "relay",
            "crypto",
            "early_done",
            "round_robin",
            "basic",
        ),
        "test_the_same_key_gives_the_same_episode_and_another_key_another": (
            "shuttle_grid",
            "multi_spaces",
            "relay",
            "crypto",
            "round_robin",
            "early_done",
            "basic",
        ),
    },
    "envs/test_crypto.py": {
        "test_random_episodes_equal_mpe2_tick_for_tick": ("True",),
    },
    "envs/test_shuttle_grid.py": {
        "test_agrees_with_the_oracle": ("kwargs1-150",),
        "test_held_cells_are_disjoint_and_features_bounded": ALL,
    },
    "envs/test_tic_tac_toe.py": {
        "test_step_batch_is_vmapped_step_with_resets": ("lose",),
    },
    "envs/test_toy.py": {
        "test_the_value_of_the_game_as_it_is_played_is_that_of_its_rules": ("best",),
    },
    "envs/test_toy_lives.py": {
        "test_flex_agents_agree_with_a_separate_simulation": (
            "length",
            "lives",
            "ticks_lived",
        ),
        "test_the_numbers_alive_are_distributed_as_in_a_separate_simulation": ALL,
    },
    "evaluation/test_evaluate.py": {
        "test_shuttles_beside_their_dispatchers": ALL,
        "test_a_seat_that_nobody_learns_is_left_out": ALL,
    },
    "evaluation/test_replay.py": {
        "test_the_interesting_ones_are_those_of_the_seat_that_is_watched": ALL,
    },
    "evaluation/test_trajectories.py": {
        "test_continuous_actions_are_as_the_environment_took_them": ALL,
    },
    "learner/test_learner.py": {
        "test_seeds_side_by_side_are_the_single_runs": ALL,
        "test_only_memory_recalls_the_cue": ALL,
        "test_a_min_gru_keeps_what_only_some_inputs_ask_for": ALL,
        "test_continuous_actions_of_unequal_width_improve": ALL,
        "test_numbers_never_compile_anew": ALL,
        "test_a_donated_state_may_be_used_up": ALL,
        "test_rewards_after_a_long_drought_are_scaled_within_bounds": ALL,
        "test_adaptive_penalty_moves_its_weight_in_training": ALL,
    },
    "learner/test_metrics.py": {
        "test_every_reward_is_accounted_for": (
            "few_act-2",
            "asymmetric_play-2",
            "shuttle_grid-1",
            "random_lives-1",
            "random_lives-2",
            "random_lives-5",
            "shuttle_grid-5",
            "tic_tac_toe-5",
            "tic_tac_toe-2",
            "shuttle_grid-2",
            "few_act-1",
            "crypto-5",
            "asymmetric_play-1",
            "crypto-1",
        ),
        "test_merging_adds_up": ALL,
    },
    "learner/test_on_accelerators.py": {
        "test_minibatches_of_a_tpu_are_all_rows": ALL,
        "test_a_tpu_trains_the_same": (
            "crypto-per_agent-16",
            "crypto-ensemble:3-16",
            "tic_tac_toe-shared-16",
            "tic_tac_toe-per_agent-16",
            "shuttle_grid-shared-20",
            "shuttle_grid-per_agent-20",
            "tic_tac_toe-ensemble:2-20",
            "crypto-per_agent-1",
        ),
        "test_a_gpu_trains_the_same": (
            "crypto-per_agent-16",
            "crypto-ensemble:3-16",
            "tic_tac_toe-shared-16",
            "flex_agents-shared-16",
            "shuttle_grid-per_agent-20",
            "tic_tac_toe-ensemble:2-20",
            "crypto-per_agent-1",
        ),
    },
    "networks/test_networks.py": {
        "test_bfloat16_trains": ALL,
        "test_modules_of_ones_own_are_trained": ("module1", "module2"),
        "test_initialisation_ends_on_a_machine_of_two_cores": ALL,
    },
    "networks/test_precision.py": {
        "test_every_product_of_a_step_is_rounded_and_summed_in_float32": ("gru", "separate"),
        "test_gradients_are_close_to_those_of_float32": ("separate",),
    },
    "policies/test_players.py": {
        "test_a_draw_is_held_for_a_life_and_made_anew_for_the_next": (
            "3",
            "7",
        ),
        "test_matchups_with_snapshots_make_the_next_rollout_play_them": ALL,
        "test_a_network_with_memory_and_one_without_train_side_by_side": ALL,
    },
    "ppo/test_minibatches.py": {
        "test_what_sleeping_rows_hold_reaches_no_minibatch": ("False",),
    },
    "ppo/test_ppo.py": {
        "test_shuffled_minibatches_are_a_replay_of_single_adam_steps": ("lstm",),
        "test_gradient_is_that_of_the_dense_loss": (
            "off-off",
            "squared_error-early_stop",
        ),
        "test_gradient_of_convolutions_is_that_of_the_dense_loss": ALL,
        "test_gradient_through_time_is_that_of_the_dense_loss": ("gru", "min_gru"),
        "test_every_policy_makes_the_same_number_of_steps": (
            "1",
            "32",
        ),
        "test_micro_batches_do_not_change_the_result": ("mlp",),
        "test_a_policy_without_rows_is_left_alone_to_the_bit": ("mlp",),
    },
    "rollout/test_lanes.py": {
        "test_what_is_learnt_from_lanes_is_what_is_learnt_from_all_slots": (
            "own discounts",
            "plain",
        ),
    },
    "rollout/test_rollout.py": {
        "test_ratio_is_one_before_the_first_step": (
            "mlp-everything",
            "lstm-everything",
            "mlp-shared",
            "lstm-shared",
            "lstm-one-actor",
            "lstm-few-act",
            "gru-everything",
            "min-gru-everything",
        ),
        "test_record_is_the_environments_log": (
            "per_agent-9",
            "shared-3",
        ),
        "test_memory_and_values_equal_an_explicit_loop": ("per_agent-9",),
    },
    "training/test_moved_folders.py": {
        "test_a_population_whose_folder_is_gone_is_saved_elsewhere": ALL,
    },
    "training/test_pbt.py": {
        "test_a_killed_group_goes_on_to_the_bit": ("3",),
        "test_a_group_that_a_callback_stops_goes_on_to_the_bit": ALL,
        "test_a_group_that_goes_on_for_longer_is_one_that_was_so_long": ALL,
        "test_a_random_search_copies_nobody": ALL,
        "test_the_best_member_s_numbers_are_a_file_that_trains_again": ALL,
        "test_a_member_that_diverges_becomes_a_copy": ALL,
        "test_a_member_at_fault_becomes_a_copy_of_one_that_is_not": ALL,
    },
    "training/test_resume.py": {
        "test_every_kind_of_run_goes_on_to_the_bit": (
            "league-2",
            "shuttle-lstm-2",
            "crypto-min-gru-2",
            "crypto-mlp-magnet-2",
            "archive-2",
        ),
    },
    "training/test_seeds.py": {
        "test_a_callback_stops_the_group_which_goes_on": ALL,
        "test_checkpoints_of_members_go_with_those_of_the_group": ALL,
        "test_a_killed_group_goes_on_to_the_bit": ("1",),
    },
    "training/test_snapshot_archive.py": {
        "test_a_bounded_pool_forgets_the_oldest": ALL,
        "test_a_snapshot_that_is_lost_does_not_end_a_run": ALL,
    },
    "training/test_time_split.py": {
        "test_a_run_is_the_same_to_the_bit_and_logs_the_share": ALL,
    },
    "training/test_until.py": {
        "test_conditions_are_kept_and_can_be_others_when_a_run_goes_on": ALL,
    },
    "training/test_trainer.py": {
        "test_a_faulty_rollout_leaves_the_league_alone": ALL,
        "test_one_environment": ALL,
        "test_a_pool_is_saved_with_the_policy_that_it_is_of": ALL,
        "test_fault_of_the_environment": (
            "1-reward-gave NaN in 'reward' of agent 'bob_0'-0.0",
            "2-features-gave an infinite value in 'features' of agent 'bob_0'-1000000000.0",
        ),
    },
    "sweeps/test_sweep.py": {
        "test_a_trial_is_as_good_as_the_mean_of_its_seeds": ALL,
        "test_a_measure_that_is_nowhere_ends_the_search": ALL,
        "test_a_pruned_trial_leaves_its_lane_to_the_next": ALL,
        "test_evaluations_are_what_is_compared_if_they_are_named": ALL,
        "test_structures_are_compiled_once_each": ALL,
    },
    "whole/test_ray_baseline.py": {
        "test_shuttle_grid_equals_its_twin_over_ten_thousand_ticks": ALL,
    },
    "whole/test_readme.py": {
        "test_what_rllib_users_ask_for_runs": ALL,
        "test_python_blocks_run": ALL,
    },
    "whole/test_rllib_setups.py": {
        "test_a_league_is_zero_sum_to_the_digit_in_rollouts_of_one_tick": ALL,
    },
    "whole/test_walls.py": {
        "test_random_ensembles_of_agents_of_unequal_spaces_train": ALL,
        "test_an_iteration_of_frozen_players_only_changes_nothing_and_does_no_harm": ALL,
    },
}


def names(path: str) -> Iterator[str]:
    """Names of the rare tests of a file, with their cases."""
    for test, cases in RARE.get(path, {}).items():
        yield from (f"{test}[{case}]" for case in cases) if cases else (test,)


def mark(items: list[pytest.Item], whole_files: bool) -> None:
    """Mark the rare ones among tests.

    Args:
        items: what was collected.
        whole_files: whether of every file all tests were.

    Raises:
        pytest.UsageError: the table names a test that a file does not have.
    """
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.partition("::")[0].removeprefix("tests/"), []).append(item)
    for path, found in by_file.items():
        wanted = set(names(path))
        missing = set(wanted)
        for item in found:
            hits = {item.name, item.name.partition("[")[0]} & wanted
            missing -= hits
            if hits:
                item.add_marker(pytest.mark.rare)
        if missing and whole_files:
            raise pytest.UsageError(f"tests/support/rare.py: no {sorted(missing)} in {path}")
