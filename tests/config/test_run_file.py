"""Files that describe runs: what they may say, what they change, and how they are refused."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

import jaxmarl_envs
from jaxmarl_ppo import (
    LSTM,
    MLP,
    PRESETS,
    Ensemble,
    Linear,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    TrainConfig,
    preset,
)
from jaxmarl_ppo.config.as_json import config_to_dict, dump_json, with_explicit_network
from jaxmarl_ppo.config.env_as_json import params_from_json, params_to_json
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.config.printing import attributes_of, print_settings
from jaxmarl_ppo.config.run_file import EnvTable, RunFile, settings


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def to_file(text, form="toml"):
        path = tmp_path / f"run.{form}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


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
        ('preset = "leage"', "has no preset 'leage'; valid: league, rllib"),
        ("env.size = 3", "env has no 'size'; .*valid: name, kwargs, params"),
        ("env.kwargs = 3", "env.kwargs must be a table, got 3"),
        ("default_ppo.gama = 1", r"default_ppo has no 'gama'; did you mean 'gamma'\? valid: learn"),
        ("default_ppo.gamma = [1]", r"default_ppo.gamma must be finite and .*, got \[1\]"),
        ('default_ppo.gamma = "none"', "default_ppo.gamma must be finite and .*, got 'none'"),
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
        ("default_policy.network.lstm_size = 3", "has no 'lstm_size'; valid: hidden_sizes"),
        ("default_policy.network.hidden_sizes = [0]", "an element of default_policy.network.hid"),
        ('default_policy.network.activation = "elu"', "'elu'; valid: tanh, relu, silu, gelu"),
        ('default_policy.network = "gru"', "unknown network kind 'gru'; valid: mlp, lstm, cnn"),
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


def test_what_is_of_another_environment_has_no_effect(write):
    path = write('env = { name = "crypto", params = { max_steps = 3 } }')
    assert settings("crypto", None, path).env_params == {"max_steps": 3}
    with pytest.raises(ValueError, match="no effect on environment 'basic', .* of 'crypto'; drop"):
        settings("basic", None, path)
    assert settings("basic", None, write('env = "crypto"')).env == "basic"


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("a = 1\nb = [1,\n", "toml", r"at line 3, column 1\)"),
        ("a = 1\nb = = 2", "toml", r"at line 2, column 5\)"),
        ("a = 1\na = 2", "toml", r"Cannot overwrite a value \(at line 2, column 6\)"),
        ("a: [1\nb: 2", "yaml", r"at line 2, column 2\)"),
        ("a: 1\na: 2", "yaml", r"'a' is there twice \(at line 2, column 1\)"),
        ("a: !!int x", "yaml", "a value does not fit its tag"),
        ("a: !!python/object/apply:os.system [ls]", "yaml", r"tag .*os.system.* column 4\)"),
        ("a: &a [*a]", "yaml", "recursive"),
        ('{"a": 1,\n "b": }', "json", r"at line 2, column 7\)"),
        ('{"a": 1, "a": 2}', "json", "'a' is there twice"),
        ("[" * 100_000, "json", "nested too deeply"),
        ("a: " + "[" * 5_000, "yaml", "nested too deeply"),
        ("[1]", "json", r"must hold a table, got \[1\]"),
        ("- 1", "yaml", r"must hold a table, got \[1\]"),
        (b"a = 1\nb = '\xff'", "toml", r"not UTF-8 \(at line 2, column 6\)"),
        ("a: \x01", "yaml", r"at line 1, column 4\)"),
        ("", "txt", r"must end in one of .toml, .yaml, .yml, .json"),
    ],
)
def test_what_cannot_be_parsed_is_told_by_line_and_column(write, text, form, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_file(write(text, form))
    assert "\n" not in str(caught.value)


def test_yaml_means_what_it_looks_like(write):
    text = "{a: off, b: no, c: 1e-3, d: 1.e3, e: true, f: 0o7, g: 1:30, h: 2020-01-01, i: .inf}"
    assert parse_file(write(text, "yaml")) == {
        "a": "off",
        "b": "no",
        "c": 1e-3,
        "d": 1e3,
        "e": True,
        "f": "0o7",
        "g": "1:30",
        "h": "2020-01-01",
        "i": float("inf"),
    }
    merged = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}"
    assert parse_file(write(merged, "yaml"))["own"] == {"a": 1, "b": 3}


ALL = sorted(
    {(name.partition("/")[0], name.partition("/")[2]) for name in PRESETS}
    | {(env, variant) for env in jaxmarl_envs.names() for variant in ("", "rllib")}
)


@pytest.mark.parametrize("form", ["toml", "yaml"])
@pytest.mark.parametrize(("env", "variant"), ALL)
def test_the_printed_file_is_the_preset_to_the_letter(write, env, variant, form):
    start = settings(env, variant or None, None)
    made, params = jaxmarl_envs.make(env, **start.env_kwargs)
    path = write(print_settings(start, params_to_json(params), form), form)
    again = settings(None, None, path)
    assert dataclasses.replace(again, env_params=None) == start
    assert again.config == with_explicit_network(preset(env, variant or None).config)
    read = params_from_json(again.env_params or {}, params, partial=True)
    assert params_to_json(read) == params_to_json(params)
    assert made.horizon(read) == made.horizon(params)


EVERY_KIND = TrainConfig(
    mapping=Ensemble(2, weights=(0.5, 1.5)),
    policies={
        "a*": PolicySpec(network=LSTM(lstm_size=3), ppo=PPOConfig(learning_rate=((0, 1), (1, 0)))),
        'say "b"': Snapshots("a", add_at_win_rate=0.5),
        "c": Scripted("random"),
    },
)


@pytest.mark.parametrize("form", ["toml", "yaml"])
def test_every_line_of_a_printed_file_has_a_comment(write, form):
    start = dataclasses.replace(settings("basic", None, None), config=EVERY_KIND)
    kwargs = {"name": 'a "b"\n', "inf": float("-inf"), "list": [1e-7, None, {"k": True}]}
    text = print_settings(dataclasses.replace(start, env_kwargs=kwargs), {"max_steps": 3}, form)
    for before, line in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        assert not line or line.lstrip().startswith("#") or before.lstrip().startswith("# "), line
        assert len(line) <= 100 or not line.lstrip().startswith("#")
    again = settings(None, None, write(text, form))
    assert again.config == with_explicit_network(EVERY_KIND)
    assert again.env_params == {"max_steps": 3}
    assert again.env_kwargs["name"] == kwargs["name"]
    assert again.env_kwargs["inf"] == kwargs["inf"]


@pytest.mark.parametrize(
    "cls",
    [TrainConfig, PPOConfig, PolicySpec, Snapshots, Scripted, Ensemble, RunFile, EnvTable, LSTM],
)
def test_docstrings_name_all_attributes(cls):
    about = attributes_of(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.name not in ("parent", "name")]
    assert all(about.get(name) for name in names)
    if cls is PPOConfig:
        assert about["value_coef"] == "weight of the value loss (half the squared error)."
        assert about["kl_control"].endswith("a KL term whose weight adapts towards `target_kl`.")


@struct.dataclass
class Numbers:
    count: int = 3
    speed: float = 0.1
    free: bool = True
    table: jax.Array = struct.field(default_factory=lambda: jnp.array([1.5, 2.0], jnp.float32))


def test_parameters_of_an_environment_are_checked():
    read = params_from_json({"table": [1, 3], "speed": 2}, Numbers(), partial=True)
    assert (read.count, read.speed) == (3, 2.0)
    assert read.table.dtype == jnp.float32
    np.testing.assert_array_equal(read.table, [1.0, 3.0])
    whole = params_to_json(Numbers())
    for key, value, message in [
        ("count", 2.5, "env.params.count must be a whole number"),
        ("speed", "fast", "env.params.speed must be a finite number, got 'fast'"),
        ("free", 1, "env.params.free must be True or False"),
        ("table", "x", "env.params.table holds no numbers"),
        ("table", [[1.0]], "env.params.table must have 1 dimensions"),
        ("sped", 1, "env.params has no 'sped'; did you mean 'speed'"),
    ]:
        with pytest.raises(ValueError, match=message):
            params_from_json({**whole, key: value}, Numbers())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 10)
    | st.floats()
    | st.sampled_from(["", "none", "x", "mlp", "off", "linear:1:0", 10**30]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "linear", "gamma", "a", ""]), inner, max_size=3)
    ),
    max_leaves=5,
)
WHOLE = json.loads(dump_json(config_to_dict(with_explicit_network(EVERY_KIND))))


def places(data, path=()):
    yield path
    for key, value in data.items() if isinstance(data, dict) else ():
        yield from places(value, (*path, key))


PLACES = [path for path in places({**WHOLE, "env": {"name": "basic", "kwargs": {}}}) if path]


def put_all(changes):
    data = {}
    for path, value in changes:
        table = data
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                break
        else:
            table[path[-1]] = value
    return json.dumps(data).encode()


TEXT = print_settings(settings("tic_tac_toe", "league", None), {}, "toml").encode()
FILES = st.one_of(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(PLACES), VALUES), max_size=4).map(put_all),
        st.sampled_from(["json", "yaml"]),
    ),
    st.tuples(st.binary(max_size=60), st.sampled_from(["json", "toml", "yaml"])),
    st.tuples(
        st.tuples(st.integers(0, len(TEXT)), st.binary(max_size=3)).map(
            lambda cut: TEXT[: cut[0]] + cut[1] + TEXT[cut[0] + len(cut[1]) :]
        ),
        st.just("toml"),
    ),
    st.tuples(st.text("ab:[]{}-&*!<>|'\"\n 12?#,.", max_size=40).map(str.encode), st.just("yaml")),
)
FIXED = examples(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def ends_in_a_sentence(write, content, form):
    try:
        start = settings("basic", None, write(content, form))
    except ValueError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(start.config, TrainConfig)


@examples(FIXED, max_examples=100)
@given(file=FILES)
def test_any_file_is_a_configuration_or_refused_in_a_sentence(write, file):
    ends_in_a_sentence(write, *file)


@pytest.mark.slow
@examples(FIXED, max_examples=2_000)
@given(file=FILES)
def test_many_files_are_configurations_or_refused_in_a_sentence(write, file):
    ends_in_a_sentence(write, *file)
