"""RLlib's configurations translated; with Ray installed, RLlib itself is the oracle."""

import contextlib
import dataclasses
import importlib
import json
import math
import subprocess
import sys
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_ppo import (
    Ensemble,
    MappingFunction,
    Matchups,
    PolicySpec,
    PPOConfig,
    Scripted,
    TrainConfig,
    preset,
)
from jaxmarl_ppo.cli.train import parse_train
from jaxmarl_ppo.config.as_json import config_from_dict, config_to_dict
from jaxmarl_ppo.config.rllib.defaults import is_default
from jaxmarl_ppo.config.rllib.former import FORMER_MACHINERY
from jaxmarl_ppo.config.rllib.keys import (
    INTERNAL,
    LOST,
    MODEL,
    MODEL_LOST,
    MODEL_MACHINERY,
    RENAMED,
    TRANSLATED,
)
from jaxmarl_ppo.config.rllib.machinery import MACHINERY
from jaxmarl_ppo.config.rllib.translate import (
    RLlibTranslationWarning,
    from_rllib_config,
    rllib_ppo_defaults,
    translate_rllib_config,
)
from jaxmarl_ppo.learner.build import make_hyperparams, make_learner
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP
from jaxmarl_ppo.ppo.loss import UpdateShape, value_loss

# A batch that needs no rounding and a count that is said: nothing is left to tell.
EXACT = {"train_batch_size": 4096, "num_env_runners": 4}
TWO = {"policies": {"p1", "p2"}, "policy_mapping_fn": lambda agent_id, episode, **kwargs: "p1"}
SEATS = {"x": "p1", "o": "p2"}


def exact(config=(), **kwargs):
    """A configuration that is to be translated without a word."""
    rates = {"decisions_per_step": 1.0, **kwargs}
    return from_rllib_config({**EXACT, **dict(config)}, **rates)


def notes(config=(), **kwargs):
    rates = {"decisions_per_step": 1.0, **kwargs}
    return translate_rllib_config({**EXACT, **dict(config)}, **rates).notes


def lost(config, **kwargs):
    return dict(translate_rllib_config({**EXACT, **config}, **kwargs).lost)


# --- numbers --------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_algorithm():
    config = rllib_ppo_defaults()
    assert (config.num_envs, config.num_steps, config.mapping) == (2, 2000, "shared")
    assert config.default_policy.network == MLP(hidden_sizes=(256, 256), separate_critic=True)
    ppo = config.default_ppo
    assert (ppo.learning_rate, ppo.gamma, ppo.gae_lambda) == (5e-5, 0.99, 1.0)
    assert (ppo.num_epochs, ppo.num_minibatches) == (30, 31)  # 4000 / 128 = 31.25
    assert (ppo.clip_eps, ppo.value_clip, ppo.value_clip_eps) == (0.3, "squared_error", 10.0)
    assert (ppo.value_coef, ppo.entropy_coef, ppo.max_grad_norm) == (2.0, 0.0, None)
    assert (ppo.kl_control, ppo.initial_kl_coef, ppo.target_kl) == ("penalty", 0.2, 0.01)
    assert ppo.adam_eps == 1e-8


def test_defaults_are_a_preset_of_every_environment():
    assert preset("crypto", "rllib").config == rllib_ppo_defaults()
    assert preset("gymnax", "rllib").env_kwargs == preset("gymnax").env_kwargs
    env, params = jaxmarl_envs.make("tic_tac_toe")
    make_learner(env, params, preset("tic_tac_toe", "rllib").config)


def test_the_command_line_knows_the_preset():
    options = parse_train(["tic_tac_toe", "--preset", "rllib", "--num-envs", "16"])
    assert options.run.config == dataclasses.replace(rllib_ppo_defaults(), num_envs=16)


def test_what_is_exact_needs_no_word():
    config = exact({"gamma": 0.9, "lambda": 0.8, "clip_param": 0.1, "seed": 7, "grad_clip": 40.0})
    assert (
        config.default_ppo.gamma,
        config.default_ppo.gae_lambda,
        config.default_ppo.clip_eps,
    ) == (0.9, 0.8, 0.1)
    assert (config.seed, config.default_ppo.max_grad_norm) == (7, 40.0)
    assert notes() == ()


@pytest.mark.parametrize(
    ("former", "present", "value"),
    [
        ("lambda_", "lambda", 0.5),
        ("num_sgd_iter", "num_epochs", 3),
        ("sgd_minibatch_size", "minibatch_size", 64),
        ("num_workers", "num_env_runners", 8),
        ("num_envs_per_worker", "num_envs_per_env_runner", 4),
        ("train_batch_size_per_learner", "_train_batch_size_per_learner", 1024),
    ],
)
def test_former_names_mean_the_same(former, present, value):
    config = {key: size for key, size in EXACT.items() if key != present}
    said = {"decisions_per_step": 1.0}
    translated = from_rllib_config({**config, former: value}, **said)
    assert translated == from_rllib_config({**config, present: value}, **said)
    assert translated != from_rllib_config(config, **said)


