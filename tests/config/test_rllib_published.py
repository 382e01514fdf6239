"""RLlib's configurations of several versions of Ray, as people have written them."""

import copy
import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxmarl_ppo import Scripted
from jaxmarl_ppo.config.rllib.translate import (
    RLlibTranslationWarning,
    from_rllib_config,
    translate_rllib_config,
)
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP

DEFAULTS = json.loads(
    (Path(__file__).parents[1] / "support" / "rllib_former_defaults.json").read_text()
)


def class_named(name, *bases):
    """Make a class that is known by its name, as RLlib's are without Ray."""
    return type(name, bases, {})


@pytest.fixture
def defaults():
    """What `DEFAULT_CONFIG`, or a `PPOConfig` without changes, says in some version."""

    def copied(version):
        config = copy.deepcopy(DEFAULTS[version])
        for key in ("callbacks", "callbacks_class", "sample_collector"):
            if isinstance(config.get(key), str):
                config[key] = class_named(config[key])
        return config

    return copied


@pytest.mark.parametrize("version", DEFAULTS)
def test_defaults_of_a_former_version_are_not_worth_a_word(defaults, version):
    translation = translate_rllib_config(defaults(version), decisions_per_step=1.0)
    assert translation.lost == {}
    told = [note.partition(":")[0] for note in translation.notes if "no counterpart" not in note]
    assert told == ["minibatch_size"]  # 4000 are 31.25 times 128
    assert (version == "2.49.0") == (len(translation.notes) > 1)


@pytest.mark.parametrize("version", ["1.2.0", "2.12.0"])
def test_what_is_changed_in_a_former_version_is_told(defaults, version):
    config = defaults(version) | {"clip_rewards": True, "normalize_actions": 3, "memory": 7}
    translation = translate_rllib_config(config)
    assert {*translation.lost} == {"normalize_actions", "clip_rewards"}
    assert "memory=7 has no counterpart" in translation.notes


def test_former_defaults_are_told_where_they_are_no_defaults():
    config = {"clip_actions": True, "normalize_actions": False, "env_task_fn": None}
    assert {*translate_rllib_config(config).lost} == {*config}
    assert translate_rllib_config({"num_workers": 2, **config}).lost == {}


def test_an_ensemble_of_pairs_on_a_copy_of_the_defaults_of_ray_1_2(defaults):
    agents = ("eve_0", "bob_0", "alice_0")
    config = defaults("1.2.0")
    config["framework"] = "torch"
    config["log_level"] = "INFO"
    config["num_workers"] = 2
    config["num_cpus_per_worker"] = 1
    config["rollout_fragment_length"] = 100
    config["train_batch_size"] = 2000
    config["sgd_minibatch_size"] = 256
    config["entropy_coeff"] = 0.01
    config["lambda"] = 0.9
    config["vf_clip_param"] = 50
    config["num_sgd_iter"] = 15
    policies = {
        f"{agent}_{k}": (class_named("PPOTorchPolicy"), {"framework": "torch"})
        for agent in agents
        for k in range(3)
    }
    config["multiagent"] = {
        "policies": policies,
        "policy_mapping_fn": lambda agent_id: f"{agent_id}_{random.randint(0, 2)}",
        "policies_to_train": list(policies),
    }
    mapping = {agent: [f"{agent}_{k}" for k in range(3)] for agent in agents}
    with pytest.warns(UserWarning, match="log_level='INFO' has no counterpart"):
        translated = from_rllib_config(config, mapping=mapping)
    ppo = translated.default_ppo
    assert (ppo.gae_lambda, ppo.value_clip_eps, ppo.num_epochs) == (0.9, 50, 15)
    assert (ppo.entropy_coef, ppo.num_minibatches) == (0.01, 8)
    assert translated.num_envs * translated.num_steps == 2000
    assert translated.num_steps == 100 * 10
    assert translated.mapping == {agent: tuple(names) for agent, names in mapping.items()}


def test_six_shuttles_with_one_lstm_of_ray_2_49():
    config = {
        "env": class_named("Shuttles"),
        "env_config": {},
        "framework": "torch",
        "num_env_runners": 1,
        "rollout_fragment_length": 1,
        "num_gpus": 0,
        "gamma": 0.99,
        "train_batch_size": 256,
        "sgd_minibatch_size": 64,
        "model": {
            "use_lstm": True,
            "lstm_cell_size": 64,
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
        },
        "policies": {"shared_policy": (None, "a Box of 116", "Discrete(3)", {})},
        "policy_mapping_fn": lambda agent_id, *args, **kwargs: "shared_policy",
        "policies_to_train": ["shared_policy"],
        "batch_mode": "complete_episodes",
    }
    translation = translate_rllib_config(config, decisions_per_step=6.0, mapping="shared")
    assert translation.lost == {}
    network = translation.config.default_policy.network
    assert isinstance(network, LSTM)
    assert translation.config.default_policy.prev_action
    assert translation.config.default_policy.prev_reward
    assert network.lstm_size == 64
    assert translation.config.num_envs * translation.config.num_steps == 256
    assert translation.config.default_ppo.num_minibatches == 24  # of 64 decisions, six a step


