"""Values of any kind in RLlib's configuration: translated, or refused in one sentence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmarl_ppo.config.rllib.keys import LOST, MODEL, MODEL_LOST, RENAMED, TRANSLATED
from jaxmarl_ppo.config.rllib.machinery import MACHINERY
from jaxmarl_ppo.config.rllib.translate import translate_rllib_config
from jaxmarl_ppo.config.train import TrainConfig

KEYS = sorted({*TRANSLATED, *RENAMED, "multiagent"})
INNER = sorted({*KEYS, *MODEL, *MODEL_LOST, "policy_class", "config", "model_config", "type"})
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-1, 4)
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "auto", "tanh", 10**400])
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(INNER), inner, max_size=3)
    ),
    max_leaves=6,
)
CONFIGS = st.dictionaries(
    st.sampled_from(KEYS) | st.sampled_from(sorted({*LOST, *MACHINERY})),
    VALUES,
    min_size=1,
    max_size=3,
)


def keys_in(value):
    if isinstance(value, list):
        return {key for item in value for key in keys_in(item)}
    if not isinstance(value, dict):
        return set()
    return {*value}.union(*map(keys_in, value.values()))


def rejection(config):
    try:
        translation = translate_rllib_config(config)
    except ValueError as error:
        return str(error)
    assert isinstance(translation.config, TrainConfig)
    return None


def check(config):
    text = rejection(config)
    if text is not None:
        assert "\n" not in text
        names = [name for key in keys_in(config) for name in (key, RENAMED.get(key) or key)]
        assert any(name.lstrip("_") in text for name in names), text


@settings(max_examples=100, deadline=None, derandomize=True)
@given(CONFIGS)
def test_a_config_is_translated_or_refused_in_a_sentence(config):
    check(config)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, derandomize=True)
@given(CONFIGS)
def test_many_configs_are_translated_or_refused_in_a_sentence(config):
    check(config)