def test_one_setting_under_two_names_must_agree():
    assert exact({"num_sgd_iter": 5, "num_epochs": 5}).default_ppo.num_epochs == 5
    with pytest.raises(ValueError, match="num_sgd_iter=5 and num_epochs=6 are the same setting"):
        exact({"num_sgd_iter": 5, "num_epochs": 6})


def test_the_value_loss_is_rllibs():
    ppo = exact({"vf_clip_param": 2.0, "vf_loss_coeff": 0.7}).default_ppo
    value, target = jnp.array([0.0, 1.0, -3.0]), jnp.array([1.0, 3.0, 0.0])
    shape = UpdateShape(1, 1, 1, ppo.value_clip, ppo.kl_control, ppo.adam_eps)
    ours = ppo.value_coef * value_loss(value, value, target, ppo.value_clip_eps, shape)
    theirs = 0.7 * np.clip((np.asarray(value) - np.asarray(target)) ** 2, 0.0, 2.0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("limit", [None, float("inf")])
def test_no_value_clip(limit):
    assert exact({"vf_clip_param": limit}).default_ppo.value_clip == "off"


@pytest.mark.parametrize(
    "off", [{"use_kl_loss": False}, {"kl_coeff": 0.0}, {"num_epochs": 1, "minibatch_size": None}]
)
def test_no_kl_penalty(off):
    ppo = exact(off).default_ppo
    assert (ppo.kl_control, ppo.initial_kl_coef, ppo.target_kl) == ("off", None, None)


def test_schedules_in_environment_steps():
    points = [[0, 1e-3], [1000, 5e-4], [10_000, 0.0]]
    ppo = exact({"lr": points, "entropy_coeff": [[0, 0.1], [500, 0.0]]}).default_ppo
    assert ppo.learning_rate == ((0.0, 1e-3), (1000.0, 5e-4), (10_000.0, 0.0))
    assert ppo.entropy_coef == ((0.0, 0.1), (500.0, 0.0))


def test_former_schedules_count_the_decisions_of_all():
    config = {"lr_schedule": [[0, 1e-3], [600, 0.0]], **TWO}
    said = {"mapping": SEATS, "decisions_per_step": {"p1": 1.0, "p2": 2.0}}
    assert exact(config, **said).default_ppo.learning_rate == ((0.0, 1e-3), (200.0, 0.0))
    (note,) = [
        note for note in notes(config, mapping=SEATS, decisions_per_step=None) if "lr" in note
    ]
    assert "decisions_per_step would convert them" in note


def test_a_jump_of_a_schedule_falls_between_two_steps():
    learning_rate = exact(
        {"lr": [[0, 1.0], [100, 0.5], [100, 0.1], [101, 0.2], [101, 0]]}
    ).default_ppo
    assert learning_rate.learning_rate == ((0, 1.0), (99, 0.505), (100, 0.1), (101, 0.0))
    assert exact({"lr": [[0, 1.0], [0, 0.5]]}).default_ppo.learning_rate == ((0, 0.5),)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"lr": {"grid_search": [1e-3]}},
            "lr must be a number .*of a search space, pick one .*, got",
        ),
        ({"gamma": True}, "gamma must be a number; .*, got True"),
        ({"rollout_fragment_length": 0.5}, "rollout_fragment_length must be a whole number"),
        ({"multiagent": 3}, "multiagent must be a table of settings, got 3"),
        ({"policies": {"p1": (None,) * 3}}, r"policies.p1 must be a PolicySpec, .* got \(None,"),
        ({"policies": {"p1": (None, 3)}}, r"policies.p1 must be a PolicySpec, .* got {"),
        ({"kl_target": -1}, r"target_kl must .* \(RLlib's kl_target=-1\)"),
        ({"train_batch_size": 10**400}, "train_batch_size must be a number"),
        ({"algorithm_config_overrides_per_module": {"p1": 3}}, "must be a table of settings by"),
        ({"rl_module_spec": {"model_config": 3}}, "rl_module_spec must be an RLModuleSpec"),
        ({"gamma": 1.5}, "RLlib's configuration is refused: gamma must"),
        ({"lr": [[10, 1.0], [5, 0.0]]}, r"the steps of lr must ascend, got \[10, 5\]"),
        ({"minibatch_size": 0}, "minibatch_size must be positive and finite, got 0"),
        ({"minibatch_size": 1e-300}, "minibatch_size must make at most 2147483647 minibatches"),
        ({"train_batch_size_per_learner": 0}, "train_batch_size_per_learner must be positive"),
        ({"num_envs_per_worker": 0}, "num_envs_per_env_runner must be positive"),
        ({"rollout_fragment_length": "long"}, "rollout_fragment_length must be a whole number"),
        ({"lr": [1e-3, 1e-4]}, "lr must be a number or a list of pairs"),
        ({"count_steps_by": "steps"}, "count_steps_by must be 'env_steps' or 'agent_steps'"),
        (
            {"num_epochs": 2, "policies_to_train": ["p9"]},
            "policies_to_train names p9; the policies",
        ),
    ],
)
def test_values_that_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        exact(config)


