"""Files that describe runs: what they may say, what they change, and how they are refused."""

import dataclasses

import pytest

from jaxmarl_ppo import (
    LSTM,
    MLP,
    PRESETS,
    Linear,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    preset,
)
from jaxmarl_ppo.config.as_json import with_explicit_network
from jaxmarl_ppo.config.run_file import settings

IN_TOML = """
env = "tic_tac_toe"
total_env_steps = 5e6
num_envs = 8

[mapping]
x = "red"
o = { past = 1, blue = 2.5 }

[policies.red]
kind = "network"
network = "lstm"
load = "none"

[policies.red.ppo]
learning_rate = { linear = [1e-3, 0] }
entropy_coef = [[0, 0.1], [1_000_000, 0.01]]
max_grad_norm = "none"

[policies.past]
kind = "snapshots"
of = "red"
add_every = 4

[policies.blue]
kind = "scripted"
script = "random"

[default_policy]
network = { kind = "mlp", hidden_sizes = [3, 4] }

[default_ppo]
gamma = 0.5
"""
IN_YAML = """
env: tic_tac_toe
total_env_steps: 5e6
num_envs: 8
mapping: {x: red, o: {past: 1, blue: 2.5}}
policies:
  red:
    kind: network
    network: lstm
    load: null
    ppo:
      learning_rate: {linear: [1e-3, 0]}
      entropy_coef: [[0, 0.1], [1000000, 0.01]]
      max_grad_norm: ~
      kl_control: off
  past: {kind: snapshots, of: red, add_every: 4}
  blue: {kind: scripted, script: random}
default_policy:
  network: {kind: mlp, hidden_sizes: [3, 4]}
default_ppo:
  gamma: 0.5
"""


@pytest.mark.parametrize(("text", "form"), [(IN_TOML, "toml"), (IN_YAML, "yaml"), (IN_YAML, "yml")])
def test_a_file_says_what_python_says(write, text, form):
    base = preset("tic_tac_toe").config
    start = settings(None, None, write(text, form))
    assert (start.env, start.preset, start.env_kwargs, start.env_params) == (
        "tic_tac_toe",
        None,
        {},
        None,
    )
    assert start.config == dataclasses.replace(
        base,
        total_env_steps=5_000_000,
        num_envs=8,
        mapping={"x": "red", "o": {"past": 1.0, "blue": 2.5}},
        policies={
            "red": PolicySpec(
                network=LSTM(),
                ppo=PPOConfig(
                    learning_rate=Linear(1e-3, 0),
                    entropy_coef=((0, 0.1), (1e6, 0.01)),
                    max_grad_norm=None,
                ),
            ),
            "past": Snapshots("red", add_every=4),
            "blue": Scripted("random"),
        },
        default_policy=PolicySpec(network=MLP(hidden_sizes=(3, 4))),
        default_ppo=dataclasses.replace(base.default_ppo, gamma=0.5),
    )


@pytest.mark.parametrize("name", PRESETS)
def test_an_empty_file_is_the_preset(write, name):
    env, _, variant = name.partition("/")
    start = settings(env, variant or None, write(""))
    assert start.config == with_explicit_network(PRESETS[name].config)
    assert start.env_kwargs == PRESETS[name].env_kwargs


def config_of(write, text, env=None, variant=None):
    return settings(env, variant, write(text)).config


def test_a_file_changes_its_preset_key_by_key(write):
    league = preset("tic_tac_toe", "league").config
    config = config_of(write, 'env = "tic_tac_toe"\npreset = "league"\npolicies.p3.size = 4')
    p3 = dataclasses.replace(league.policies["p3"], size=4)
    assert config.policies == {**league.policies, "p3": p3}
    # The command line's word goes before the file's.
    assert config_of(write, 'preset = "league"', "tic_tac_toe", "rllib").mapping == "shared"
    # Policies go with the preset's own mapping, and snapshots with the length of the run.
    shared = config_of(write, 'preset = "league"\nmapping = "shared"', "tic_tac_toe")
    assert shared.policies == {}
    tenth = config_of(write, 'preset = "league"\ntotal_env_steps = 2_400_000', "tic_tac_toe")
    assert tenth.policies["p4"].add_every == 15
    given = "policies.p4.add_every = 7\ntotal_env_steps = 2_400_000"
    assert config_of(write, given, "tic_tac_toe", "league").policies["p4"].add_every == 7
    # A kind of its own brings defaults of its own.
    other = 'policies.p3 = { kind = "scripted", script = "random" }'
    assert config_of(write, other, "tic_tac_toe", "league").policies["p3"] == Scripted("random")


def test_a_file_may_need_what_only_an_option_says(write):
    path = write('env = "basic"\ndefault_ppo.target_kl = 0.1')
    penalty = {"default_ppo": {"kl_control": "penalty"}}
    ppo = settings(None, None, path, penalty).config.default_ppo
    assert (ppo.kl_control, ppo.target_kl) == ("penalty", 0.1)
    for options in ({}, {"default_ppo": {"gamma": 0.5}}, {"env": {"params": {"max_steps": 3}}}):
        with pytest.raises(ValueError, match=rf"^{path}: default_ppo: target_kl=0.1 has no effect"):
            settings(None, None, path, options)
    # What an option says wrongly is no fault of the file's.
    with pytest.raises(ValueError, match=r"^default_ppo has no 'gama'"):
        settings("basic", None, None, {"default_ppo": {"gama": 0.5}})


