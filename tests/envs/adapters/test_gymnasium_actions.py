"""Gymnasium's action spaces as choices and numbers, their masks in every form, and back."""

import numpy as np
import pytest
from gymnasium import spaces

from jaxmarl_envs.adapters.incoming.gymnasium_actions import read_actions
from jaxmarl_envs.adapters.incoming.gymnasium_masks import legal_options
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import read_spaces
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple

FINITE = {
    "discrete": (spaces.Discrete(3, start=2), (3,)),
    "multi_discrete": (spaces.MultiDiscrete([3, 1, 4]), (3, 1, 4)),
    "from_elsewhere": (spaces.MultiDiscrete([2, 3], start=[5, -1]), (2, 3)),
    "table": (spaces.MultiDiscrete([[2, 3], [1, 2]]), (2, 3, 1, 2)),
    "binary": (spaces.MultiBinary(3), (2, 2, 2)),
    "integers": (spaces.Box(np.array([[-1, 5]]), np.array([[1, 5]]), dtype=np.int64), (3, 1)),
    "bytes": (spaces.Box(253, 255, (2,), np.uint8), (3, 3)),
    "number": (spaces.Box(-2, 2, (), np.int8), (5,)),
    "tuple": (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3, start=1)]), (2, 3)),
    "nested": (
        spaces.Dict(
            {
                "a": spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 2])]),
                "b": spaces.Discrete(2),
            }
        ),
        (2, 2, 2, 2),
    ),
}
NOTHING = np.zeros(0, np.float32)


def plain(action):
    """An action as lists and numbers, so that two can be compared."""
    if isinstance(action, dict):
        return [(key, plain(part)) for key, part in action.items()]
    if isinstance(action, tuple):
        return [plain(part) for part in action]
    return np.asarray(action).tolist()


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", FINITE)
def test_every_combination_of_options_is_another_action(name, joint):
    space, counts = FINITE[name]
    actions = read_actions(space, joint)
    assert actions.counts == counts
    if joint or len(counts) == 1:
        assert actions.space == Discrete(int(np.prod(counts)))
        learned = [[number] for number in range(actions.space.n)]
    else:
        assert actions.space == MultiDiscrete(counts)
        learned = [list(index) for index in np.ndindex(*counts)]
    own = [actions.own(np.array(choices), NOTHING) for choices in learned]
    assert all(space.contains(action) for action in own)
    shown = [str(plain(action)) for action in own]
    assert len(set(shown)) == len(shown) == np.prod(counts)
    # Combinations are counted in the order of `numpy.ndindex`.
    factored = read_actions(space)
    expected = [factored.own(np.array(index), NOTHING) for index in np.ndindex(*counts)]
    assert shown == [str(plain(action)) for action in expected]


def test_choices_and_numbers_go_back_to_their_places():
    box = spaces.Box(-1.0, 1.0, (2, 1))
    space = spaces.Tuple(
        [box, spaces.Discrete(3), spaces.Dict({"x": spaces.Box(0, 9, (1,), np.float64),
                                               "y": spaces.MultiBinary(2)})]
    )  # fmt: skip
    actions = read_actions(space)
    assert actions.counts == (3, 2, 2)
    choices, numbers = actions.space.spaces
    assert isinstance(actions.space, Tuple)
    assert choices == MultiDiscrete((3, 2, 2))
    np.testing.assert_array_equal(numbers.low, [-1, -1, 0])
    np.testing.assert_array_equal(numbers.high, [1, 1, 9])
    own = actions.own(np.array([2, 0, 1]), np.array([0.5, -7.0, 4.0], np.float32))
    assert space.contains(own)
    # Numbers beyond a bound are clipped.
    assert plain(own) == [[[0.5], [-1.0]], 2, [("x", [4.0]), ("y", [0, 1])]]
    assert own[2]["x"].dtype == np.float64


def test_boxes_are_put_side_by_side():
    first, second = spaces.Box(-1.0, 1.0, (2,)), spaces.Box(0.0, 9.0, (1, 2), np.float64)
    actions = read_actions(spaces.Tuple([first, second]))
    assert isinstance(actions.space, Box)
    np.testing.assert_array_equal(actions.space.high, [1, 1, 9, 9])
    own = actions.own(np.zeros(0, int), np.array([0.5, 7.0, 3.0, 4.0], np.float32))
    assert plain(own) == [[0.5, 1.0], [[3.0, 4.0]]]
    assert (own[0].dtype, own[1].dtype) == (np.float32, np.float64)


def test_a_box_of_one_number_without_an_axis_is_a_number():
    space = spaces.Box(-1.0, 1.0, ())
    actions = read_actions(space)
    assert actions.space.shape == (1,)
    own = actions.own(np.zeros(0, int), np.array([7.0], np.float32))
    assert isinstance(own, np.ndarray)
    assert own == 1.0
    assert space.contains(own)


