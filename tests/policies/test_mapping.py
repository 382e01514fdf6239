"""Which policy plays which agent."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.config.mapping import Draw, Ensemble, MappingFunction, Matchups
from jaxmarl_ppo.policies.mapping import make_mapping

AGENTS = ("a", "b", "c")
CARS = ("car_0", "car_1", "bike_0")


def whole(mapping):
    """Who plays, by name, where nothing is drawn."""
    assert mapping.is_fixed
    return [mapping.names[slot[0]] for slot in mapping.candidates]


def draws(mapping, num=20_000, needed=None, held=None, occupied=None, num_agents=3):
    """`[num, A]` names of independent draws."""
    yes = np.ones(num_agents, bool)
    draw = Draw(
        episode=jnp.int32(0),
        needed=jnp.asarray(yes if needed is None else needed),
        held=jnp.zeros(num_agents, jnp.int32) if held is None else jnp.asarray(held),
        occupied=jnp.asarray(yes if occupied is None else occupied),
    )
    keys = jax.random.split(jax.random.key(0), num)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: mapping.draw_fn(key, draw)))(keys))
    return np.array(mapping.names)[drawn]


def assert_shares(names, expected):
    """Frequencies are `expected` within 4.5 standard errors, and nothing else occurs."""
    found = dict(zip(*np.unique(names, return_counts=True), strict=True))
    assert set(found) == {name for name, share in expected.items() if share > 0}
    for name, share in expected.items():
        error = np.sqrt(share * (1 - share) / len(names))
        assert abs(found.get(name, 0) / len(names) - share) <= 4.5 * error


def test_the_two_words():
    assert whole(make_mapping("shared", AGENTS)) == ["shared"] * 3
    assert make_mapping("shared", AGENTS).names == ("shared",)
    assert whole(make_mapping("per_agent", AGENTS)) == list(AGENTS)


def test_a_table_names_policies_in_the_order_of_the_agents():
    mapping = make_mapping({"c": "p", "a": "q", "b": "p"}, AGENTS)
    assert mapping.names == ("q", "p")
    assert whole(mapping) == ["q", "p", "p"]


def test_patterns_stand_for_several_agents_and_a_name_goes_before_a_pattern():
    assert whole(make_mapping({"car_*": "car", "bike_*": "bike"}, CARS)) == ["car", "car", "bike"]
    special = {"*": "any", "car_1": "mine", "bike_?": "never"}
    assert whole(make_mapping(special, CARS)) == ["any", "mine", "any"]


def test_an_agent_whose_name_reads_like_a_pattern_is_called_by_its_name():
    agents = ("car[0]", "car[1]", "car0", "what?")
    each = {agent: f"p{i}" for i, agent in enumerate(agents)}
    assert whole(make_mapping(each, agents)) == ["p0", "p1", "p2", "p3"]
    # A name is no pattern for another agent; a pattern that is no name may match both.
    with pytest.raises(ValueError, match="gives no policy to car0"):
        make_mapping({"car[0]": "p", "car[1]": "p", "what?": "p"}, agents)
    assert whole(make_mapping({"car[0]": "p", "*": "q"}, agents)) == ["p", "q", "q", "q"]


def test_an_ensemble_draws_each_agents_member_independently():
    mapping = make_mapping("ensemble:3", AGENTS)
    assert mapping.names == tuple(f"{agent}_{k}" for agent in AGENTS for k in range(3))
    assert mapping.candidates == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    names = draws(mapping)
    for slot, agent in enumerate(AGENTS):
        assert_shares(names[:, slot], {f"{agent}_{k}": 1 / 3 for k in range(3)})
    pairs = np.char.add(np.char.add(names[:, 0], "-"), names[:, 2])
    assert_shares(pairs, {f"a_{i}-c_{j}": 1 / 9 for i in range(3) for j in range(3)})


def test_weights_are_the_frequencies():
    weighted = make_mapping(Ensemble(2, weights=(3, 1)), AGENTS)
    assert_shares(draws(weighted)[:, 1], {"b_0": 0.75, "b_1": 0.25})
    table = make_mapping({"a": {"p": 0.2, "q": 0.5, "r": 0.3}, "b": ["p", "q"], "c": "s"}, AGENTS)
    names = draws(table)
    assert_shares(names[:, 0], {"p": 0.2, "q": 0.5, "r": 0.3})
    assert_shares(names[:, 1], {"p": 0.5, "q": 0.5})
    assert_shares(names[:, 2], {"s": 1.0})
    assert table.candidates == ((0, 1, 2), (0, 1), (3,))


def test_a_weight_of_zero_is_no_candidate():
    mapping = make_mapping({"a": {"p": 1.0, "q": 0.0}, "b": "q", "c": "p"}, AGENTS)
    assert mapping.is_fixed
    assert whole(mapping) == ["p", "q", "p"]


def test_a_joint_ensemble_draws_one_number_for_all():
    names = draws(make_mapping(Ensemble(3, joint=True, weights=(1, 1, 2)), AGENTS))
    teams = np.char.add(np.char.add(names[:, 0], names[:, 1]), names[:, 2])
    assert_shares(teams, {"a_0b_0c_0": 0.25, "a_1b_1c_1": 0.25, "a_2b_2c_2": 0.5})


LEAGUE = Matchups(
    ({"x": "p1", "o": "p2"}, {"x": "p3", "o": "p2"}, {"x": "p1", "o": "p4"}), (0.6, 0.2, 0.2)
)


def test_matchups_are_drawn_as_wholes():
    mapping = make_mapping(LEAGUE, ("x", "o"))
    assert mapping.names == ("p1", "p2", "p3", "p4")
    assert mapping.candidates == ((0, 2), (1, 3))
    names = draws(mapping, num_agents=2)
    pairs = np.char.add(names[:, 0], names[:, 1])
    assert_shares(pairs, {"p1p2": 0.6, "p3p2": 0.2, "p1p4": 0.2})


def test_a_rebirth_in_a_matchup_goes_by_what_the_others_hold():
    mapping = make_mapping(LEAGUE, ("x", "o"))
    needed, held = np.array([True, False]), np.array([3, 1])
    names = draws(mapping, needed=needed, held=held, num_agents=2)
    assert_shares(names[:, 0], {"p1": 0.75, "p3": 0.25})  # o holds p2: .6 against .2
    names = draws(mapping, needed=needed, held=np.array([0, 3]), num_agents=2)
    assert_shares(names[:, 0], {"p1": 1.0})
    # A slot that holds nobody binds nothing.
    alone = np.array([True, False])
    names = draws(mapping, needed=needed, held=np.array([0, 3]), occupied=alone, num_agents=2)
    assert_shares(names[:, 0], {"p1": 0.8, "p3": 0.2})
    # Nothing agrees with p1 in the seat of o: drawn among all.
    names = draws(mapping, needed=needed, held=np.array([0, 0]), num_agents=2)
    assert_shares(names[:, 0], {"p1": 0.8, "p3": 0.2})


def test_a_function_of_the_users_own():
    def by_parity(key, draw):
        del key
        return jnp.full(3, draw.episode % 2)

    mapping = make_mapping(MappingFunction(by_parity, ("even", "odd")), AGENTS)
    assert mapping.candidates == ((0, 1),) * 3
    assert set(draws(mapping, num=3).ravel()) == {"even"}
    limited = {"a": ["even"], "*": ["odd", "even"]}
    with pytest.raises(ValueError, match=r"policy 1 to agent 'a'; its candidates are 0 \(even\)"):
        make_mapping(MappingFunction(by_parity, ("even", "odd"), limited), AGENTS)


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ("per-agent", ["per-agent", "shared", "per_agent", "ensemble:K", "table"]),
        ("ensemble", ["'ensemble'", "ensemble:K"]),
        ("ensemble:0", ["at least 1", "0"]),
        ({"a": "p", "b": "p", "x": "p"}, ["'x'", "a, b, c"]),
        ({"a": "p", "b": "p"}, ["c", "p"]),
        ({"[ab]": "p"}, ["no policy to c"]),
        ({"a": "p", "d_*": "p"}, ["'d_*'", "a, b, c"]),
        ({}, ["a, b, c"]),
        ({"a": 3, "b": "p", "c": "p"}, ["3", "list of policies"]),
        ({"a": {"p": -1.0}, "b": "p", "c": "p"}, ["-1.0", "not negative"]),
        ({"a": {"p": 0.0}, "b": "p", "c": "p"}, ["not all 0"]),
        (7, ["7", "shared"]),
        (MappingFunction(lambda key, draw: draw.held[0], ("p",)), ["3 integers"]),
        (MappingFunction(lambda key, draw: draw.held, ("p",), {"*": ["q"]}), ["q", "p"]),
        (Matchups(({"a": "p", "b": "p"},)), ["no policy to c"]),
    ],
)
def test_what_is_wrong_is_said(policies, words):
    with pytest.raises(ValueError) as error:
        make_mapping(policies, AGENTS)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ensemble(True), ["True"]),
        (lambda: Ensemble(2, weights=(1.0,)), ["2 weights", "(1.0,)"]),
        (lambda: Ensemble(2, weights=(1.0, float("nan"))), ["finite", "nan"]),
        (lambda: Matchups(()), ["a list of tables", "()"]),
        (lambda: MappingFunction(lambda key, draw: draw.held, ()), ["a list of names", "()"]),
        (lambda: MappingFunction(lambda key, draw: draw.held, ("p", "p")), ["'p' twice"]),
        (lambda: Matchups(({"a": "p"},), (1.0, 2.0)), ["1 matchups", "2.0"]),
    ],
)
def test_what_is_wrong_is_said_at_once(make, words):
    with pytest.raises(ValueError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_a_function_that_depends_on_more_than_its_arguments_is_refused():
    calls = itertools.count()
    changing = MappingFunction(lambda key, draw: jnp.full(3, next(calls) % 2), ("a", "b"))
    with pytest.raises(ValueError, match=r"returned \[., ., .\] and then .*draw random numbers fr"):
        make_mapping(changing, AGENTS)
