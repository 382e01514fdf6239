"""Options, files, searches, PBT and Python share the names, grammar and errors of values."""

import json

import pytest

from jaxmarl_ppo import Linear, PbtConfig, PPOConfig, Range, TrainConfig
from jaxmarl_ppo.cli.train import parse_train
from jaxmarl_ppo.config.annotations import field_metadata
from jaxmarl_ppo.config.as_json import config_from_dict
from jaxmarl_ppo.config.paths import ALIASES, expand, full_path, put, value_at, with_values
from jaxmarl_ppo.config.run_file import override, settings
from jaxmarl_ppo.config.schema import check_space, find_place, places
from jaxmarl_ppo.config.search_file import read_space
from jaxmarl_ppo.config.text import read_int, read_text, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5e6", 5e6),
        (".5", 0.5),
        ("1_000", 1000),
        ("true", True),
        ("False", False),
        ("None", None),
        ("word", "word"),
        ("2020-01-01", "2020-01-01"),
        ("1.5.2", "1.5.2"),
        ("[[0, 1e-3], [1e6, 0]]", [[0, 1e-3], [1e6, 0]]),
        ("{a = 1, b.c = 'x'}", {"a": 1, "b": {"c": "x"}}),
        ('{"x": true, "y": null}', {"x": True, "y": None}),
        ('"5"', "5"),
        ("3\nother = 4", "3\nother = 4"),
        ("", ""),
    ],
)
def test_a_value_is_toml_or_json_or_a_word(text, value):
    found = read_value(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["[[0", "{[]: 1}", "{'x': 1}", "[" * 5000, '{"a":' * 900])
def test_what_begins_as_a_table_must_be_one(text):
    with pytest.raises(ValueError, match=r"neither TOML nor JSON|nested too deeply|letters"):
        read_value(text)


def test_words_are_read_by_the_type_of_their_place():
    assert read_text("5", str) == "5"
    assert read_text("none", str | None) is None
    assert read_text("none", str) == "none"
    assert [read_int(x) for x in ("1M", "10k", "1.5k", 5e6)] == [10**6, 10**4, 1500, 5 * 10**6]
    assert [read_int(x) for x in ("M", "1.0001k", "ten", 1.5)] == ["M", 1000.1, "ten", 1.5]


def from_option(name, written, write):
    flag = "--" + name.replace("_", "-")
    return parse_train(["basic", flag, written]).run.config


def from_file(name, written, write):
    is_toml = written == "true" or (written[:1] in "0123456789[" and written[-1:] != "k")
    text = written if is_toml else json.dumps(written)
    return settings("basic", None, write(f"{name} = {text}")).config


def from_search(name, written, write):
    space = read_space({name: {"choices": [read_value(written), "other"]}})
    ((path, choices),) = space.items()
    table = with_values({}, {path: choices.values[0]})
    return override(settings("basic", None, None).config, table)


ROADS = [from_option, from_file, from_search]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("name", "written", "path", "value"),
    [
        ("default_ppo.gamma", "0.5", "default_ppo.gamma", 0.5),
        ("ppo.gamma", "0.5", "default_ppo.gamma", 0.5),
        ("gamma", "0.5", "default_ppo.gamma", 0.5),
        ("ppo.learning_rate", "linear:1e-3:0", "default_ppo.learning_rate", Linear(1e-3, 0.0)),
        ("ppo.clip_eps", "[[0, 1], [9, 2]]", "default_ppo.clip_eps", ((0.0, 1.0), (9.0, 2.0))),
        ("ppo.max_grad_norm", "none", "default_ppo.max_grad_norm", None),
        ("num_envs", "10k", "num_envs", 10_000),
        ("num_envs", "1e3", "num_envs", 1_000),
        ("mapping", "agent=red", "mapping", {"agent": "red"}),
        ("hidden_sizes", "[8, 9]", "default_policy.network.hidden_sizes", (8, 9)),
        ("network.activation", "relu", "default_policy.network.activation", "relu"),
        ("policy.prev_action", "true", "default_policy.prev_action", True),
    ],
)
def test_every_road_leads_to_the_same_value(write, road, name, written, path, value):
    assert value_at(road(name, written, write), full_path(path)) == value


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("ppo.gamma", "2", r"default_ppo.gamma must be finite and lie in \[0.0, 1.0\], got 2"),
        (
            "learning_rate",
            "Linear(1e-3, 0)",
            r"default_ppo.learning_rate must be a number, linear:START:END or \[\[step, value\], "
            r"...\], got 'Linear\(1e-3, 0\)'",
        ),
        ("num_envs", "many", "num_envs must be a whole number of at least 1, got 'many'"),
        ("lstm_size", "8", r"\(network 'mlp'\) has no 'lstm_size', which is of lstm; valid: hid"),
        ("network.kind", "rnn", "default_policy.network: unknown network kind 'rnn'; valid: mlp"),
    ],
)
def test_every_road_refuses_a_value_alike(write, road, name, written, message):
    with pytest.raises(ValueError, match=message):
        road(name, written, write)


