"""Slices of training: how many compiled iterations run before the host is asked again."""

from dataclasses import dataclass

# A slice is to last about this long, so that a signal is soon heard.
SLICE_S = 0.5
# The next slice may have at most this many times the iterations of the last one.
SLICE_GROWTH = 8


@dataclass
class Slices:
    """Adapts the number of iterations of a slice to the time that they take.

    How many there are to a slice changes no bit of what is trained or measured.

    Attributes:
        num_iterations: of the next slice.
    """

    num_iterations: int = 1

    def adapt(self, count: int, seconds: float) -> None:
        """Choose the size of the next slice after one of `count` iterations."""
        wanted = int(SLICE_S * count / seconds)
        self.num_iterations = max(1, min(wanted, SLICE_GROWTH * self.num_iterations))
