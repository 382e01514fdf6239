"""Whatever a field of a configuration is given, it is kept whole or refused by name."""

import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmarl_ppo import (
    MLP,
    Ensemble,
    Linear,
    MappingFunction,
    Matchups,
    PbtConfig,
    PolicySpec,
    PPOConfig,
    Range,
    Scripted,
    Snapshots,
    TrainConfig,
)
from jaxmarl_ppo.config.as_json import config_from_dict, config_to_dict, dump_json


def draw_first(key, draw):
    return jnp.zeros(2, jnp.int32)


# What is needed to make one of each.
CLASSES = {
    PPOConfig: {},
    PolicySpec: {},
    TrainConfig: {},
    Linear: {"start": 1.0},
    PbtConfig: {"space": {"default_ppo.gamma": Range(0.5, 0.9)}},
    Snapshots: {"of": "main", "add_every": 1},
    Scripted: {"script": "random"},
    Ensemble: {"size": 2},
    Matchups: {"tables": ({"*": "main"},)},
    MappingFunction: {"function": draw_first, "policies": ("a", "b")},
}
FIELDS = [(cls, f.name) for cls in CLASSES for f in dataclasses.fields(cls)]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31 - 1, 2**31, 2**32, 2**63, 10**30, 10**400]),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["off", "ppo2", "mlp", "random", "uniform", "latest", "shared", "step"]),
    st.sampled_from([1j, b"x", object(), int, len, MLP(), MLP, np.float32(0.5), np.int64(3)]),
    st.sampled_from([np.bool_(1), np.array(0.5), np.array([1, 2]), np.array("x"), jnp.ones(())]),
    st.sampled_from([PPOConfig(), PolicySpec(), Linear(1.0), Ensemble(2), Scripted("random")]),
)
keys = st.one_of(st.text(max_size=2), st.none(), st.integers())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=2),
        st.frozensets(st.integers(), max_size=2),
    ),
    max_leaves=6,
)


def make(cls, name, value):
    return cls(**{**CLASSES[cls], name: value})


def as_config(made):
    """A configuration that holds it, if a file can."""
    if isinstance(made, PPOConfig):
        return TrainConfig(default_ppo=made)
    if isinstance(made, PolicySpec) and isinstance(made.network, str):
        return TrainConfig(default_policy=made)
    if isinstance(made, Snapshots):
        return TrainConfig(policies={"past": made})
    if isinstance(made, Ensemble | Matchups):
        return TrainConfig(mapping=made)
    return made if isinstance(made, TrainConfig) else None


