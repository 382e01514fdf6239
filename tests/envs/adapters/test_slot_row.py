"""Rows that are written the short way are those that the agent's spaces write."""

import itertools

import jax
import numpy as np
import pytest
from gymnasium import spaces
from plan_envs import KINDS, Plan

from jaxmarl_envs.adapters.incoming import slot_game, slot_row
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, read_spaces
from jaxmarl_envs.adapters.incoming.pettingzoo_games import ParallelGame
from jaxmarl_envs.adapters.incoming.slot_row import MANY, SlotRow, stack

BOX = spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
MASKED = spaces.Dict({"observation": BOX, MASK: spaces.Box(0, 1, (4,), np.int8)})
ACTION = spaces.Discrete(4, start=2)
SEEN = (
    np.arange(6.0).reshape(2, 3),
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(6).reshape(2, 3),
    np.arange(12).reshape(2, 6)[:, ::2],
    [[1, 2, 3], [4, 5, 6]],
    np.ones((3, 2)),
    np.array([["a"] * 3] * 2),
    None,
)
MASKS = (
    np.array([1, 0, 1, 0], np.int8),
    np.array([True, False, False, True]),
    np.array([0.0, 1.0, 1.0, 1.0]),
    np.zeros(4, np.int8),
    [1, 0, 0, 0],
    np.array([1, 0, 2, 0]),
    np.array([0.5, 0, 0, 0]),
    np.ones(3, np.int8),
    np.array([None, 1, 0, 0]),
    None,
)


def made(space, flatten, width):
    """A row `[.., width]` of noise, padded at the end, and its mask with an option too many."""
    (own,) = read_spaces({"a": (space, ACTION)}, flatten)
    features = np.full((width,) if flatten else (2, width), 9, np.float32)
    legal, exists = np.zeros(5, bool), np.array([True] * 4 + [False])
    return own, features, legal, SlotRow(own, features, legal, exists, (0,))


def outcome(write):
    """What a function returns, or the text of the error that it raises."""
    try:
        return write()
    except ValueError as error:
        return str(error)


def written_by_spaces(own, seen, info, acts):
    """What the agent's spaces make of it: features, and legal options."""
    features, legal = own.features(seen), own.legal(seen, info)
    options = np.ones(4, bool)
    if legal is not None and legal[0] is not None and (acts or legal[0].any()):
        options = legal[0]
    return features.tolist(), [*options.tolist(), False]


@pytest.mark.parametrize(("flatten", "width"), [(False, 3), (False, 4), (True, 6), (True, 8)])
@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize("where", ["observation", "infos"])
def test_a_row_is_what_the_spaces_write(where, acts, flatten, width):
    for seen, mask in itertools.product(SEEN, MASKS):
        masked = where == "observation"
        own, features, legal, row = made(MASKED if masked else BOX, flatten, width)
        seen = {"observation": seen, MASK: mask} if masked else seen
        info = None if masked else {MASK: mask, "other": 1}
        place = tuple(map(slice, own.observation.shape))

        def shown():
            row.show(seen, info, acts)  # noqa: B023
            return features[place].tolist(), legal.tolist()  # noqa: B023

        assert outcome(shown) == outcome(lambda: written_by_spaces(own, seen, info, acts))  # noqa: B023
        features[place] = 9
        assert (features == 9).all()  # nothing is written beside it


def test_a_dictionary_with_another_key_instead_of_the_mask_is_refused():
    _, _, _, row = made(MASKED, False, 3)
    with pytest.raises(ValueError, match="expected a dictionary with 'action_mask'"):
        row.show({"observation": SEEN[0], "mask": MASKS[0]}, None, True)


def test_a_dictionary_with_more_in_it_is_read_by_the_spaces():
    own, features, legal, row = made(MASKED, False, 3)
    seen = {"observation": np.ones((2, 3)), MASK: np.array([1, 0, 0, 0]), "more": 1}
    with pytest.raises(ValueError, match="agent 'a' observes"):
        row.show(seen, None, acts=True)
    assert own.is_plain
    assert not legal.any()
    assert (features == 9).all()


@pytest.mark.parametrize("where", [slice(1, 4), np.array([4, 0, 2])])
def test_observations_of_many_are_written_where_they_belong(where):
    rows = np.full((5, 2, 3), 9, np.float32)
    seen = [own / (place + 3) for place, own in enumerate(SEEN[:3])]
    assert stack(seen, rows, where)
    assert rows[where].tolist() == [own.astype(np.float32).tolist() for own in seen]
    assert (np.delete(rows, where, axis=0) == 9).all()  # nothing is written beside them


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "odd", [*SEEN[4:], *map(np.ones, [(), (1,), (3,), (1, 3), (2, 1), (2, 3, 1), (0, 3)])]
)
def test_observations_of_many_are_not_stretched_to_fit(odd, place):
    seen = [*SEEN[:2]]
    seen.insert(place, odd)
    assert not stack(seen, np.zeros((3, 2, 3), np.float32), slice(0, 3))
    assert not stack([odd] * 3, np.zeros((3, 2, 3), np.float32), slice(0, 3))


class Crowd(Plan):
    """Agents leave one after the other; sometimes one observes a list, or has a mask."""

    agents = tuple(f"p{i}" for i in range(MANY + 4))
    length = 12

    def see(self, agent, time):
        own = np.array([time + self.agents.index(agent) / 100], np.float32)
        return own.tolist() if (agent, time) == ("p1", 2) else own

    def tell(self, agent, time):
        return {MASK: np.array([0, 1], np.int8)} if (agent, time) == ("p3", 4) else {}

    def pay(self, agent, time):
        return None if time > self.ends(agent) else 1.0

    def ends(self, agent):
        return 2 + self.agents.index(agent)


def test_many_agents_are_read_at_once_as_one_by_one(monkeypatch):
    def played():
        game = ParallelGame(KINDS["parallel"][1](Crowd()), None)
        frame, steps = game.reset(0), []
        while frame.alive.any():
            frame, outcome, _ = game.step(np.zeros(len(Crowd.agents), np.int32))
            steps.append(jax.tree.map(np.copy, (frame, outcome)))
        return game, steps

    at_once = []

    def stacked(*args):
        at_once.append(stack(*args))
        return at_once[-1]

    monkeypatch.setattr(slot_game, "stack", stacked)
    game, steps = played()
    assert game._common_rows is not None
    assert at_once[:5] == [True, True, False, True, True]
    assert 5 < len(at_once) < len(steps)  # in the end there are few
    monkeypatch.setattr(slot_row, "MANY", 1_000)
    game, one_by_one = played()
    assert game._common_rows is None
    jax.tree.map(np.testing.assert_array_equal, steps, one_by_one)