def test_a_league_with_masks_and_a_frozen_half_of_ray_2_12(defaults):
    masked = class_named("TorchActionMaskRLM", class_named("PPOTorchRLModule"))
    config = defaults("2.12.0") | {
        "_enable_new_api_stack": True,
        "_disable_preprocessor_api": True,
        "policies": {"p1", "p2", "p3", "p4"},
        "policy_mapping_fn": lambda agent_id, episode, **kwargs: f"p{agent_id + 1}",
        "policies_to_train": ["p1", "p2"],
        "_rl_module_spec": {
            "module_specs": {
                name: {"module_class": masked, "observation_space": "a Dict"}
                for name in ("p1", "p2", "p3", "p4")
            }
        },
        "lr": 2e-5,
        "evaluation_interval": 20,
        "evaluation_parallel_to_training": True,
        "evaluation_num_workers": 1,
        "num_gpus": 1,
        "num_gpus_per_learner_worker": 1,
        "num_cpus_per_worker": 1,
        "num_cpus_for_local_worker": 1,
        "num_rollout_workers": 1,
        "num_envs_per_worker": 1,
        "env_runner_cls": class_named("MultiAgentEnvRunner"),
        "env": class_named("TicTacToe"),
        "env_config": {"observation_space": "a Dict"},
        "lambda_": 0.94,
        "clip_param": 0.007,
        "lr_schedule": [[0, 2e-5], [1e6, 1e-8]],
        "num_sgd_iter": 1,
        "sgd_minibatch_size": 2000,
        "train_batch_size": 5000,
        "kl_coeff": 0.0,
        "entropy_coeff": 0.03,
    }
    config["model"] = DEFAULTS["1.2.0"]["model"] | {
        "fcnet_hiddens": [2024, 2024, 1024, 1024],
        "fcnet_activation": "relu",
        "framestack": False,
    }
    mapping = {"x": ["p1", "p3"], "o": ["p2", "p4"]}
    with pytest.raises(ValueError, match=r"rl_module_spec.\*.module_class") as refused:
        from_rllib_config(config, mapping=mapping)
    assert "rl_module_spec.{p1, p2, p3, p4}.module_class=TorchActionMaskRLM: masks need none" in (
        str(refused.value)
    )
    ignore = ("rl_module_spec.*.module_class",)
    with pytest.warns(RLlibTranslationWarning, match="evaluation_interval=20 has no counterpart"):
        translated = from_rllib_config(config, mapping=mapping, ignore=ignore)
    network = translated.default_policy.network
    assert isinstance(network, MLP)
    assert (network.hidden_sizes, network.activation) == ((2024, 2024, 1024, 1024), "relu")
    assert translated.default_ppo.clip_eps == 0.007
    assert translated.default_ppo.gae_lambda == 0.94
    specs: Any = translated.policies
    frozen = [name for name in specs if not specs[name].trainable]
    assert frozen == ["p3", "p4"]


def test_cartpoles_with_a_model_and_a_discount_for_each_policy():
    policies = {
        f"policy_{i}": {
            "config": {"model": {"custom_model": ["model1", "model2"][i % 2]}, "gamma": gamma}
        }
        for i, gamma in enumerate((0.95, 0.99, 0.95, 0.99))
    }
    config = {
        "env": class_named("MultiAgentCartPole"),
        "env_config": {"num_agents": 4},
        "num_gpus": 0,
        "num_sgd_iter": 10,
        "multiagent": {
            "policies": policies,
            "policy_mapping_fn": lambda agent_id, episode, worker, **kwargs: random.choice(
                [*policies]
            ),
        },
        "framework": "torch",
    }
    mapping = {f"agent_{i}": [*policies] for i in range(4)}
    with pytest.raises(ValueError, match=r"policies.\*.model.custom_model") as refused:
        from_rllib_config(config, mapping=mapping)
    assert "policies.{policy_0, policy_2}.model.custom_model='model1'" in str(refused.value)
    with pytest.warns(RLlibTranslationWarning, match="without policies.{policy_1, policy_3}.model"):
        translated = from_rllib_config(
            config, mapping=mapping, ignore=("policies.*.model.custom_model",)
        )
    ppo = translated.default_ppo
    specs: Any = translated.policies
    own = [specs[name].ppo if name in specs else ppo for name in policies]
    assert [spec.gamma for spec in own] == [0.95, 0.99, 0.95, 0.99]
    assert ppo.num_epochs == 10


def test_policies_to_train_that_are_not_there_are_named():
    config = {
        "env": "ExampleEnv",
        "num_gpus": 0,
        "num_workers": 1,
        "multiagent": {
            "policies": {"main": {}, "random": {"policy_class": class_named("RandomPolicy")}},
            "policy_mapping_fn": lambda agent_id, episode, worker, **kwargs: "main0",
            "policies_to_train": ["main0", "main1"],
        },
        "framework": "torch",
    }
    mapping = {"agent0": "main", "agent1": "random"}
    with pytest.raises(ValueError, match=r"policies_to_train .*main0.*main"):
        translate_rllib_config(config, mapping=mapping)
    config["multiagent"]["policies_to_train"] = ["main"]
    translation = translate_rllib_config(config, mapping=mapping)
    assert translation.config.policies["random"] == Scripted("random")


