"""RLlib's configurations of several versions of Ray, as they are written."""

import pytest

from jaxmarl_ppo.config.policies import Scripted
from jaxmarl_ppo.config.rllib.translate import translate_rllib_config


def stock(name):
    return type(name, (), {})


def test_the_defaults_of_ray_1_with_an_ensemble_of_pairs():
    own = {f"{who}_{k}": (stock("PPOTorchPolicy"), {}) for who in ("a", "b") for k in range(3)}
    config = {
        "callbacks": stock("DefaultCallbacks"),
        "clip_actions": True,
        "normalize_actions": False,
        "env_task_fn": None,
        "input_evaluation": ["is", "wis"],
        "logger_config": None,
        "sample_async": False,
        "_use_trajectory_view_api": True,
        "exploration_config": {"type": "StochasticSampling"},
        "framework": "torch",
        "num_workers": 2,
        "num_cpus_per_worker": 1,
        "rollout_fragment_length": 100,
        "train_batch_size": 2000,
        "sgd_minibatch_size": 256,
        "entropy_coeff": 0.01,
        "lambda": 0.9,
        "vf_clip_param": 50,
        "num_sgd_iter": 15,
        "multiagent": {"policies": own, "policy_mapping_fn": len, "replay_mode": "independent"},
    }
    mapping = {"a": ["a_0", "a_1", "a_2"], "b": ["b_0", "b_1", "b_2"]}
    translation = translate_rllib_config(config, mapping=mapping)
    assert translation.lost == {}
    assert translation.config.default_ppo.gae_lambda == 0.9
    assert translation.config.num_envs * translation.config.num_steps == 2000


def test_no_policies_in_the_multiagent_table_are_one_for_all():
    config = translate_rllib_config({"multiagent": {"policies": {}, "policy_mapping_fn": None}})
    assert config.config.mapping == "shared"


def test_names_of_ray_2_10_are_understood():
    config = {
        "num_learner_workers": 2,
        "num_gpus_per_learner_worker": 1,
        "num_cpus_per_learner_worker": 1,
        "num_cpus_for_local_worker": 2,
        "num_rollout_workers": 1,
        "worker_restore_timeout_s": 5.0,
        "max_num_worker_restarts": 3,
        "_enable_learner_api": True,
        "env_runner_cls": stock("MultiAgentEnvRunner"),
        "train_batch_size_per_learner": 100,
    }
    translation = translate_rllib_config(config)
    assert translation.lost == {}
    assert translation.config.num_envs * translation.config.num_steps == 200


@pytest.mark.parametrize(
    "name", ["PPOTorchRLModule", "ActionMaskingTorchRLModule", "DefaultPPOTorchRLModule"]
)
def test_rllibs_own_modules_are_recognised_by_name(name):
    modules = {"p1": {"module_class": stock(name)}, "p2": {"module_class": "RandomRLModule"}}
    spec = {"rl_module_spec": {"rl_module_specs": modules}}
    translation = translate_rllib_config(spec, mapping={"x": "p1", "o": "p2"})
    assert translation.lost == {}
    assert translation.config.policies["p2"] == Scripted("random")


def test_a_class_of_ones_own_is_told():
    config = {"callbacks": stock("Mine"), "env_runner_cls": stock("Mine")}
    assert {*translate_rllib_config(config).lost} == {*config}


def test_a_league_with_masks_of_ray_2_12():
    module = {"module_class": stock("ActionMaskingTorchRLModule")}
    config = {
        "_enable_new_api_stack": True,
        "_disable_preprocessor_api": True,
        "rl_module_spec": {"rl_module_specs": dict.fromkeys(("p1", "p2", "p3", "p4"), module)},
        "policies": {"p1", "p2", "p3", "p4"},
        "policy_mapping_fn": len,
        "policies_to_train": ["p1", "p2"],
        "evaluation_interval": 20,
        "evaluation_parallel_to_training": True,
        "evaluation_num_workers": 1,
        "num_gpus_per_learner_worker": 1,
        "num_cpus_per_worker": 1,
        "num_cpus_for_local_worker": 1,
        "num_rollout_workers": 1,
        "num_envs_per_worker": 1,
        "env_runner_cls": stock("MultiAgentEnvRunner"),
    }
    mapping = {"x": ["p1", "p3"], "o": ["p2", "p4"]}
    translation = translate_rllib_config(config, mapping=mapping)
    assert translation.lost == {}
    policies = translation.config.policies
    assert [name for name in policies if not policies[name].trainable] == ["p3", "p4"]


def test_what_is_true_of_several_policies_is_told_once():
    policies = {name: (None, {"lr": lr}) for name, lr in (("p1", 0.1), ("p2", 0.2))}
    mapping = {"x": "p1", "o": "p2"}
    notes = translate_rllib_config({"policies": policies}, mapping=mapping).notes
    assert len([note for note in notes if "{p1, p2}" in note]) == 2
    assert not [note for note in notes if "policies.p1" in note]
