"""Files as tables: what YAML means here, and where a file cannot be read."""

import json
import tracemalloc

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from jaxmarl_ppo import TrainConfig, preset
from jaxmarl_ppo.config.as_json import config_to_dict, dump_json, with_explicit_network
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.config.printing import print_settings
from jaxmarl_ppo.config.run_file import settings


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
        ("a: &a [*a]", "yaml", r"alias 'a' is part of the value .* \(at line 1, column 8\)"),
        ("a: 1\n<<: {b: &b [*b]}", "yaml", r"'b' is part of the value .* column 13\)"),
        ("a: *b", "yaml", r"undefined alias 'b' \(at line 1, column 4\)"),
        ("a: !!int 1_000", "yaml", "'1_000' is no whole number of YAML 1.2"),
        ("a: 1\n1: 2\n? [b]\n: 3\na: 4", "yaml", r"'a' is there twice \(at line 5, column 1\)"),
        ('{"a": 1,\n "b": }', "json", r"at line 2, column 7\)"),
        ('{"a": 1, "a": 2}', "json", "'a' is there twice"),
        ("[" * 100_000, "json", "nested too deeply"),
        ("a: " + "[" * 5_000, "yaml", "nested too deeply"),
        ("a = " + "[" * 5_000, "toml", "nested too deeply"),
        ('{"a":' * 101 + "1" + "}" * 101, "json", "nested too deeply, by more than 100 levels"),
        (".".join("a" * 101) + " = 1", "toml", "nested too deeply, by more than 100 levels"),
        ("a: " + "[" * 101 + "]" * 101, "yaml", "nested too deeply, by more than 100 levels"),
        ("#" * 4_000_001, "toml", r"has 4,000,001 bytes; at most 4,000,000 are read"),
        ("a: [" + "1," * 100_000 + "1]", "yaml", r"more than 100,000 values, .* column 200003\)"),
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
    text = (
        "{a: off, b: no, c: 1e-3, d: 1.e3, e: true, f: 0o17, g: 1:30, h: 2020-01-01, i: .inf, "
        "j: 017, k: 0x1F, l: 1_000, m: 0b1, n: -0o7, o: +12, p: 'off', q: !!int '3'}"
    )
    assert parse_file(write(text, "yaml")) == {
        "a": "off",
        "b": "no",
        "c": 1e-3,
        "d": 1e3,
        "e": True,
        "f": 15,
        "g": "1:30",
        "h": "2020-01-01",
        "i": float("inf"),
        "j": 17,
        "k": 31,
        "l": "1_000",
        "m": "0b1",
        "n": "-0o7",
        "o": 12,
        "p": "off",
        "q": 3,
    }
    merged = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}"
    assert parse_file(write(merged, "yaml"))["own"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("entry", "first"),
    [("[{}]", "[1, 1]"), ("{{<<: [{}]}}", "{a: 1}"), ("{{x: [{}], y: 1}}", "[1]")],
)
def test_aliases_of_aliases_are_counted_before_anything_is_made_of_them(write, entry, first):
    """Thirty lines that would be a thousand million values."""
    lines = [f"v0: &v0 {first}"]
    lines += [f"v{k}: &v{k} {entry.format(f'*v{k - 1}, *v{k - 1}')}" for k in range(1, 31)]
    path = write("\n".join(lines), "yaml")
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"more than 100,000 values, .* \(at line 1\d, column \d+"):
        parse_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


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
WHOLE = json.loads(
    dump_json(config_to_dict(with_explicit_network(preset("tic_tac_toe", "league").config)))
)


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
    message = "fine"
    try:
        start = settings("basic", None, write(content, form))
    except ValueError as error:
        message = str(error)
    else:
        assert isinstance(start.config, TrainConfig)
    assert message
    assert "\n" not in message


@examples(FIXED, max_examples=100)
@given(file=FILES)
def test_any_file_is_a_configuration_or_refused_in_a_sentence(write, file):
    ends_in_a_sentence(write, *file)


@pytest.mark.slow
@examples(FIXED, max_examples=2_000)
@given(file=FILES)
def test_many_files_are_configurations_or_refused_in_a_sentence(write, file):
    ends_in_a_sentence(write, *file)
