"""Which policy plays which agent."""

import pytest

from jaxmarl_ppo.mapping import make_mapping

AGENTS = ("a", "b", "c")


def test_the_two_words():
    shared = make_mapping("shared", AGENTS)
    assert (shared.names, shared.slot_policy) == (("shared",), (0, 0, 0))
    own = make_mapping("per_agent", AGENTS)
    assert (own.names, own.slot_policy) == (AGENTS, (0, 1, 2))


def test_a_table_names_policies_in_the_order_of_the_agents():
    mapping = make_mapping({"c": "p", "a": "q", "b": "p"}, AGENTS)
    assert (mapping.names, mapping.slot_policy) == (("q", "p"), (0, 1, 1))


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ("per-agent", ["per-agent", "shared", "per_agent", "table"]),
        ({"a": "p", "b": "p", "x": "p"}, ["'x'", "a, b, c"]),
        ({"a": "p", "b": "p"}, ["c", "p"]),
        ({}, ["a, b, c"]),
    ],
)
def test_what_is_wrong_is_said(policies, words):
    with pytest.raises(ValueError) as error:
        make_mapping(policies, AGENTS)
    for word in words:
        assert word in str(error.value)