def test_a_box_may_lack_bounds():
    space = spaces.Box(np.array([0.0, -np.inf]), np.array([np.inf, 1e300]), dtype=np.float64)
    actions = read_actions(space)
    assert actions.low.tolist() == [0.0, -np.inf]
    assert actions.high.tolist() == [np.inf, np.inf]
    own = actions.own(np.zeros(0, int), np.array([-2.0, -1e30], np.float32))
    assert own.tolist() == [0.0, np.float32(-1e30)]
    assert space.contains(own)


@pytest.mark.parametrize(
    ("space", "joint", "message"),
    [
        (spaces.MultiDiscrete([200, 200]), True, "40,000 combinations are more than the 10,000"),
        (spaces.Box(0, 10_000, (2,), int), False, "has 10,001 values, more than the 10,000"),
        (spaces.Box(-np.inf, np.inf, (2,), np.int64), False, "of integers has 18,446,744"),
        (spaces.Box(0, 1, (0,)), False, "at least one element"),
        (spaces.Text(3), False, "Text cannot be played; an action space is a Discrete, Multi"),
        (spaces.Sequence(spaces.Discrete(2)), False, "Sequence cannot be played"),
        (spaces.OneOf([spaces.Discrete(2)] * 2), False, "OneOf cannot be played"),
        (spaces.Graph(spaces.Discrete(2), None), False, "Graph cannot be played"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]), False, "Text cannot be played"),
        (spaces.Tuple([]), False, "it is empty"),
    ],
)
def test_what_cannot_be_played_is_refused(space, joint, message):
    with pytest.raises(ValueError, match=message):
        read_actions(space, joint)
    observed = spaces.Box(0.0, 1.0, (1,))
    with pytest.raises(ValueError, match="agent 'a' has the action space"):
        read_spaces({"a": (observed, space), "b": (observed, spaces.MultiBinary(2))}, joint=joint)


TWO_AND_THREE = [[True, False], [False, True, True]]
PAIRS = [x and y for x in TWO_AND_THREE[0] for y in TWO_AND_THREE[1]]
FORMS = {
    "box of integers": (
        spaces.Box(np.array([4, -1]), np.array([5, 1]), dtype=np.int32),
        TWO_AND_THREE,
    ),
    "list of lists": (spaces.MultiDiscrete([2, 3]), TWO_AND_THREE),
    "tuple of arrays": (spaces.MultiDiscrete([2, 3]), tuple(map(np.array, TWO_AND_THREE))),
    "in one row": (spaces.MultiDiscrete([2, 3]), np.array([1, 0, 0, 1, 1], np.int8)),
    "floats in one row": (spaces.MultiDiscrete([2, 3]), [1.0, 0.0, 0.0, 1.0, 1.0]),
    "tuple": (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), tuple(TWO_AND_THREE)),
    "tuple in one row": (
        spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), [1, 0, 0, 1, 1],
    ),
    "dictionary": (
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}),
        {"b": [0, 1, 1], "a": np.array([True, False])},
    ),
    "beside a Box": (
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,)), spaces.Discrete(3)]),
        ([1, 0], None, [0, 1, 1]),
    ),
    "nested": (
        spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2)]), "b": spaces.MultiDiscrete([3])}),
        {"a": ([1, 0],), "b": [0, 1, 1]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_mask_of_each_choice_in_every_form(name):
    space, mask = FORMS[name]
    actions = read_actions(space)
    for joint in (None, False):
        legal = legal_options(space, actions, mask, joint)
        assert [own.tolist() for own in legal] == TWO_AND_THREE
    (legal,) = legal_options(space, actions, mask, joint=True)
    assert legal.tolist() == PAIRS


def test_parts_without_a_mask_are_all_legal():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiBinary(2)})
    assert legal_options(space, read_actions(space), {}, None) == [None] * 3
    legal = legal_options(space, read_actions(space), {"b": ([0, 1], [1, 1])}, None)
    assert legal[0] is None
    assert [own.tolist() for own in legal[1:]] == [[False, True], [True, True]]


def test_a_tuple_without_any_mask_is_all_legal():
    space = spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (1,))])
    assert legal_options(space, read_actions(space), (None, None), None) == [None]


def test_gymnasiums_own_mask_of_bits():
    # 0 and 1 are what a bit must be, 2 is either.
    space = spaces.MultiBinary(3)
    legal = legal_options(space, read_actions(space), np.array([0, 1, 2], np.int8), None)
    assert [own.tolist() for own in legal] == [[True, False], [False, True], [True, True]]
    space.seed(0)
    drawn = np.array([space.sample(mask=np.array([0, 1, 2], np.int8)) for _ in range(20)])
    assert [set(bits) for bits in drawn.T] == [{0}, {1}, {0, 1}]


