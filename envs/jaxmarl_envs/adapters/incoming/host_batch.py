"""Games that one object steps together, as simulators do that compute a batch at once.

A batch cannot step one of its games alone. An episode is therefore played again, where it has to
be, while the other games of its batch are too.
"""

import warnings
from collections.abc import Callable, Mapping, MutableSequence
from typing import Protocol

import numpy as np

from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep, Rows
from jaxmarl_envs.adapters.incoming.host_worker import (
    DONE,
    Failure,
    GameError,
    Request,
    UnrepeatableEnvironmentWarning,
    mark_of,
)
from jaxmarl_envs.user_code import describe_error, is_ours, own_traceback


class Batch(Protocol):
    """`n` games that are stepped together; the arrays that it returns are the caller's.

    A game that is over stands still, and pays nothing, until it is reset.

    Attributes:
        repeats: whether the same seed and the same actions lead to the same episode, at the same
            place in a batch of the same size.
    """

    repeats: bool

    def reset(self, seeds: Mapping[int, int]) -> Frame:
        """Begin episodes at some places, with a seed each, and return what all see, `[n, A, ...]`.

        The other games stay as they are.
        """
        ...

    def step(self, actions: np.ndarray) -> tuple[Frame, GameStep]:
        """Advance all games by one step.

        Args:
            actions: `[n, A, ...]`, as `ActionLayout.pack` has them.

        Returns:
            What all slots see after it, and what it brought, `[n, A, ...]`.
        """
        ...


class Batches:
    """The batches of one process, made when they are first asked for; like `Games`.

    A request names one batch, by the same number for all its games.

    Args:
        make_batch: makes a batch of so many games.
        marks: as in `Games`; a step is counted as that of the first game.
        rows: where games are written, in the rows that a request names.
    """

    def __init__(
        self,
        make_batch: Callable[[int], Batch],
        marks: MutableSequence[int] | memoryview,
        rows: Rows,
    ) -> None:
        self._make_batch, self._marks, self._rows = make_batch, marks, rows
        self._batches: dict[int, Batch] = {}
        self._times: dict[int, int] = {}  # by number: steps of the first game's episode
        self._call = ""

    def play(self, request: Request) -> list[int]:
        """Play games as `Games.play` does.

        Raises:
            GameError: If the batch raised an exception.
        """
        self._rows.reach(max(request.rows) + 1)
        try:
            finals = self._play(request)
        except Exception as error:
            what = f": {error}" if is_ours(error) else f" raises {describe_error(error)}"
            failure = Failure(None, f"{self._call}{what}", own_traceback(error))
            raise GameError(failure) from error
        self._marks[0] = DONE
        return finals

    def _play(self, request: Request) -> list[int]:
        (number,) = set(request.numbers)
        size = len(request.numbers)
        if number not in self._batches:
            self._begin_call(f"making a batch of {size}", -1)
            self._batches[number] = self._make_batch(size)
        batch = self._batches[number]
        frame = self._replay(batch, request) if request.replays else None
        if 0 in request.replays:
            self._times[number] = len(request.replays[0][1])
        if request.actions is None:
            if frame is None:
                raise ValueError("games without actions need seeds to begin with")
            self._rows.write(request.rows, frame, None)
            return []
        self._times[number] += 1
        self._begin_call(f"a step of a batch of {size}", self._times[number])
        final, outcome = batch.step(request.actions)
        frame, seeds = final, request.reset_seeds
        over = [] if seeds is None else np.flatnonzero(~final.alive.any(axis=1)).tolist()
        if seeds is not None and over:
            frame = self._reset(batch, {place: seeds[place] for place in over})
            self._times[number] *= 0 not in over
        self._rows.write(request.rows, frame, outcome)
        for place in over:
            self._rows.keep_final(request.rows[place], Frame(*(part[place] for part in final)))
        return [request.rows[place] for place in over]

    def _replay(self, batch: Batch, request: Request) -> Frame:
        """Play episodes again that all end now, each up to where it was.

        Warns:
            UnrepeatableEnvironmentWarning: one of them is over before it gets there.
        """
        replays = {
            # Where this would give another episode, one is reset in the middle.
            place: (seed, past if batch.repeats else past[:0])
            for place, (seed, past) in request.replays.items()
        }
        longest = max(len(past) for _, past in replays.values())
        frame = None
        for left in range(longest, 0, -1):
            begins = {place: seed for place, (seed, past) in replays.items() if len(past) == left}
            if begins:
                frame = self._reset(batch, begins)
            plays = [past for _, past in replays.values() if len(past) >= left]
            actions = np.zeros((len(request.numbers), *plays[0].shape[1:]), plays[0].dtype)
            for place, (_, past) in replays.items():
                if len(past) >= left:
                    actions[place] = past[-left]
            self._begin_call("a step that is played again", longest - left + 1)
            frame, _ = batch.step(actions)
        # Those who begin now, and, where episodes go on, those that should not be over.
        begins = {place: seed for place, (seed, past) in replays.items() if not len(past)}
        if frame is not None and request.reset_seeds is not None:
            for place in np.flatnonzero(~frame.alive.any(axis=1)).tolist():
                if place not in begins and place in replays:
                    begins[place] = self._warn_of_end(*replays[place])
        if begins or frame is None:
            frame = self._reset(batch, begins)
        return frame

    def _warn_of_end(self, seed: int, past: np.ndarray) -> int:
        warnings.warn(
            f"the episode of seed {seed}, played again, ended before step {len(past)} and begins "
            "anew: the environment does not do the same for the same seed and actions",
            UnrepeatableEnvironmentWarning,
            stacklevel=2,
        )
        return seed

    def _reset(self, batch: Batch, seeds: Mapping[int, int]) -> Frame:
        self._begin_call(f"a reset of {len(seeds)} in a batch", 0)
        return batch.reset(seeds)

    def _begin_call(self, what: str, time: int) -> None:
        self._call = what
        self._marks[0] = mark_of(0, time)