def test_no_environments_are_refused():
    with pytest.raises(ValueError, match="num_envs must be positive and finite, got 0"):
        exact(num_envs=0)


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "num_envs", "num_steps"),
    [
        ({"num_env_runners": 4, "num_envs_per_env_runner": 8}, 32, 128),
        ({"num_env_runners": 0, "num_envs_per_env_runner": 8}, 8, 512),  # 0: the driver itself
        ({"num_env_runners": 4, "rollout_fragment_length": 256}, 4, 1024),  # four rounds
        ({"_train_batch_size_per_learner": 2048, "num_learners": 2}, 4, 1024),
        ({"train_batch_size_per_learner": 2048, "train_batch_size": 1}, 4, 512),
    ],
)
def test_the_batch_of_an_iteration(config, num_envs, num_steps):
    translated = exact(config)
    assert (translated.num_envs, translated.num_steps) == (num_envs, num_steps)


def test_a_batch_that_cannot_be_kept_is_told():
    (note, _) = notes({"rollout_fragment_length": 1000})
    assert note == (
        "train_batch_size: 4096 environment steps per iteration become 8000, 4 environments times "
        "2000 steps"
    )


def test_more_environments_keep_the_batch():
    config = exact({"rollout_fragment_length": 7}, num_envs=64)
    assert (config.num_envs, config.num_steps) == (64, 64)


def test_agents_steps_become_environment_steps():
    config = {"count_steps_by": "agent_steps", "train_batch_size": 4096, **TWO}
    said = {"mapping": SEATS, "decisions_per_step": {"p1": 0.5, "p2": 1.5}}
    translated = exact({**config, "minibatch_size": 512}, **said)
    assert translated.num_envs * translated.num_steps == 2048
    assert translated.default_ppo.num_minibatches == 2  # of p1: 1,024 decisions
    assert translated.policies["p2"].ppo.num_minibatches == 6
    assert "p1" not in translated.policies
    with pytest.raises(ValueError, match="'agent_steps' needs decisions_per_step"):
        exact(config, mapping=SEATS, decisions_per_step=None)


def test_minibatches_count_the_decisions_of_a_policy():
    assert exact(decisions_per_step=2.0).default_ppo.num_minibatches == 64
    assert exact({"minibatch_size": 128, "num_learners": 2}).default_ppo.num_minibatches == 16
    assert exact({"minibatch_size": None}).default_ppo.num_minibatches == 1
    assert notes({"minibatch_size": 1000}) == (
        "minibatch_size: 4096 decisions of default_policy per iteration are 4.096 minibatches of "
        "1000; taken as 4 of 1024",
    )


def test_what_was_not_said_about_decisions_is_told():
    assert notes(decisions_per_step=None)[0].startswith("decisions_per_step: every policy is taken")
    assert notes({"minibatch_size": None}, decisions_per_step=None) == ()
    with pytest.raises(ValueError, match="must name the policies default_policy, got p1"):
        exact(decisions_per_step={"p1": 1.0})
    with pytest.raises(ValueError, match="decisions_per_step must be positive"):
        exact(decisions_per_step=0.0)


# --- networks -------------------------------------------------------------------------------------


def old(**model):
    """Of the former API stack, which heeds `model`."""
    return {"model": model, "enable_rl_module_and_learner": False}


def new(**model):
    return {"model_config": model}


@pytest.mark.parametrize("stack", [old, new])
def test_dense_networks(stack):
    config = stack(fcnet_hiddens=[32, 16], fcnet_activation="swish", vf_share_layers=True)
    assert exact(config).default_policy.network == MLP(hidden_sizes=(32, 16), activation="silu")


def test_layers_of_heads():
    heads = {"head_fcnet_hiddens": [8], "head_fcnet_activation": "tanh"}
    lstm = exact(new(use_lstm=True, lstm_cell_size=4, fcnet_hiddens=[16], **heads))
    assert lstm.default_policy.network == LSTM(
        hidden_sizes=(16,), head_sizes=(8,), lstm_size=4, separate_critic=True
    )
    alone = exact(new(fcnet_hiddens=[], head_fcnet_hiddens=[8]))
    assert alone.default_policy.network == MLP(
        hidden_sizes=(), head_sizes=(8,), activation="relu", separate_critic=True
    )
    told = "valid: the fcnet_activation, since all layers of a network have one"
    for given, value in (({}, "relu"), ({"head_fcnet_activation": "linear"}, "linear")):
        assert lost(new(head_fcnet_hiddens=[8], **given)) == {
            "model.head_fcnet_activation": f"model.head_fcnet_activation={value!r}: {told}"
        }
    odd = new(fcnet_hiddens=[], head_fcnet_hiddens=[8], head_fcnet_activation="linear")
    assert list(lost(odd)) == ["model.head_fcnet_activation"]
    own = {"model": {"head_fcnet_hiddens": [8]}}
    policies = {"p1": {"config": own}, "p2": {"config": {"gamma": 0.5}}}
    assert list(lost({"policies": policies}, mapping={"a": "p1", "b": "p2"})) == [
        "policies.p1.model.head_fcnet_activation"
    ]
    assert notes(new(head_fcnet_activation="silu")) == (
        "model.head_fcnet_activation='silu' has no effect without head_fcnet_hiddens",
    )


