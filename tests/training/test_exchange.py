"""Exploit and explore: who becomes a copy of whom, and what numbers copies have."""

import math

import numpy as np
import pytest

from jaxmarl_ppo import Choices, PbtConfig, Range
from jaxmarl_ppo.training.exchange import exchange, first_values

RATE, GAMMA, CLIP, WEIGHT = (
    f"default_ppo.{name}" for name in ("learning_rate", "gamma", "clip_eps", "value_coef")
)
SPACE = {
    RATE: Range(1e-4, 1e-2, log=True),
    GAMMA: Range(0.5, 1.0),
    CLIP: Choices([0.1, 0.2, 0.4]),
    WEIGHT: Range(0.0, 1.0, step=0.25),
}
VALUES = {RATE: 1e-3, GAMMA: 0.75, CLIP: 0.2, WEIGHT: 0.5}
MOVED = {
    RATE: {1.5e-3, 1e-3 / 1.5},
    GAMMA: {1.0, 0.5},
    CLIP: {0.1, 0.4},
    WEIGHT: {1.0, 0.0},
}


def rng(seed=0):
    return np.random.default_rng(seed)


def pairs(scores, pbt, seed=0):
    """Who becomes a copy of whom."""
    values = [VALUES] * len(scores)
    return [(copy.member, copy.parent) for copy in exchange(scores, values, pbt, rng(seed))]


def test_the_worst_become_copies_of_the_best():
    pbt = PbtConfig(SPACE)
    scores = [3.0, 8.0, 1.0, 7.0, 2.0, 6.0, 5.0, 4.0]
    found = [pairs(scores, pbt, seed) for seed in range(20)]
    assert all([member for member, _ in each] == [2, 4] for each in found)
    assert {parent for each in found for _, parent in each} == {1, 3}
    assert pairs([1.0, 2.0, 3.0], pbt) == [(0, 2)]  # one at least
    assert [member for member, _ in pairs(scores, PbtConfig(SPACE, fraction=0.5))] == [0, 2, 4, 7]


def test_nobody_copies_one_who_does_no_better():
    assert pairs([1.0, 1.0, 1.0, 1.0], PbtConfig(SPACE)) == []
    assert pairs([-2.0, -2.0, -1.0, -2.0], PbtConfig(SPACE)) == [(3, 2)]


def test_all_that_cannot_go_on_become_copies_of_those_that_can():
    assert pairs([None, -1.0, None, None], PbtConfig(SPACE)) == [(0, 1), (2, 1), (3, 1)]
    found = pairs([5.0, None, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0], PbtConfig(SPACE))
    assert [member for member, _ in found] == [1, 7]
    assert pairs([None, None], PbtConfig(SPACE)) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_has_the_numbers_of_its_parent_a_step_away(seed):
    pbt = PbtConfig(SPACE, perturb=1.5, resample_probability=0.0)
    others = {RATE: 9e-3, GAMMA: 0.9, CLIP: 0.1, WEIGHT: 0.0}
    (copy,) = exchange([1.0, 0.0], [VALUES, others], pbt, rng(seed))
    for path, value in copy.values.items():
        assert any(math.isclose(value, moved) for moved in MOVED[path]), (path, value)


def test_steps_go_both_ways_and_stay_within_the_space():
    pbt = PbtConfig(SPACE, perturb=1.5, resample_probability=0.0)
    found = {path: set() for path in SPACE}
    for seed in range(30):
        (copy,) = exchange([1.0, 0.0], [VALUES, VALUES], pbt, rng(seed))
        for path, value in copy.values.items():
            found[path].add(value)
    assert all(len(values) == 2 for values in found.values())
    edge = {RATE: 1e-2, GAMMA: 1.0, CLIP: 0.4, WEIGHT: 1.0}
    for seed in range(30):
        (copy,) = exchange([1.0, 0.0], [edge, edge], pbt, rng(seed))
        assert copy.values[RATE] <= 1e-2
        assert copy.values[GAMMA] <= 1.0
        assert copy.values[CLIP] in (0.2, 0.4)
        assert copy.values[WEIGHT] in (0.5, 1.0)


def test_numbers_are_drawn_anew_as_often_as_said():
    pbt = PbtConfig(SPACE, resample_probability=0.5)
    stepped = {1e-3 * 1.2, 1e-3 / 1.2}
    drawn = [
        exchange([1.0, 0.0], [VALUES, VALUES], pbt, rng(seed))[0].values[RATE]
        for seed in range(400)
    ]
    share = np.mean([value not in stepped for value in drawn])
    assert 0.4 < share < 0.6


def test_members_begin_with_numbers_that_are_spread_over_the_space():
    pbt = PbtConfig(SPACE)
    drawn = [first_values(pbt, 3, member) for member in range(400)]
    assert first_values(pbt, 3, 7) == drawn[7] != first_values(pbt, 4, 7)
    rates, gammas = ([values[path] for values in drawn] for path in (RATE, GAMMA))
    assert 0.4 < np.mean([rate < 1e-3 for rate in rates]) < 0.6  # evenly by their logarithms
    assert 1e-4 <= min(rates) < max(rates) <= 1e-2
    assert 0.73 < np.mean(gammas) < 0.77
    assert {values[CLIP] for values in drawn} == {0.1, 0.2, 0.4}
    assert {values[WEIGHT] for values in drawn} == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_whole_numbers_stay_whole():
    pbt = PbtConfig({RATE: Range(0, 3)}, resample_probability=0.5)
    drawn = {first_values(pbt, 0, member)[RATE] for member in range(50)}
    assert drawn == {0, 1, 2, 3}
    for seed in range(30):
        (copy,) = exchange([1.0, 0.0], [{RATE: 1}, {RATE: 1}], pbt, rng(seed))
        assert copy.values[RATE] in (0, 1, 2, 3)