def test_no_policies_in_the_multiagent_table_are_one_for_all():
    translation = translate_rllib_config(
        {"multiagent": {"policies": {}, "policy_mapping_fn": None}}
    )
    assert translation.config.mapping == "shared"


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
        "env_runner_cls": class_named("MultiAgentEnvRunner"),
        "train_batch_size_per_learner": 100,
    }
    translation = translate_rllib_config(config)
    assert translation.lost == {}
    assert translation.config.num_envs * translation.config.num_steps == 200


def test_the_minibatch_of_ray_2_10_is_under_either_name(defaults):
    config = defaults("2.12.0") | {"train_batch_size": 4000}
    del config["sgd_minibatch_size"]
    config["mini_batch_size_per_learner"] = 1000
    assert translate_rllib_config(config).config.default_ppo.num_minibatches == 4


@pytest.mark.parametrize(
    "name", ["PPOTorchRLModule", "ActionMaskingTorchRLModule", "DefaultPPOTorchRLModule"]
)
def test_rllibs_own_modules_are_recognised_by_name(name):
    modules = {
        "p1": {"module_class": class_named(name)},
        "p2": {"module_class": "RandomRLModule"},
    }
    spec = {"rl_module_spec": {"rl_module_specs": modules}}
    translation = translate_rllib_config(spec, mapping={"x": "p1", "o": "p2"})
    assert translation.lost == {}
    assert translation.config.policies["p2"] == Scripted("random")


def test_one_module_may_stand_for_all_policies():
    one = SimpleNamespace(model_config_dict={"fcnet_hiddens": [7]})  # no dict, which is by policy
    spec = {"module_specs": one}
    config = {"policies": {"p1", "p2"}, "rl_module_spec": spec}
    translation = translate_rllib_config(config, mapping={"x": "p1", "o": "p2"})
    specs: Any = translation.config.policies
    assert [specs[name].network.hidden_sizes for name in ("p1", "p2")] == [(7,), (7,)]


def test_a_class_of_ones_own_is_told():
    config = {"callbacks": class_named("Mine"), "env_runner_cls": class_named("Mine")}
    assert {*translate_rllib_config(config).lost} == {*config}


def test_what_is_true_of_several_policies_is_told_once():
    policies = {name: (None, {"lr": lr}) for name, lr in (("p1", 0.1), ("p2", 0.2))}
    mapping = {"x": "p1", "o": "p2"}
    notes = translate_rllib_config({"policies": policies}, mapping=mapping).notes
    assert len([note for note in notes if "{p1, p2}" in note]) == 2
    assert not [note for note in notes if "policies.p1" in note]


def test_what_ends_a_run_of_rllib_ends_one_here():
    config = {"train_batch_size": 1000, "num_workers": 1}
    stop = {"episode_reward_mean": 150, "timesteps_total": 100000, "training_iteration": 50}
    told = translate_rllib_config(config, stop=stop).config
    assert told.until == ("all.return_mean >= 150",)
    assert told.total_env_steps == 50 * 1000
    assert told.max_minutes is None
    present = {
        "env_runners": {"episode_return_min": -0.5, "module_episode_returns_mean": {"p1": 2.0}},
        "env_runners/agent_episode_returns_mean/x": 1.0,
        "num_env_steps_sampled_lifetime": 3000,
        "time_total_s": 90,
    }
    told = translate_rllib_config(config, stop=present).config
    assert told.until == (
        "all.return_min >= -0.5",
        "policies.p1.return_mean >= 2.0",
        "agents.x.return_mean >= 1.0",
    )
    assert (told.total_env_steps, told.max_minutes) == (3000, 1.5)


def test_a_run_of_rllib_without_a_length_has_none_here():
    assert translate_rllib_config({}).config.total_env_steps == 1_000_000
    for stop in ({}, {"timesteps_total": 1e15}, {"episode_reward_mean": 200}):
        told = translate_rllib_config({}, stop=stop)
        assert told.config.total_env_steps == 10**15
        assert told.lost == {}
    said = translate_rllib_config({}, stop={"timesteps_total": 9}, total_env_steps=5)
    assert said.config.total_env_steps == 5


def test_what_ends_nothing_here_is_told():
    lost = translate_rllib_config({}, stop={"episodes_total": 5, "info": {"x": 1}}).lost
    assert [*lost] == ["stop.episodes_total", "stop.info/x"]
    cases: Any = (
        (5, "stop must be a table from a metric to a number, got 5"),
        ({"timesteps_total": "9"}, "stop.timesteps_total must be a number, got '9'"),
        ({"training_iteration": 0}, "stop.training_iteration must be a number above 0, got 0"),
        ({"episode_reward_mean": math.inf}, "an entry of until must be .* finite number"),
    )
    for stop, message in cases:
        with pytest.raises(ValueError, match=message):
            translate_rllib_config({}, stop=stop)
