"""Steps of many games as requests to processes, shared out among them."""

from typing import NamedTuple

import numpy as np

from jaxmarl_envs.adapters.incoming.host_worker import Request


class Steps(NamedTuple):
    """Episodes of one batch to be advanced by a step.

    Attributes:
        seeds: `[E]` int, what the episodes began with.
        times: `[E]` int, steps done.
        past: `[E, capacity, A, ...]`, what was played in them, as `ActionLayout.pack` has it; of
            longer episodes the first steps.
        actions: `[E, A, ...]`, likewise.
        reset_seeds: `[E]` int, to begin the next episodes with where these are over; None to leave
            those as they are.
        first: the place of the first of them in the batch, of which they may be a part.
    """

    seeds: np.ndarray
    times: np.ndarray
    past: np.ndarray
    actions: np.ndarray
    reset_seeds: np.ndarray | None = None
    first: int = 0

    def arrays(self) -> tuple[np.ndarray, ...]:
        """List all arrays but the past."""
        fresh = np.empty(0) if self.reset_seeds is None else self.reset_seeds
        return self.seeds, self.times, self.actions, fresh

    def copied(self) -> "Steps":
        """Copy the arrays of a caller that may overwrite them, all but the past."""
        fresh = None if self.reset_seeds is None else self.reset_seeds.copy()
        seeds, times, actions = self.seeds.copy(), self.times.copy(), self.actions.copy()
        return Steps(seeds, times, np.empty(0), actions, fresh, self.first)


class Begun(NamedTuple):
    """A request that games have been sent."""

    steps: Steps | None  # None for resets
    request: Request
    shares: list[tuple[int, int]]  # by process its index, and the row of its first game

    def is_of(self, steps: Steps) -> bool:
        """Return whether it is for these steps."""
        own = self.steps
        if own is None or own.first != steps.first:
            return False
        return all(map(np.array_equal, own.arrays(), steps.arrays()))


def share_of(request: Request, first: int, num_workers: int) -> Request:
    """Take every `num_workers`-th game of a request, beginning with row `first`."""
    if num_workers == 1:
        return request
    mine = slice(first, None, num_workers)
    return Request(
        request.numbers[mine],
        request.rows[mine],
        {
            row // num_workers: replay
            for row, replay in request.replays.items()
            if row % num_workers == first
        },
        None if request.actions is None else request.actions[mine],
        None if request.reset_seeds is None else request.reset_seeds[mine],
    )