@pytest.mark.parametrize(("stack", "separate"), [(old, False), (new, True)])
def test_lstm(stack, separate):
    config = exact(stack(use_lstm=True, lstm_cell_size=32, max_seq_len=8, fcnet_hiddens=[16]))
    network = LSTM(hidden_sizes=(16,), lstm_size=32, separate_critic=separate)
    assert (config.default_policy.network, config.default_ppo.bptt_length) == (network, 8)


def test_previous_inputs_of_an_lstm():
    flags = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    policy = exact(old(use_lstm=True, **flags)).default_policy
    assert (policy.prev_action, policy.prev_reward) == (True, True)
    assert notes(new(use_lstm=True, **flags)) == tuple(
        f"model.{flag} is honoured here; RLlib's new API stack ignores it" for flag in flags
    )
    assert notes(old(**flags, max_seq_len=4)) == tuple(
        f"model.{text} has no effect without use_lstm"
        for text in ("lstm_use_prev_action=True", "lstm_use_prev_reward=True", "max_seq_len=4")
    )


def test_an_lstm_that_rllib_would_not_train_is_trained_and_told():
    with pytest.warns(RLlibTranslationWarning, match="model: use_lstm is honoured here") as caught:
        config = exact({"model": {"use_lstm": True}})
    assert isinstance(config.default_policy.network, LSTM)
    assert caught[0].filename == __file__


def test_normalised_observations():
    assert exact({"observation_filter": "MeanStdFilter"}).default_policy.normalise_observations
    assert (
        "valid: NoFilter, MeanStdFilter"
        in lost({"observation_filter": "Mine"})["observation_filter"]
    )


# --- policies -------------------------------------------------------------------------------------


def test_several_policies_need_a_mapping():
    with pytest.raises(ValueError, match=r"policy_mapping_fn is Python code.* among p1, p2"):
        exact(TWO)
    assert exact(TWO, mapping=SEATS).mapping == SEATS


def test_one_policy_needs_none():
    assert exact({"policies": ["main"]}).mapping == {"*": "main"}


def test_a_mapping_of_ones_own_to_the_default_policy():
    assert exact(mapping="per_agent") == dataclasses.replace(exact(), mapping="per_agent")


@pytest.mark.parametrize(
    "mapping",
    [
        {"x": ["p1", "p7"], "o": {"p2": 1.0}},
        Matchups(({"x": "p1", "o": "p7"},)),
        MappingFunction(lambda key, draw: jnp.zeros(2, int), ("p1", "p7")),
    ],
)
def test_a_mapping_to_unknown_policies_is_refused(mapping):
    with pytest.raises(ValueError, match=r"mapping= names p7; the policies .* are p1, p2"):
        exact(TWO, mapping=mapping)


def test_a_policy_that_nobody_plays_is_left_out():
    config = {**TWO, "policies_to_train": ["p1"]}
    assert notes(config, mapping={"*": "p1"}) == (
        "policies.p2: no agent is ever played by it; left out",
    )
    assert translate_rllib_config(config, mapping={"*": "p1"}).config.policies == {}
    assert exact(TWO, mapping=Ensemble(2)).mapping == Ensemble(2)  # its names are the agents'


@pytest.mark.parametrize("given", [["p1"], ("p1",), {"p1"}, lambda policy, batch: policy == "p1"])
def test_policies_that_are_not_trained(given):
    config = exact({**TWO, "policies_to_train": given}, mapping=SEATS)
    assert set(config.policies) == {"p2"}
    assert not config.policies["p2"].trainable
    env, params = jaxmarl_envs.make("tic_tac_toe")
    assert make_learner(env, params, config).num_envs == 4


def test_a_choice_of_policies_by_the_batch_is_lost():
    found = lost({**TWO, "policies_to_train": lambda policy, batch: batch.count}, mapping=SEATS)
    assert "list the policies to train" in found["policies_to_train"]


def test_settings_of_single_policies():
    specs = {"p1": (None, None, None, {"gamma": 0.5, "lr": 5e-5}), "p2": None}
    config = {"policies": specs, "enable_rl_module_and_learner": False}
    translated = exact(config, mapping=SEATS)
    assert set(translated.policies) == {"p1"}
    own = translated.policies["p1"].ppo
    assert own == dataclasses.replace(translated.default_ppo, gamma=0.5)