# Of each case a mask of combinations that can also be read as one of each choice.
AMBIGUOUS = {
    "pairs": (spaces.MultiDiscrete([2, 2]), [1, 0, 0, 1]),
    "a square": (spaces.MultiDiscrete([2, 2]), [[1, 0], [0, 1]]),
    "tuple": (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), np.array([1, 0, 0, 1])),
    "bits": (spaces.MultiBinary(2), [1, 0, 0, 1]),
    "1, 2, 3": (spaces.MultiDiscrete([1, 2, 3]), [1, 0, 0, 1, 1, 0]),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_mask_that_can_be_read_in_two_ways_is_declared(name):
    space, mask = AMBIGUOUS[name]
    actions = read_actions(space)
    with pytest.raises(ValueError, match="give joint=False if it is for each choice, or joint=T"):
        legal_options(space, actions, mask, None)
    (combinations,) = legal_options(space, actions, mask, joint=True)
    assert combinations.tolist() == [bool(x) for x in np.ravel(mask)]
    each = legal_options(space, actions, mask, joint=False)
    assert np.concatenate(each).tolist() == [bool(x) for x in np.ravel(mask)]


def test_a_mask_of_combinations_needs_them_learned_as_one():
    space, mask = spaces.MultiDiscrete([2, 3]), np.array(PAIRS)
    for form in (mask, mask.reshape(2, 3)):
        (legal,) = legal_options(space, read_actions(space), form, joint=True)
        assert legal.tolist() == PAIRS
        for joint in (None, False):
            with pytest.raises(ValueError, match=r"is of all 6 combinations .* give joint=True"):
                legal_options(space, read_actions(space), form, joint)


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (spaces.Discrete(3), [1, 0], r"which does not have the shape \(3,\)"),
        (spaces.Discrete(3), [0.0, -np.inf, 0.0], "neither True, False, 1 nor 0"),
        (spaces.Discrete(2), ["yes", "no"], "neither True, False, 1 nor 0"),
        (spaces.MultiDiscrete([2, 3]), np.ones(4), "one entry for each choice, of 2, 3 options"),
        (spaces.MultiDiscrete([2, 3]), [[1, 0], [1, 0]], "one entry for each choice"),
        (spaces.MultiBinary(3), [0, 1, 3], "other than 0, 1 and 2"),
        (spaces.Dict({"a": spaces.MultiBinary(2)}), {"b": [1, 1]}, "keys among 'a'"),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,)), spaces.Discrete(3)]),
            ([1, 0], [0], [1, 1, 1]),
            "makes something illegal in a space without choices",
        ),
        (spaces.Box(-1, 1, (2,)), [True, False], "illegal in a space without choices"),
        (spaces.Box(-1, 1, (2,)), {"low": [0, 0]}, "illegal in a space without choices"),
    ],
)
def test_what_is_no_mask_is_told_with_agent_and_space(space, mask, message):
    (agent,) = read_spaces({"a": (spaces.Box(0.0, 1.0, (1,)), space)})
    with pytest.raises(ValueError, match=message) as caught:
        agent.legal(None, {"action_mask": mask})
    assert str(caught.value).startswith("agent 'a' has the action_mask ")
    assert str(space) in str(caught.value)


@pytest.mark.parametrize("mask", [None, np.ones(2, bool), [], [[1, 1], [1, 1]]])
def test_a_mask_of_a_space_without_choices_may_allow_everything(mask):
    (agent,) = read_spaces({"a": (spaces.Box(0.0, 1.0, (1,)), spaces.Box(-1, 1, (2,)))})
    assert not agent.legal(None, {"action_mask": mask})
    tuple_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))])
    (legal,) = legal_options(tuple_space, read_actions(tuple_space), ([1, 0], mask), None)
    assert legal.tolist() == [True, False]


def test_joint_without_several_choices_has_no_effect():
    pair = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(3)
    with pytest.raises(ValueError, match="joint=True has no effect"):
        read_spaces({"a": pair}, joint=True)


def test_drawn_actions_are_legal():
    space = spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 2, (1,))])
    (agent,) = read_spaces({"a": (spaces.Box(0.0, 1.0, (1,)), space)})
    rng = np.random.default_rng(0)
    info = {"action_mask": (TWO_AND_THREE, None)}
    drawn = [agent.draw(rng, None, info) for _ in range(50)]
    assert all(space.contains(action) for action in drawn)
    assert {tuple(action[0].tolist()) for action in drawn} == {(0, 1), (0, 2)}
    assert np.ptp([action[1] for action in drawn]) > 2