def test_a_network_of_another_kind_brings_its_own_sizes(write):
    config = config_of(write, 'default_policy.network = "mlp"', "shuttle_grid")
    assert config.default_policy.network == MLP()
    assert config.default_ppo.bptt_length is None
    own = preset("shuttle_grid").config
    for text in ('network = "lstm"', "network.lstm_size = 64", "prev_action = false"):
        assert config_of(write, f"[default_policy]\n{text}", "shuttle_grid") == own
    wide = config_of(write, "default_policy.network.lstm_size = 8", "shuttle_grid")
    assert wide.default_policy.network == LSTM(hidden_sizes=(128,), lstm_size=8)


def test_what_all_policies_have_reaches_the_presets_single_ones(write):
    text = "default_ppo.learning_rate = 1e-9\npolicies.alice.ppo.gamma = 0.5"
    config = config_of(write, text, "asymmetric_play")
    own = preset("asymmetric_play").config.policies["alice"].ppo
    assert config.policies["alice"].ppo == dataclasses.replace(own, learning_rate=1e-9, gamma=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_env = 3", r"has no 'num_env'; did you mean 'num_envs'\? valid: env, preset, total_"),
        ("env = 3", "env must be a table, got 3"),
        ("preset = 3", "preset must be a word, got 3"),
        ('preset = "leage"', "has no preset 'leage'; valid: league, rllib, slow_env"),
        ("env.size = 3", "env has no 'size'; .*valid: name, kwargs, params"),
        ("env.kwargs = 3", "env.kwargs must be a table, got 3"),
        ("default_ppo.gama = 1", r"default_ppo has no 'gama'; did you mean 'gamma'\? valid: learn"),
        ("default_ppo.gamma = [1]", r"a point of default_ppo.gamma must be a pair .*, got 1"),
        ('default_ppo.gamma = "none"', r"default_ppo.gamma must be a number, .*, got 'none'"),
        ("default_ppo.learning_rate = { linear = 3 }", r"must be \{'linear': \[start, end\]\}"),
        ("default_ppo.target_kl = 0.1", "default_ppo: target_kl=0.1 has no effect"),
        ("default_ppo = 3", "default_ppo must be a table, got 3"),
        ("policies = 3", "policies must be a table, got 3"),
        ("policies.a.ppo.gamma = 1", "policies.a lacks kind; valid: network, snapshots, scripted"),
        (
            '[policies."a*"]\nkind = "network"\nppo.gamma = 2',
            r'policies."a\*".ppo.gamma must be finite and lie in \[0.0, 1.0\], got 2',
        ),
        ('policies.a = { kind = "snapshots" }', "policies.a lacks of"),
        ("default_policy.network.lstm_size = 3", "has no 'lstm_size', which is of lstm; valid:"),
        ("default_policy.network.hidden_sizes = [0]", "an element of default_policy.network.hid"),
        ('default_policy.network.activation = "elu"', "'elu'; valid: tanh, relu, silu, gelu"),
        ('default_policy.network = "rnn"', "unknown network kind 'rnn'; valid: mlp, lstm, gru"),
        ("total_env_steps = 1.5", "total_env_steps must be a whole number"),
        ("num_envs = 1e30", "num_envs must be a whole number of at most"),
        ("num_envs = 2020-01-01", "num_envs must be a whole number of at least 1, got datetime"),
        ('mapping = { kind = "ensemble", sise = 2 }', "mapping has no 'sise'; did you mean 'size'"),
    ],
)
def test_what_a_file_may_not_say(write, text, message):
    path = write(text)
    with pytest.raises(ValueError, match=message) as caught:
        settings("tic_tac_toe", None, path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1: 2", "the file has the key 1, which is not a word"),
        ("default_ppo: {null: 2}", "default_ppo has the key None, which is not a word"),
        ("env: {kwargs: {2: 3}}", "env.kwargs has the key 2, which is not a word"),
        ("{format: 3, env: {}, config: {}}", "it has the unknown format 3; valid: 1, 2"),
        ("{format: 2, env: {}, config: {}}", "env lacks name, make, params, agents"),
    ],
)
def test_what_yaml_may_not_say(write, text, message):
    path = write(text, "yaml")
    with pytest.raises(ValueError, match=rf"^{path}: {message}$"):
        settings("basic", None, path)


def test_what_is_of_another_environment_has_no_effect(write):
    path = write('env = { name = "crypto", params = { max_steps = 3 } }')
    assert settings("crypto", None, path).env_params == {"max_steps": 3}
    with pytest.raises(ValueError, match=r"no effect on environment 'basic', .* of 'crypto'"):
        settings("basic", None, path)
    assert settings("basic", None, write('env = "crypto"')).env == "basic"