def test_settings_that_rllib_has_for_all_alone_are_told():
    specs = {"p1": {"config": {"lr": 0.1}}, "p2": {}}
    overrides = {"p2": {"lambda_": 0.5, "clip_param": 0.1}}
    config = {"policies": specs, "algorithm_config_overrides_per_module": overrides}
    assert notes(config, mapping=SEATS) == (
        "policies.p1.config: lr is honoured here; RLlib's new API stack ignores a PolicySpec's "
        "config",
        "policies.p2: its own lambda is honoured here; RLlib's learner has one for all",
    )
    specs = translate_rllib_config(config, mapping=SEATS, decisions_per_step=1.0).config.policies
    assert specs["p1"].ppo.learning_rate == 0.1
    assert (specs["p2"].ppo.gae_lambda, specs["p2"].ppo.clip_eps) == (0.5, 0.1)


def test_networks_of_single_policies():
    model = {"use_lstm": True, "lstm_cell_size": 8}
    config = {"policies": {"p1": {"config": {"model": model}}, "p2": {}}, **old(fcnet_hiddens=[4])}
    translated = exact(config, mapping=SEATS)
    assert translated.default_policy.network == MLP(hidden_sizes=(4,), separate_critic=True)
    assert translated.policies["p1"].network == LSTM(hidden_sizes=(4,), lstm_size=8)
    assert translated.policies["p1"].ppo.bptt_length == 20
    assert translated.default_ppo.bptt_length is None


def test_random_policies_and_others():
    specs = {"p1": {"policy_class": "ray.rllib.RandomPolicy"}, "p2": {"policy_class": "Mine"}}
    translation = translate_rllib_config({"policies": specs}, mapping=SEATS)
    assert translation.config.policies == {"p1": Scripted("random")}
    assert list(translation.lost) == ["policies.p2.policy_class"]


def test_what_no_single_policy_can_have_is_lost():
    specs = {"p1": {"config": {"train_batch_size": 10, "gama": 0.5}}, "p2": {}}
    found = lost({"policies": specs, **old()}, mapping=SEATS)
    assert set(found) == {"policies.p1.train_batch_size", "policies.p1.gama"}
    overrides = {"algorithm_config_overrides_per_module": {"p3": {"lr": 0.1}}}
    assert lost({**TWO, **overrides}, mapping=SEATS) == {
        "policies.p3": "policies.p3={'lr': 0.1}: there is no such policy"
    }


def test_settings_of_a_frozen_policy_are_told():
    config = {"policies": {"p1": {}, "p2": {"config": {"lr": 0.1}}}, **old()}
    told = notes({**config, "policies_to_train": ["p1"]}, mapping=SEATS)
    assert told == ("policies.p2: lr has no effect on a policy that is not trained",)


def test_minibatches_and_clipping_of_single_policies():
    own = {"minibatch_size": 1024, "grad_clip": 1.0, "grad_clip_by": "norm"}
    config = {"policies": {"p1": {}, "p2": {"config": own}}, **old()}
    translation = translate_rllib_config(config, mapping=SEATS, decisions_per_step=1.024)
    assert translation.config.default_ppo.num_minibatches == 32
    assert translation.config.policies["p2"].ppo.num_minibatches == 4
    assert list(translation.lost) == ["policies.p2.grad_clip_by"]


def test_the_run_has_the_settings_of_a_policy_that_is_trained():
    said = {"mapping": SEATS, "decisions_per_step": {"p1": 0.3, "p2": 1.0}}
    config = exact({**TWO, "policies_to_train": ["p2"]}, **said)
    assert config.default_ppo.num_minibatches == 32
    assert set(config.policies) == {"p1"}


def test_modules_that_are_no_networks_of_ours_are_lost():
    modules = {"p1": {"catalog_class": int, "load_state_path": "there"}, "p2": None}
    spec = {"rl_module_specs": modules, "multi_rl_module_class": SimpleNamespace}
    assert set(lost({**TWO, "rl_module_spec": spec}, mapping=SEATS)) == {
        "rl_module_spec.p1.catalog_class",
        "rl_module_spec.p1.load_state_path",
        "rl_module_spec.multi_rl_module_class",
    }
    alone = {"rl_module_spec": {"module_class": "RandomRLModule"}}
    assert "nothing to train" in lost(alone)["rl_module_spec.module_class"]


def test_the_former_multiagent_table_is_read():
    nested = {"multiagent": {**TWO, "policies_to_train": ["p1"]}}
    assert exact(nested, mapping=SEATS) == exact(nested["multiagent"], mapping=SEATS)


# --- what has no counterpart ----------------------------------------------------------------------


