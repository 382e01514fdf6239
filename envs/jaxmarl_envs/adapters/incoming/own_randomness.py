"""Python's and NumPy's global generators of random numbers, one of each for every game."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

# Whose generator is exchanged, not its state, which is dear.
_global: Any = np.random


class OwnRandomness:
    """Lets a game draw from the global generators as if nobody else did.

    Many environments draw from `random` and `numpy.random` themselves. Games that take turns in one
    process would draw from each other's numbers, and no episode could be played again.

    Args:
        python: whether the game draws from `random` too. As its state is dear to exchange, it is
            seeded anew for every call, from the seed of the episode and how many calls came before.
    """

    def __init__(self, python: bool) -> None:
        self._python = python
        self._numpy: Any = np.random.MT19937(0)
        self._seed = self._calls = 0

    def seed(self, seed: int) -> None:
        """Reseed, like `numpy.random.seed`."""
        _global.set_bit_generator(self._numpy)
        np.random.seed(seed)  # noqa: NPY002
        self._seed, self._calls = seed, 0

    def take_turn(self) -> None:
        """Make the global generators the game's own, for one call and until others take theirs."""
        _global.set_bit_generator(self._numpy)
        if self._python:
            random.seed(self._calls << 64 | self._seed)
            self._calls += 1


@contextlib.contextmanager
def numpy_generator_kept() -> Iterator[None]:
    """Restore NumPy's global generator after games have taken their turns.

    Nobody else draws from a game's own one then, such as a game that is made later.
    """
    numpy = _global.get_bit_generator()
    try:
        yield
    finally:
        _global.set_bit_generator(numpy)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Restore Python's global generator as well, for a process in which others draw from it."""
    state = random.getstate()
    try:
        with numpy_generator_kept():
            yield
    finally:
        random.setstate(state)
