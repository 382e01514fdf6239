"""Gymnasium's action spaces as one choice or one vector, and back."""

import itertools

import numpy as np
import pytest
from gymnasium import spaces

from jaxmarl_envs.adapters.incoming.gymnasium_actions import join_masks, read_actions
from jaxmarl_envs.spaces import Box, Discrete

FINITE = {
    "discrete": spaces.Discrete(3, start=2),
    "multi_discrete": spaces.MultiDiscrete([3, 1, 4]),
    "from_elsewhere": spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "table": spaces.MultiDiscrete([[2, 3], [1, 2]]),
    "binary": spaces.MultiBinary(3),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3, start=1)]),
    "nested": spaces.Dict(
        {
            "a": spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 2])]),
            "b": spaces.Discrete(2),
        }
    ),
}


def plain(action):
    """An action as lists and numbers, so that two can be compared."""
    if isinstance(action, dict):
        return [(key, plain(part)) for key, part in action.items()]
    if isinstance(action, tuple):
        return [plain(part) for part in action]
    return np.asarray(action).tolist()


@pytest.mark.parametrize("name", FINITE)
def test_every_combination_of_choices_is_one_choice(name):
    space = FINITE[name]
    actions = read_actions(space)
    assert isinstance(actions.space, Discrete)
    own = [actions.own(np.int32(number)) for number in range(actions.space.n)]
    assert all(space.contains(action) for action in own)
    shown = [str(plain(action)) for action in own]
    assert len(set(shown)) == len(shown) == np.prod(actions.counts)


def test_choices_are_counted_as_numpy_counts():
    actions = read_actions(spaces.MultiDiscrete([2, 3]))
    own = [actions.own(np.int32(number)).tolist() for number in range(6)]
    assert own == [list(index) for index in np.ndindex(2, 3)]


def test_boxes_are_put_side_by_side():
    first, second = spaces.Box(-1.0, 1.0, (2,)), spaces.Box(0.0, 9.0, (1, 2), np.float64)
    actions = read_actions(spaces.Tuple([first, second]))
    assert isinstance(actions.space, Box)
    np.testing.assert_array_equal(actions.space.high, [1, 1, 9, 9])
    own = actions.own(np.array([0.5, 7.0, 3.0, 4.0, 99.0], np.float32))
    np.testing.assert_array_equal(own[0], [0.5, 1.0])
    np.testing.assert_array_equal(own[1], [[3.0, 4.0]])
    assert (own[0].dtype, own[1].dtype) == (np.float32, np.float64)
    assert read_actions(spaces.Tuple([first, second])).space.size == 4


def test_masks_of_choices_are_one_of_their_combinations():
    masks = [np.array([1, 0], bool), np.array([1, 1, 0], bool), np.array([0, 1], bool)]
    joint = join_masks(masks)
    for number, index in enumerate(np.ndindex(2, 3, 2)):
        assert joint[number] == all(mask[i] for mask, i in zip(masks, index, strict=True))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.MultiDiscrete([200, 200]), "40,000 combinations are more than the 10,000"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]), "Boxes at once cannot"),
        (spaces.Box(0, 9, (2,), int), "must hold floats"),
        (spaces.Box(0, np.inf, (2,)), "must have finite bounds"),
        (spaces.Text(3), "what can be played is a Discrete, a Box with finite bounds, or several"),
    ],
)
def test_what_cannot_be_played_is_refused(space, message):
    with pytest.raises(ValueError, match=message):
        read_actions(space)


def test_a_mask_of_each_choice_or_of_all_combinations():
    from jaxmarl_envs.adapters.incoming.gymnasium_spaces import read_spaces

    observed = spaces.Box(0.0, 1.0, (1,))
    (agent,) = read_spaces({"a": (observed, spaces.MultiDiscrete([2, 3]))})
    masks = [1, 0], [0, 1, 1]
    joint = [x * y for x, y in itertools.product(*masks)]
    for mask in ([*masks[0], *masks[1]], joint):
        found = agent.legal(None, {"action_mask": np.array(mask)})
        assert found.tolist() == [bool(x) for x in joint]
    with pytest.raises(ValueError, match=r"an action_mask of shape \(4,\)"):
        agent.legal(None, {"action_mask": np.ones(4)})
