"""Records that are damaged: whatever is wrong with one, `load_run` says so in a sentence."""

import copy
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxmarl_envs
from jaxmarl_ppo import PolicySpec, PPOConfig, Snapshots, TrainConfig
from jaxmarl_ppo.config.as_json import dump_json
from jaxmarl_ppo.runs.run_folder import load_run, run_record

ENV, PARAMS = jaxmarl_envs.make("crypto")
CONFIG = TrainConfig(
    num_envs=4,
    num_steps=8,
    mapping={"eve_0": ["eve", "past"], "bob_0": "good", "alice_0": {"good": 1.0}},
    policies={
        "eve": PolicySpec(network="lstm", ppo=PPOConfig(learning_rate=((0.0, 1e-3), (9.0, 0.0)))),
        "past": Snapshots("eve", size=2, add_every=3),
    },
)
RECORD = json.loads(dump_json(run_record(ENV, PARAMS, CONFIG)))
VALUES = [None, True, -1, 0, 2.5, 1e30, 10**30, "", "x", "none", [], [1, 2], ["x", 0], {}]
VALUES += [{"kind": "custom"}, {"linear": [1]}, {"kind": None}, {"array": [None], "dtype": "int32"}]
FIXED = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def places(data, path=()):
    """Paths of everything in a record that a run is rebuilt from."""
    yield path
    if not isinstance(data, dict | list):
        return
    for key, child in data.items() if isinstance(data, dict) else enumerate(data):
        if path or key not in ("versions", "platform"):
            yield from places(child, (*path, key))


PLACES = [path for path in places(RECORD) if path]


def put(record, path, value):
    """Change a copy of a record at a place; the place may be gone by an earlier change."""
    record = copy.deepcopy(record)
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return record


def put_all(changes):
    record = RECORD
    for path, value in changes:
        try:
            record = put(record, path, value)
        except (LookupError, TypeError):
            continue
    return json.dumps(record).encode()


STRUCTURES = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from([..., *VALUES])), min_size=1, max_size=3
).map(put_all)
WHOLE = json.dumps(RECORD).encode()
BYTES = st.one_of(
    st.integers(0, len(WHOLE) - 1).map(lambda end: WHOLE[:end]),
    st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=4)).map(
        lambda cut: WHOLE[: cut[0]] + cut[1] + WHOLE[cut[0] + len(cut[1]) :]
    ),
    st.binary(max_size=40),
)


def check(folder, content):
    """A record, damaged or not, ends in one sentence, since this run saved no parameters."""
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError) as caught:
        load_run(folder)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 1000
    return message


def test_the_record_itself_is_sound(tmp_path):
    assert "the run saved no parameters" in check(tmp_path, WHOLE)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("config", "default_ppo", "gamma"),
            [1, 2],
            "a point of default_ppo.gamma must be a",
        ),
        (("config", "policies", "eve", "ppo", "gamma"), "1", "policies.eve.ppo.gamma must be"),
        (("env", "agents"), ["x", 0], "an element of env.agents must be a word, got 0"),
        (("env", "agents"), None, "env.agents must be a list of names, got None"),
        (("env", "name"), ..., "env lacks name"),
        (("env", "make", "kwargs"), ..., "env.make lacks kwargs"),
        (("env", "make"), [], r"env.make must be a table, got \[\]"),
        (("env", "params", "max_steps"), "long", "env.params.max_steps must be a whole number"),
        (("env", "params"), None, "env.params must be a table, got None"),
        (("env",), [], r"env must be a table, got \[\]"),
        (("config",), [], r"the configuration must be a table, got \[\]"),
        (("config", "num_envs"), 1e30, "num_envs must be a whole number of at most"),
        (("config", "policies", "past", "of"), ..., "policies.past lacks of"),
        (("config", "default_policy", "network", "hidden_sizes"), ["a"], "hidden_sizes must be a"),
        (("config", "default_policy", "network", "dtype"), "f4", "unknown default_policy.network"),
        (("format",), [2], r"has format \[2\]"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, path, value, message):
    assert re.search(message, check(tmp_path, json.dumps(put(RECORD, path, value)).encode()))


@settings(FIXED, max_examples=60)
@given(content=STRUCTURES | BYTES)
def test_a_damaged_record_is_told_in_a_sentence(tmp_path, content):
    check(tmp_path, content)


@pytest.mark.slow
@settings(FIXED, max_examples=500)
@given(content=STRUCTURES | BYTES)
def test_many_damaged_records_are_told_in_a_sentence(tmp_path, content):
    check(tmp_path, content)