@pytest.mark.parametrize(("cls", "name"), FIELDS)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(value=values)
def test_any_value_can_be_recorded_or_is_refused_in_a_sentence_that_names_the_field(
    cls, name, value
):
    rejection, made = None, None
    try:
        made = cls(**{**CLASSES[cls], name: value})
    except ValueError as error:
        rejection = error
    if rejection is not None:
        assert name in str(rejection)
        assert "\n" not in str(rejection)
        return
    config = as_config(made)
    if config is not None:
        assert config_from_dict(json.loads(dump_json(config_to_dict(config)))) == config


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.array(0.5), jnp.ones(())])
def test_numbers_of_other_libraries_become_pythons(number):
    assert type(PPOConfig(gamma=number).gamma) is float
    assert type(TrainConfig(num_envs=np.int32(4)).num_envs) is int
    assert type(PolicySpec(prev_action=np.bool_(1)).prev_action) is bool


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPOConfig(gamma=None), r"gamma must be a number, Linear.*, got None"),
        (lambda: PPOConfig(gae_lambda=None), r"gae_lambda must be a number, .*, got None"),
        (lambda: PPOConfig(clip_eps=None), r"clip_eps must be a number, .*, got None"),
        (lambda: PPOConfig(value_coef=None), r"value_coef must be a number, .*, got None"),
        (lambda: PPOConfig(adam_eps=None), "adam_eps must be positive and finite, got None"),
        (lambda: PPOConfig(num_epochs=None), "num_epochs must be a whole number .*, got None"),
        (lambda: PPOConfig(gamma=".9"), r"gamma must be a number, .*, got '.9'"),
        (lambda: PPOConfig(gamma=[1, 2]), r"a point of gamma must be a pair .*, got 1"),
        (lambda: PPOConfig(adam_eps=Linear(0.2, 0.05)), r"adam_eps must be .*, got Linear\(start"),
        (lambda: PPOConfig(normalise_advantages="no"), "must be True or False, got 'no'"),
        (lambda: PPOConfig(learning_rate=((0, None),)), "a value of learning_rate must be finite"),
        (lambda: PPOConfig(learning_rate=None), "learning_rate must be a number, Linear"),
        (lambda: Linear("1"), "start of Linear must be a finite number, got '1'"),
        (lambda: TrainConfig(total_env_steps=None), "total_env_steps must be a whole number"),
        (lambda: TrainConfig(seed="1"), "seed must be a whole number of at least 0, got '1'"),
        (lambda: TrainConfig(seed=2**32), "seed must be a whole number of at most 4294967295"),
        (lambda: TrainConfig(num_envs=10**20), "num_envs must be a whole number of at most 2147"),
        (lambda: TrainConfig(stagger_starts="no"), "stagger_starts must be True or False"),
        (lambda: TrainConfig(default_ppo={"gamma": 0.9}), "default_ppo must be a PPOConfig, got {"),
        (lambda: TrainConfig(default_ppo=None), "default_ppo must be a PPOConfig, got None"),
        (lambda: TrainConfig(mapping=5), "a policy mapping cannot be made from 5; valid: 'shared'"),
        (lambda: TrainConfig(mapping={None: "a"}), "an agent in mapping must be a word, got None"),
        (lambda: TrainConfig(mapping={"x": 3}), r"mapping\['x'\] must be a policy, a list of pol"),
        (lambda: TrainConfig(mapping={"x": ["a", "a"]}), r"mapping\['x'\] names 'a' twice"),
        (lambda: TrainConfig(mapping={"x": {"a": "1"}}), "one of the weights of mapping.* got '1'"),
        (lambda: TrainConfig(policies={3: PolicySpec()}), "a policy in policies must be a word"),
        (lambda: PolicySpec(prev_action="no"), "prev_action must be True or False, got 'no'"),
        (lambda: PolicySpec(ppo={"gamma": 0.9}), "ppo must be a PPOConfig, got {'gamma': 0.9}"),
        (lambda: PolicySpec(load=3), "load must be RUN_DIR:POLICY or RUN_DIR, .* got 3"),
        (lambda: Matchups(tables=5), "tables of matchups must be a list of tables .* got 5"),
        (lambda: Matchups([{"x": ["a"]}]), r"tables of matchups\[0\]\['x'\] must be a word"),
        (lambda: Ensemble("3"), "size of an ensemble must be a whole number .* got '3'"),
        (lambda: Ensemble(2, weights=(0, 0)), "weights of an ensemble must be numbers that"),
        (lambda: Ensemble(2, joint=1), "joint of an ensemble must be True or False, got 1"),
        (lambda: Snapshots(None, add_every=1), "of of snapshots must be a word, got None"),
        (lambda: Snapshots("a", add_at_win_rate="x"), "add_at_win_rate of snapshots must be posit"),
        (lambda: Scripted(3), "script must be 'random', the name of a baseline or a function"),
        (lambda: MappingFunction(3, ("a",)), "function of a mapping function must be a function"),
        (lambda: MappingFunction(draw_first, ("a", "a")), "policies of .* names 'a' twice"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_huge_value_does_not_fill_the_screen():
    with pytest.raises(ValueError, match=r"adam_eps must .*\.\.\.$") as caught:
        PPOConfig(adam_eps=list(range(10_000)))
    assert len(str(caught.value)) < 300


WRONG_NAMES = [
    "",
    ".",
    "..",
    "a\nb",
    "\x1b[31m",
    "x" * 101,
    "\ud800",
    "a\N{RIGHT-TO-LEFT OVERRIDE}b",
]
PLACES_OF_NAMES = {
    "a policy in policies": lambda name: TrainConfig(policies={name: PolicySpec()}),
    "of of snapshots": lambda name: Snapshots(of=name, add_every=1),
    "mapping['x']": lambda name: TrainConfig(mapping={"x": name}),
    "the policies of mapping['x']": lambda name: TrainConfig(mapping={"x": {name: 1.0}}),
    "mapping['x'] ": lambda name: TrainConfig(mapping={"x": ["a", name]}),
    "tables[0]['x'] of matchups": lambda name: Matchups(tables=({"x": name},)),
    "policies of a mapping function": lambda name: MappingFunction(len, (name,)),
    "candidates": lambda name: MappingFunction(len, ("a",), {"x": (name,)}),
}


@pytest.mark.parametrize("place", PLACES_OF_NAMES)
@pytest.mark.parametrize("name", WRONG_NAMES, ids=repr)
def test_a_policy_is_not_called_what_cannot_be_written_everywhere(place, name):
    with pytest.raises(ValueError, match=re.escape(repr(name))) as caught:
        PLACES_OF_NAMES[place](name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a/b", "car[0]", "Größe 3", "x" * 100, "past.1", "...", "con"])
def test_a_policy_is_called_like_any_agent(name):
    for make in PLACES_OF_NAMES.values():
        make(name)


def test_pools_whose_names_would_be_one_folder_are_refused():
    pool = Snapshots(of="a", add_every=1)
    TrainConfig(policies={"past": pool, "Past": PolicySpec()})
    with pytest.raises(ValueError, match="the snapshots 'Past' and others whose name differs in"):
        TrainConfig(policies={"past": pool, "Past": pool})