def test_everything_that_changes_learning_is_listed_in_one_error():
    config = {
        "callbacks": SimpleNamespace,
        "model": {"custom_model": "mine"},
        "grad_clip": 1.0,
        "grad_clip_by": "value",
        "clip_parm": 0.1,
        "horizon": 100,
    }
    keys = ["clip_parm", "callbacks", "grad_clip_by", "horizon", "model.custom_model"]
    with pytest.raises(ValueError, match="has no counterpart for") as caught:
        from_rllib_config(config)
    lines = str(caught.value).splitlines()
    assert sorted(line[2:].partition("=")[0] for line in lines[1:-1]) == sorted(keys)
    assert "did you mean 'clip_param'?" in str(caught.value)
    with pytest.warns(RLlibTranslationWarning) as warned:
        ignored = from_rllib_config(config, ignore=keys)
    assert all(f"without {key}=" in str(warned[0].message) for key in keys)
    with pytest.warns(RLlibTranslationWarning):
        assert from_rllib_config(config, strict=False) == ignored


def test_what_is_ignored_must_be_there():
    with pytest.raises(ValueError, match=r"ignore names gamma; settings without .* are none"):
        exact({"gamma": 0.5}, ignore=("gamma",))


def test_how_rllib_runs_is_told_and_not_refused():
    config = {"num_gpus": 1, "framework": "tf", "env": "mine", "evaluation_interval": 5}
    assert [note.partition("=")[0] for note in notes(config)] == list(config)


@pytest.mark.parametrize(
    "table", [LOST, MACHINERY, dict.fromkeys(FORMER_MACHINERY, -1)], ids=["lost", "how", "former"]
)
def test_no_key_is_dropped_in_silence(table):
    for key, default in table.items():
        value = "something else"
        found = translate_rllib_config({key: value})
        told = [key in found.lost, any(note.startswith(f"{key}=") for note in found.notes)]
        assert sum(told) == 1, key
        assert told[0] == (table is LOST), key
        if "Named" not in repr(default):
            silent = translate_rllib_config({key: default})
            assert key not in silent.lost, key
            assert not any(note.startswith(f"{key}=") for note in silent.notes), key


def test_no_setting_of_a_network_is_dropped_in_silence():
    for key in MODEL_LOST:
        assert f"model.{key}" in lost({"model": {key: "something else"}}), key
    for key in MODEL_MACHINERY:
        assert any(key in note for note in notes({"model": {key: "something else"}})), key
    assert "did you mean 'use_lstm'?" in lost({"model": {"use_lsm": True}})["model.use_lsm"]
    assert lost({"model": {"fcnet_activation": "linear"}}) == {
        "model.fcnet_activation": "model.fcnet_activation='linear': "
        "valid: tanh, relu, silu (swish), gelu"
    }


CHANGED = [
    {"lambda": 0.5},
    {"gamma": 0.5},
    {"lr": 1.0},
    {"lr_schedule": [[0, 1.0]]},
    {"clip_param": 0.5},
    {"vf_clip_param": 0.5},
    {"vf_loss_coeff": 0.5},
    {"entropy_coeff": 0.5},
    {"entropy_coeff_schedule": [[0, 1.0]]},
    {"use_kl_loss": False},
    {"kl_coeff": 0.5},
    {"kl_target": 0.5},
    {"grad_clip": 0.5},
    {"num_learners": 2, "_train_batch_size_per_learner": 4096},
    {"rollout_fragment_length": 5000},
    {"num_epochs": 2},
    {"minibatch_size": 64},
    {"train_batch_size": 8192},
    {"_train_batch_size_per_learner": 1024},
    {"num_env_runners": 8},
    {"num_envs_per_env_runner": 2},
    {"model": {"fcnet_hiddens": [8]}},
    {"_model_config": {"fcnet_hiddens": [8]}},
    {"_rl_module_spec": {"model_config": {"fcnet_hiddens": [8]}}},
    {"policies": ["main"]},
    {"policies_to_train": []},
    {"algorithm_config_overrides_per_module": {"default_policy": {"gamma": 0.5}}},
    {"observation_filter": "MeanStdFilter"},
    {"seed": 5},
]


@pytest.mark.parametrize("changed", CHANGED, ids=lambda changed: next(iter(changed)))
def test_every_translated_key_matters(changed):
    base = translate_rllib_config(EXACT).config
    assert translate_rllib_config({**EXACT, **changed}).config != base


def test_every_translated_key_is_tested():
    # These matter together with others, and have tests of their own.
    others = {"grad_clip_by", "count_steps_by", "policy_mapping_fn", "enable_rl_module_and_learner"}
    assert {key for changed in CHANGED for key in changed} == set(TRANSLATED) - others


@pytest.mark.parametrize("config", [{}, EXACT, TWO])
def test_a_translated_run_is_kept_in_json(config):
    translated = translate_rllib_config(config, mapping=SEATS).config
    assert config_from_dict(json.loads(json.dumps(config_to_dict(translated)))) == translated


def test_only_configurations_are_taken():
    with pytest.raises(ValueError, match="must be RLlib's PPOConfig or a dict, got 3"):
        from_rllib_config(3)
    other = SimpleNamespace(algo_class=SimpleNamespace(__name__="DQN"), to_dict=dict)
    with pytest.raises(ValueError, match="one of DQN; only PPO's"):
        from_rllib_config(other)


