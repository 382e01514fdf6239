"""Python's and NumPy's global generators of random numbers, one of each for every game."""

import random
from types import TracebackType
from typing import Any

import numpy as np

# Whose generator is exchanged, not its state, which is dear.
_global: Any = np.random


class OwnRandomness:
    """Lets a game draw from the global generators as if nobody else did.

    Many environments draw from `random` and `numpy.random` themselves. Games that take turns in one
    process would draw from each other's numbers, and no episode could be played again.

    Args:
        python: whether the game draws from `random` too, whose state is dear to exchange.
    """

    def __init__(self, python: bool) -> None:
        self._python = python
        self._numpy: Any = np.random.MT19937(0)
        self._state: Any = random.Random(0).getstate()
        self._outer: tuple[Any, Any] = (None, None)

    def seed(self, seed: int) -> None:
        """Begin anew with a seed."""
        self._numpy = np.random.MT19937(seed)
        if self._python:
            self._state = random.Random(seed).getstate()

    def __enter__(self) -> None:
        self._outer = (_global.get_bit_generator(), random.getstate() if self._python else None)
        _global.set_bit_generator(self._numpy)
        if self._python:
            random.setstate(self._state)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        numpy, state = self._outer
        _global.set_bit_generator(numpy)
        if self._python:
            self._state = random.getstate()
            random.setstate(state)
