"""Pairs of pieces that share a group of fixed capacity."""

import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_ppo.ops.pairing import pair_up

CAPACITY = 16
LENGTHS = {
    "any": lambda rng: rng.integers(0, CAPACITY + 1, 300),
    "short": lambda rng: rng.integers(1, 4, 300),
    "one too long for another": lambda rng: np.full(300, 9),
    "full": lambda rng: np.full(300, CAPACITY),
    "none": lambda rng: np.zeros(300, int),
}

pair = quick_jit(pair_up, static_argnums=1)


@pytest.mark.parametrize("name", LENGTHS)
def test_two_pieces_of_a_group_do_not_overlap(name):
    length = LENGTHS[name](np.random.default_rng(0))
    group, offset, num_groups = map(np.asarray, pair(length, CAPACITY))
    filled = np.zeros((num_groups, CAPACITY), int)
    for one in np.flatnonzero(length):
        filled[group[one], offset[one] : offset[one] + length[one]] += 1
    assert filled.max(initial=0) <= 1
    assert filled.sum() == length.sum()  # nothing beyond the capacity
    assert filled[:, 0].all()  # no group is empty, and none begins with a hole
    assert (np.diff(filled, axis=1) <= 0).all()
    assert (np.unique(group[length > 0], return_counts=True)[1] <= 2).all()


def fewest_groups(length):
    """The longest with the longest that fits beside it, one after the other."""
    waiting, groups = sorted(length[length > 0]), 0
    while waiting:
        longest = waiting.pop()
        fits = np.searchsorted(waiting, CAPACITY - longest, side="right")
        if fits:
            waiting.pop(fits - 1)
        groups += 1
    return groups


@pytest.mark.parametrize("name", ["any", "short", "full", "none"])
def test_there_are_hardly_more_groups_than_there_must_be(name):
    length = LENGTHS[name](np.random.default_rng(1))
    assert pair(length, CAPACITY)[2] <= 1.05 * fewest_groups(length)
