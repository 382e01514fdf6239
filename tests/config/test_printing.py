"""Printed files: every line is explained, and what is read from one is what was printed."""

import dataclasses

import pytest
import yaml

import jaxmarl_envs
from jaxmarl_ppo import (
    GRU,
    LSTM,
    PRESETS,
    Ensemble,
    MinGRU,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    TrainConfig,
    preset,
)
from jaxmarl_ppo.config.annotations import attributes_of
from jaxmarl_ppo.config.as_json import with_explicit_network
from jaxmarl_ppo.config.env_as_json import params_from_json, params_to_json
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.config.presets import FOR_ALL
from jaxmarl_ppo.config.printing import print_settings
from jaxmarl_ppo.config.run_file import EnvTable, RunFile, settings

# Of Craftax, which is not beside the other libraries, tests/envs/adapters/test_craftax.py does.
ALL = sorted(
    {(name.partition("/")[0], name.partition("/")[2]) for name in PRESETS if "craftax" not in name}
    | {(env, variant) for env in jaxmarl_envs.names() for variant in ("", *FOR_ALL)}
)


@pytest.mark.rare_cases(
    *(
        f"{env}-{variant}-{form}"
        for env, variant in ALL
        for form in ("toml", "yaml")
        if env == "gymnax"
        or (env == "jaxmarl" and variant not in ("", "rllib", "smax_3m_theirs"))
        or (env == "jumanji" and variant != "rware_tiny_2ag")
        or (variant == "slow_env" and env != "crypto")
    )
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
    if form == "yaml":  # also to readers of version 1.1
        assert yaml.safe_load(path.read_text()) == parse_file(path)
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
    [
        TrainConfig,
        PPOConfig,
        PolicySpec,
        Snapshots,
        Scripted,
        Ensemble,
        RunFile,
        EnvTable,
        LSTM,
        GRU,
        MinGRU,
    ],
)
def test_docstrings_name_all_attributes(cls):
    about = attributes_of(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.name not in ("parent", "name")]
    assert all(about.get(name) for name in names)
    if cls is PPOConfig:
        assert (
            about["value_coef"]
            == "weight of the value loss (half the squared error); or a schedule."
        )
        assert about["kl_control"].endswith("a KL term whose weight adapts towards `target_kl`.")