class FutureConfig:
    """Of a version of RLlib that has a further key."""

    def __init__(self, further="default"):
        self.further = further

    def to_dict(self):
        return {"gamma": 0.5, "further": self.further}


def test_keys_of_other_versions_are_told_where_they_are_set():
    assert translate_rllib_config(FutureConfig()) == translate_rllib_config({"gamma": 0.5})
    assert list(translate_rllib_config(FutureConfig("set")).lost) == ["further"]


def test_nothing_of_ray_is_imported():
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from jaxmarl_ppo.config.rllib.translate import from_rllib_config\n"
        "from_rllib_config({'lr': 1e-3})\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('ray', 'torch')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- RLlib itself ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rllib():
    """What is needed of RLlib, imported without the warnings of its own dependencies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ray.rllib", exc_type=ImportError)

        def load(module, name):
            return getattr(importlib.import_module(f"ray.rllib.{module}"), name)

        yield SimpleNamespace(
            PPOConfig=load("algorithms.ppo", "PPOConfig"),
            DQNConfig=load("algorithms.dqn", "DQNConfig"),
            PolicySpec=load("policy.policy", "PolicySpec"),
            ModelConfig=load("core.rl_module.default_model_config", "DefaultModelConfig"),
            ModuleSpec=load("core.rl_module.rl_module", "RLModuleSpec"),
            MultiModuleSpec=load("core.rl_module.multi_rl_module", "MultiRLModuleSpec"),
            RandomModule=load("examples.rl_modules.classes.random_rlm", "RandomRLModule"),
            Schedule=load("utils.schedules.piecewise_schedule", "PiecewiseSchedule"),
        )


def test_the_tables_hold_rllibs_keys_and_defaults(rllib):
    real = rllib.PPOConfig().to_dict()
    model = real.pop("model")
    tables = {**TRANSLATED, **LOST, **MACHINERY}
    del tables["model"]
    for key, value in real.items():
        assert key in {*tables, *INTERNAL, *RENAMED}, key
        if key in tables:
            assert is_default(value, tables[key]), (key, value)
    gone = {key for key in tables if key not in real}
    assert gone == {
        *("horizon", "soft_horizon", "no_done_at_end", "shuffle_sequences", "rl_module_class")
    }
    assert not {*FORMER_MACHINERY} & {*real, *tables}
    networks = {**MODEL, **MODEL_LOST, **MODEL_MACHINERY}
    present = dataclasses.asdict(rllib.ModelConfig())
    assert networks.keys() == {*model, *present, "num_framestacks"}
    for key, value in {**present, **model}.items():
        assert is_default(value, networks[key]), (key, value)


def test_a_config_and_its_dict_and_nothing_are_the_same(rllib):
    config = rllib.PPOConfig()
    nothing = translate_rllib_config({})
    assert translate_rllib_config(config) == nothing
    assert translate_rllib_config(config.to_dict()) == nothing
    assert nothing.lost == {}
    former = rllib.PPOConfig().api_stack(
        enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False
    )
    assert translate_rllib_config(former) == nothing


def test_a_whole_config_of_a_single_policy(rllib):
    own = rllib.PPOConfig().training(lr=0.1, model={"fcnet_hiddens": [8]})
    specs = {"p1": rllib.PolicySpec(config=own), "p2": rllib.PolicySpec()}
    config = {"policies": specs, "gamma": 0.5, **old()}
    translated = exact(config, mapping=SEATS)
    assert translated.policies["p1"].ppo == dataclasses.replace(
        translated.default_ppo, learning_rate=0.1
    )
    assert translated.policies["p1"].network == MLP(hidden_sizes=(8,), separate_critic=True)


def test_other_algorithms_are_refused(rllib):
    with pytest.raises(ValueError, match="one of DQN"):
        from_rllib_config(rllib.DQNConfig())


def test_a_league_of_the_new_api_stack(rllib):
    config = (
        rllib.PPOConfig()
        .env_runners(num_env_runners=4, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=4096, minibatch_size=512, lr=[[0, 1e-3], [9999, 0]])
        .multi_agent(
            policies={"p1": rllib.PolicySpec(), "p2": rllib.PolicySpec(), "p3": rllib.PolicySpec()},
            policy_mapping_fn=lambda agent_id, episode, **kwargs: "p1",
            policies_to_train=["p1"],
        )
        .rl_module(
            rl_module_spec=rllib.MultiModuleSpec(
                rl_module_specs={
                    "p1": rllib.ModuleSpec(model_config=rllib.ModelConfig(fcnet_hiddens=[32])),
                    "p2": rllib.ModuleSpec(model_config={"use_lstm": True, "lstm_cell_size": 16}),
                    "p3": rllib.ModuleSpec(module_class=rllib.RandomModule),
                }
            ),
            algorithm_config_overrides_per_module={"p1": rllib.PPOConfig.overrides(kl_coeff=0.0)},
        )
    )
    mapping = {"x": "p1", "o": ["p2", "p3"]}
    translated = from_rllib_config(config, mapping=mapping, decisions_per_step=0.5)
    specs = translated.policies
    assert (translated.num_envs, translated.num_steps) == (32, 128)
    assert specs["p1"].network == MLP(hidden_sizes=(32,))  # DefaultModelConfig shares layers
    # Nobody is left who would train by the run's own, so they are those of p1 but for its override.
    plain = config.copy(copy_frozen=False).rl_module(algorithm_config_overrides_per_module={})
    alike = from_rllib_config(plain, mapping=mapping, decisions_per_step=0.5)
    assert specs["p1"].ppo == dataclasses.replace(
        alike.policies["p1"].ppo or alike.default_ppo,
        kl_control="off",
        initial_kl_coef=None,
        target_kl=None,
    )
    assert specs["p1"].ppo.num_minibatches == 4
    lstm = LSTM(hidden_sizes=(256, 256), lstm_size=16, separate_critic=True)
    assert (specs["p2"].network, specs["p2"].trainable) == (lstm, False)
    assert specs["p3"] == Scripted("random")


@pytest.mark.parametrize(
    "model",
    [
        {"fcnet_hiddens": [32, 16]},
        {"fcnet_hiddens": [32, 16], "vf_share_layers": True},
        {"fcnet_hiddens": [32], "use_lstm": True, "lstm_cell_size": 8},
        {"fcnet_hiddens": [32], "use_lstm": True, "lstm_cell_size": 8, "vf_share_layers": True},
        {"fcnet_hiddens": [32], "head_fcnet_hiddens": [16, 4], "head_fcnet_activation": "tanh"},
        {
            "fcnet_hiddens": [32],
            "use_lstm": True,
            "lstm_cell_size": 8,
            "head_fcnet_hiddens": [4],
            "head_fcnet_activation": "tanh",
        },
    ],
)
def test_networks_are_as_large_as_rllibs(rllib, model):
    gym = pytest.importorskip("gymnasium")
    config = rllib.PPOConfig().rl_module(model_config=model)
    spaces = (gym.spaces.Box(-1, 1, (5,), np.float32), gym.spaces.Discrete(3))
    spec = config.get_multi_rl_module_spec(spaces={"default_policy": spaces})
    theirs = sum(p.numel() for p in spec.build()["default_policy"].parameters())
    network = translate_rllib_config(config).config.default_policy.network.clone(num_outputs=3)
    hidden = network.initial_hidden((1,))
    variables = network.init(jax.random.key(0), hidden, jnp.zeros((1, 5)))
    ours = sum(leaf.size for leaf in jax.tree.leaves(variables))
    # torch's LSTM adds two biases where one is enough.
    towers = len(hidden)
    assert ours == theirs - towers * 4 * model.get("lstm_cell_size", 0)


def test_schedules_follow_rllibs(rllib):
    points = [[0, 1.0], [100, 0.25], [100, 0.5], [400, 0.1], [400, 0.0]]
    theirs = rllib.Schedule(points, outside_value=0.0, framework=None)
    ppo = translate_rllib_config({"lr": points}).config.default_ppo
    ours = make_hyperparams([ppo], TrainConfig().total_env_steps).learning_rate
    for step in (0, 37, 99, 100, 101, 250, 399, 400, 5000):
        np.testing.assert_allclose(ours(step)[0], theirs.value(step), atol=1e-6)


JUNK = [None, True, -1, 0, 3, 2.5, math.nan, math.inf, "x", "", [], [1], [[0, 1]], [[0, None]], {},
        {"a": 1}, {"p1", 2}, b"x", object(), int]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: type(junk).__name__)
def test_any_value_of_any_setting_is_translated_or_refused_by_name(junk):
    for key in TRANSLATED:
        if key == "policy_mapping_fn":
            continue
        try:
            translate_rllib_config({**old(), key: junk})
        except ValueError as error:
            message = str(error)
        else:
            continue
        ours = {
            "lambda": "gae_lambda",
            "clip_param": "clip_eps",
            "lr": "learning_rate",
            "_model_config": "model",
        }
        words = {key.lstrip("_"), ours.get(key, key), "RLlib", "config", "num_envs", "num_steps"}
        assert any(word in message for word in words), (key, message)
    for key in MODEL:
        with contextlib.suppress(ValueError):
            translate_rllib_config({"model": {key: junk}})
        with contextlib.suppress(ValueError):
            translate_rllib_config({"policies": {"p1": (None, None, None, {"model": {key: junk}})}})


def test_defaults_that_every_policy_overrules_are_left_out():
    own = {"p1": {"config": {"lr": 0.1}}, "p2": {"config": {"lr": 0.2}}}
    translated = exact({"policies": own, "lr": 0.3, **old()}, mapping=SEATS)
    assert (translated.default_ppo, translated.default_policy) == (PPOConfig(), PolicySpec())
    assert [translated.policies[name].ppo.learning_rate for name in ("p1", "p2")] == [0.1, 0.2]
    make_learner(*jaxmarl_envs.make("tic_tac_toe"), translated)