def test_a_misspelt_name_is_answered_with_the_closest_one_on_every_road(write):
    message = r"default_ppo has no 'gama'; did you mean 'gamma'\?"
    with pytest.raises(ValueError, match=message):
        settings("basic", None, write("ppo.gama = 1"))
    with pytest.raises(ValueError, match=message):
        read_space({"ppo.gama": {"low": 0.0, "high": 1.0}})
    with pytest.raises(ValueError, match=message):
        PbtConfig(space={"ppo.gama": Range(0.0, 1.0)})
    with pytest.raises(ValueError, match=message):
        config_from_dict({"default_ppo": {"gama": 1}})
    with pytest.raises(ValueError, match=r"--ppo.gama; did you mean --ppo.gamma\?"):
        parse_train(["basic", "--ppo.gama", "1"])


def test_python_keeps_its_objects():
    with pytest.raises(ValueError, match=r"must be a number, Linear\(start, end\) or"):
        PPOConfig(learning_rate="linear:1e-3:0")  # type: ignore[arg-type]


def test_a_value_may_not_be_given_under_two_names(write):
    with pytest.raises(ValueError, match=r"default_ppo.gamma is given twice, as 0.5 and as 0.6"):
        settings("basic", None, write("ppo.gamma = 0.5\ndefault_ppo.gamma = 0.6"))
    both = expand({"lstm_size": 8, "network": "lstm", "ppo": {"gamma": 0.5}, "gae_lambda": 0.25})
    assert both["default_policy"] == {"network": {"kind": "lstm", "lstm_size": 8}}
    assert both["default_ppo"] == {"gamma": 0.5, "gae_lambda": 0.25}


def test_spaces_are_kept_under_full_names():
    space = {"ppo.gamma": Range(0.5, 0.9), "env_params.max_steps": Range(1, 5)}
    assert list(check_space(space)) == ["default_ppo.gamma", "env.params.max_steps"]
    assert list(PbtConfig(space={"gamma": Range(0.5, 0.9)}).space) == ["default_ppo.gamma"]
    with pytest.raises(ValueError, match=r"space has default_ppo.gamma twice"):
        PbtConfig(space={"gamma": Range(0.5, 0.9), "ppo.gamma": Range(0.5, 0.9)})
    with pytest.raises(ValueError, match=r"of env only env.params can"):
        check_space({"env_kwargs.size": Range(1, 5)})


def test_values_are_put_into_configurations_and_tables():
    config = put(TrainConfig(), ("default_ppo", "gamma"), 0.5)
    assert config == TrainConfig(default_ppo=PPOConfig(gamma=0.5))
    table = with_values({"default_policy": {"network": "lstm"}}, {"lstm_size": 8})
    assert table == {"default_policy": {"network": {"kind": "lstm", "lstm_size": 8}}}
    with pytest.raises(ValueError, match="as a table; drop one"):
        with_values({"default_ppo": 3}, {"gamma": 0.5})


def test_the_schema_describes_every_place():
    assert all(place.about for place in places())
    assert {place.path[0] for place in places()} >= set(TrainConfig.__dataclass_fields__)
    assert find_place(("policies", "a.b", "ppo", "gamma")).name == 'policies."a.b".ppo.gamma'
    with pytest.raises(ValueError, match=r"default_ppo.gamma is a single value and has no 'x'"):
        find_place(("ppo", "gamma", "x"))
    assert all(find_place(full) for full in ALIASES.values())


def test_metadata_is_said_at_the_field():
    found = field_metadata(TrainConfig)
    assert [name for name, each in found.items() if each.resumable] == [
        *("total_env_steps", "fused_gradients", "fused_acting", "rollout_unroll", "num_devices"),
        *("log_interval", "max_minutes", "until"),
        *("checkpoints", "evaluation", "objective"),
    ]
    assert [name for name, each in found.items() if each.compares_members] == [
        *("log_interval", "evaluation", "objective")
    ]
