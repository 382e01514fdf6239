"""Configurations: what they refuse, and that a file of one is the same one again."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import struct

import jaxmarl_envs
from jaxmarl_ppo import CNN, LSTM, MLP, PRESETS, Linear, PolicySpec, PPOConfig, TrainConfig, preset
from jaxmarl_ppo.build import make_learner
from jaxmarl_ppo.config_io import (
    config_from_dict,
    config_to_dict,
    dump_json,
    network_kind,
    params_from_json,
    params_to_json,
    with_explicit_network,
)


def through_json(config: TrainConfig, **kwargs) -> TrainConfig:
    return config_from_dict(json.loads(dump_json(config_to_dict(config))), **kwargs)


EVERYTHING = TrainConfig(
    total_env_steps=1234,
    num_envs=3,
    num_steps=7,
    seed=5,
    policies={"x": "red", "o": "blue"},
    policy=PolicySpec(
        network=LSTM(hidden_sizes=(8, 9), lstm_size=5, activation="relu", separate_critic=True),
        prev_action=True,
        prev_reward=True,
        append_agent_id=True,
        normalise_observations=True,
        normalise_rewards=True,
    ),
    ppo=PPOConfig(
        learning_rate=Linear(1e-3, 1e-5),
        entropy_coef=((0.0, 0.1), (100.0, 0.01)),
        max_grad_norm=None,
        kl_control="penalty",
        target_kl=0.02,
        initial_kl_coef=0.3,
        value_clip="ppo2",
        value_clip_eps=0.5,
        discount_by="tick",
        bptt_length=4,
    ),
    ppo_overrides={
        "red": PPOConfig(
            learning_rate=0.1,
            gamma=0.5,
            kl_control="penalty",
            target_kl=0.1,
            initial_kl_coef=0.3,
            value_clip="ppo2",
            value_clip_eps=0.25,
            discount_by="tick",
            bptt_length=4,
        )
    },
    stagger_starts=False,
    micro_batch_rows=64,
    log_interval=2,
)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        EVERYTHING,
        TrainConfig(policy=PolicySpec(network="lstm")),
        TrainConfig(policy=PolicySpec(network=CNN(channels=(4,), hidden_sizes=()))),
        *(chosen.config for chosen in PRESETS.values()),
    ],
)
def test_round_trip_is_exact(config):
    assert through_json(config) == config


def test_every_field_is_written_and_differs_from_its_default():
    """So that the round trip above would notice a field that is dropped."""
    assert set(config_to_dict(EVERYTHING)) == {f.name for f in dataclasses.fields(TrainConfig)}
    for f in dataclasses.fields(TrainConfig):
        assert getattr(EVERYTHING, f.name) != getattr(TrainConfig(), f.name), f.name
    for f in dataclasses.fields(PolicySpec):
        assert getattr(EVERYTHING.policy, f.name) != getattr(PolicySpec(), f.name), f.name


def test_explicit_network_says_every_size():
    config = with_explicit_network(TrainConfig(policy=PolicySpec(network="lstm")))
    network = config_to_dict(config)["policy"]["network"]
    assert network == {
        "kind": "lstm",
        "hidden_sizes": [64],
        "activation": "tanh",
        "separate_critic": False,
        "lstm_size": 64,
    }


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ((), "configuration"),
        (("policy",), "policy"),
        (("ppo",), "ppo"),
        (("policy", "network"), "network 'lstm'"),
        (("ppo_overrides", "red"), r"ppo_overrides\['red'\]"),
    ],
)
def test_unknown_key_is_refused_by_name(path, named):
    data = json.loads(dump_json(config_to_dict(EVERYTHING)))
    table = data
    for key in path:
        table = table[key]
    table["learning_rat"] = 1
    with pytest.raises(ValueError, match=rf"{named} has no 'learning_rat'; valid: \w+, "):
        config_from_dict(data)


def test_values_are_checked_when_read():
    with pytest.raises(ValueError, match="gamma must be finite and lie in"):
        config_from_dict({"ppo": {"gamma": 2.0}})
    with pytest.raises(ValueError, match=r"must be \{'linear': \[start, end\]\}"):
        config_from_dict({"ppo": {"learning_rate": {"linear": 3}}})
    with pytest.raises(ValueError, match="ppo must be a table, got 3"):
        config_from_dict({"ppo": 3})
    with pytest.raises(ValueError, match="unknown network kind 'gru'; valid: mlp, lstm, cnn"):
        config_from_dict({"policy": {"network": {"kind": "gru"}}})


class MyNetwork(nn.Module):
    width: int = 3


def test_a_module_of_the_users_own_has_to_be_handed_in_again():
    config = TrainConfig(policy=PolicySpec(network=MyNetwork(width=5), prev_action=True))
    recorded = config_to_dict(config)["policy"]["network"]
    assert recorded["kind"] == network_kind(MyNetwork()) == "custom"
    assert recorded["class"] == f"{__name__}:MyNetwork"
    assert "width = 5" in recorded["repr"]
    with pytest.raises(ValueError, match=r"MyNetwork; pass it from Python: load_run\("):
        through_json(config)
    assert through_json(config, network=MyNetwork(width=5)) == config


@struct.dataclass
class Numbers:
    count: int = 3
    speed: float = 0.1
    table: jax.Array = struct.field(default_factory=lambda: jnp.array([1.5, np.inf], jnp.float32))
    inner: dict = struct.field(default_factory=lambda: {"flag": True})


def test_environment_parameters_round_trip():
    params = Numbers(count=5, speed=0.7, inner={"flag": False})
    recorded = json.loads(json.dumps(params_to_json(params)))
    restored = params_from_json(recorded, Numbers())
    assert (restored.count, restored.speed, restored.inner) == (5, 0.7, {"flag": False})
    assert restored.table.dtype == jnp.float32
    np.testing.assert_array_equal(restored.table, params.table)
    del recorded["speed"]
    with pytest.raises(ValueError, match="environment parameters do not fit"):
        params_from_json(recorded, Numbers())


def test_json_is_strict():
    assert (
        dump_json({"a": [float("nan"), 1.0], "b": float("inf")}) == '{"a": [null, 1.0], "b": null}'
    )


@pytest.mark.parametrize("name", jaxmarl_envs.names())
def test_preset_fits_its_environment(name):
    chosen = preset(name)
    env, env_params = jaxmarl_envs.make(name, **chosen.env_kwargs)
    make_learner(env, env_params, chosen.config)
    assert name in PRESETS


def test_without_a_preset_the_defaults_hold():
    assert preset("no such environment").config == TrainConfig()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPOConfig(gamma=1.1), r"gamma must be finite and lie in \[0.0, 1.0\], got 1.1"),
        (lambda: PPOConfig(gamma=float("nan")), "gamma must be finite and lie in"),
        (lambda: PPOConfig(clip_eps=0.0), "clip_eps must be positive"),
        (lambda: PPOConfig(num_epochs=0), "num_epochs must be a whole number of at least 1"),
        (lambda: PPOConfig(learning_rate=-1.0), "learning_rate must be finite and not negative"),
        (lambda: PPOConfig(learning_rate=((5, 1), (5, 2))), "steps of learning_rate must ascend"),
        (lambda: PPOConfig(value_clip="on"), "unknown value_clip 'on'; valid: off, ppo2"),
        (lambda: PPOConfig(value_clip_eps=1.0), "value_clip_eps=1.0 has no effect"),
        (lambda: PPOConfig(value_clip="ppo2"), "value_clip='ppo2' needs value_clip_eps"),
        (lambda: PPOConfig(target_kl=0.1), "target_kl=0.1 has no effect"),
        (lambda: PPOConfig(initial_kl_coef=0.1), "initial_kl_coef=0.1 has no effect"),
        (lambda: PolicySpec(network="gru"), "unknown network 'gru'; valid: mlp, lstm, cnn"),
        (lambda: PolicySpec(network=3), "network must be 'mlp'"),
        (lambda: TrainConfig(num_envs=0), "num_envs must be a whole number of at least 1, got 0"),
        (lambda: TrainConfig(num_steps=True), "num_steps must be a whole number"),
        (lambda: TrainConfig(seed=-1), "seed must not be negative, got -1"),
        (
            lambda: TrainConfig(ppo_overrides={"x": PPOConfig(num_epochs=9)}),
            "num_epochs must be the same for all policies",
        ),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig(policies="both"), "unknown policy mapping 'both'; valid: 'shared'"),
        (TrainConfig(policies={"x": "a"}), "gives no policy to o"),
        (TrainConfig(policies={"x": "a", "o": "a", "y": "a"}), "unknown agent 'y'"),
        (TrainConfig(ppo_overrides={"x": PPOConfig()}), "unknown policy 'x'; the policies are sh"),
        (TrainConfig(ppo=PPOConfig(bptt_length=8)), "bptt_length=8 has no effect"),
        (TrainConfig(policy=PolicySpec(network="cnn")), "needs planes"),
        (TrainConfig(policy=PolicySpec(network=MyNetwork())), "network MyNetwork"),
        (
            TrainConfig(num_envs=1, num_steps=1, ppo=PPOConfig(num_minibatches=3)),
            "num_minibatches=3 exceeds the 2 rows",
        ),
        (
            TrainConfig(policy=PolicySpec(network=MLP(activation="swish"))),
            "swish",
        ),
    ],
)
def test_what_does_not_fit_the_environment_is_refused(config, message):
    env, env_params = jaxmarl_envs.make("tic_tac_toe")
    with pytest.raises(ValueError, match=message):
        make_learner(env, env_params, config)
