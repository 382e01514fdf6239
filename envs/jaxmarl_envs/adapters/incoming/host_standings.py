"""Which games stand where in their episodes, as their master knows it.

Games of a process are counted by numbers. A request may ask for any episodes: those that stand as
they are asked for go on, and others are reset with their seed and played again.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

# Games kept per place in a batch, so that resets and evaluations leave an episode as it stands.
KEPT = 2


def place_of(number: int) -> int:
    """Return the place in a batch of the game that has a number."""
    return number // KEPT


class ForgottenEpisodeWarning(UserWarning):
    """An episode is too long to be played again, and begins anew."""


class Asked(NamedTuple):
    """What games a request asks for, a part of `host_worker.Request`."""

    numbers: list[int]
    replays: dict[int, tuple[int, np.ndarray]]


class Call(NamedTuple):
    """A game's latest request, for messages."""

    seed: int
    time: int  # steps done before it
    acting: np.ndarray | None  # [A] bool, the agents that must act


class Standings(Protocol):
    """Chooses the games of requests; see `HostPool` for the arrays.

    A request is for places in a batch, one after the other from `first` on.
    """

    def begin(self, seeds: np.ndarray) -> Asked:
        """Choose games for new episodes."""
        ...

    def find(self, seeds: np.ndarray, times: np.ndarray, past: np.ndarray, first: int = 0) -> Asked:
        """Choose games for a step of episodes."""
        ...

    def advance(
        self, actions: np.ndarray, over: np.ndarray, fresh: np.ndarray | None, first: int = 0
    ) -> None:
        """Note that a step is done, and which episodes are over, `[E]` bool."""
        ...

    def note_actors(self, acting: np.ndarray, first: int = 0) -> None:
        """Note who must act now, `[E, A]` bool."""
        ...

    def latest(self, place: int) -> Call:
        """Return where the game stood that was last asked for."""
        ...

    def forget(self) -> None:
        """Forget all games."""
        ...


@dataclass
class _Standing:
    """Position of a game in its episode."""

    number: int
    seed: int
    time: int
    past: np.ndarray | None = None  # [capacity, A, ...], packed, of which `time` rows count
    acting: np.ndarray | None = None  # [A] bool, the agents that must act

    def is_at(self, seed: int, time: int, past: np.ndarray) -> bool:
        if self.seed != seed or self.time != time:
            return False
        # For a few numbers five times as fast as comparing them as arrays.
        return self.past is None or self.past[:time].tobytes() == past[:time].tobytes()


class SeparateStandings:
    """Games that are stepped each by itself.

    Args:
        warn: warns that an episode of so many steps is remembered only up to a step.
    """

    def __init__(self, warn: Callable[[int, int], None]) -> None:
        self._warn = warn
        self._standings: dict[int, list[_Standing]] = {}  # by place, the latest first

    def begin(self, seeds: np.ndarray) -> Asked:
        """Take a game of every place."""
        replays = {place: (seed, np.empty(0)) for place, seed in enumerate(seeds.tolist())}
        numbers = [self._take(place, seed).number for place, (seed, _) in replays.items()]
        return Asked(numbers, replays)

    def find(self, seeds: np.ndarray, times: np.ndarray, past: np.ndarray, first: int = 0) -> Asked:
        """Find the games that stand at these steps, and have others play up to them."""
        numbers, replays = [], {}
        for row, (seed, time) in enumerate(zip(seeds.tolist(), times.tolist(), strict=True)):
            standing = self._find(first + row, seed, time, past[row])
            if standing is None:
                standing = self._take(first + row, seed, time)
                replays[row] = (seed, _to_replay(time, past[row], self._warn))
            if standing.past is None:
                standing.past = past[row].copy()
            numbers.append(standing.number)
        return Asked(numbers, replays)

    def advance(
        self, actions: np.ndarray, over: np.ndarray, fresh: np.ndarray | None, first: int = 0
    ) -> None:
        """Note a step of every place's latest game."""
        for row, action in enumerate(actions):
            standing = self._standings[first + row][0]
            assert standing.past is not None
            if standing.time < len(standing.past):
                standing.past[standing.time] = action
            standing.time += 1
            if fresh is not None and over[row]:
                standing.seed, standing.time = int(fresh[row]), 0

    def note_actors(self, acting: np.ndarray, first: int = 0) -> None:
        """Note the actors of every place's latest game."""
        for row, own in enumerate(acting):
            self._standings[first + row][0].acting = own

    def latest(self, place: int) -> Call:
        """Return where a place's latest game stands."""
        standing = self._standings[place][0]
        return Call(standing.seed, standing.time, standing.acting)

    def forget(self) -> None:
        """Forget all games."""
        self._standings.clear()

    def _find(self, place: int, seed: int, time: int, past: np.ndarray) -> _Standing | None:
        """Find a place's game that stands at this step of this episode, and make it the latest."""
        standings = self._standings.get(place, [])
        for standing in standings:
            if standing.is_at(seed, time, past):
                standings.remove(standing)
                standings.insert(0, standing)
                return standing
        return None

    def _take(self, place: int, seed: int, time: int = 0) -> _Standing:
        """Choose a place's game to be reset: a new one, or the one that has waited longest."""
        standings = self._standings.setdefault(place, [])
        full = len(standings) == KEPT
        number = standings.pop().number if full else KEPT * place + len(standings)
        standings.insert(0, _Standing(number, seed, time))
        return standings[0]


@dataclass
class _Batch:
    """Positions of the games of one batch in their episodes."""

    number: int
    seeds: np.ndarray  # [E] int
    times: np.ndarray  # [E] int
    past: np.ndarray | None = None  # [E, capacity, A, ...], packed, of which `times` rows count
    acting: np.ndarray | None = None  # [E, A] bool

    def are_at(self, seeds: np.ndarray, times: np.ndarray, past: np.ndarray) -> np.ndarray:
        """Return which games stand as they are asked for, `[E]` bool."""
        found = (self.seeds == seeds) & (self.times == times)
        longest = min(int(times.max()), past.shape[1])
        if self.past is None or not longest or not found.any():
            return found
        same = self.past[:, :longest] == past[:, :longest]
        counts = np.arange(longest) < times[:, None]
        return found & (same.reshape(*counts.shape, -1).all(axis=2) | ~counts).all(axis=1)


class BatchStandings:
    """Games that are stepped together, all of a request in one batch of their number.

    A batch goes on where all its games stand as they are asked for, or have just begun, since a
    reset leaves the others alone. As a single game cannot be stepped, otherwise all are played
    again.

    Args:
        warn: as in `SeparateStandings`.
    """

    def __init__(self, warn: Callable[[int, int], None]) -> None:
        self._warn = warn
        self._batches: dict[int, list[_Batch]] = {}  # by number of games, the latest first
        self._latest: _Batch | None = None
        self._new_numbers = itertools.count()

    def begin(self, seeds: np.ndarray) -> Asked:
        """Take a batch."""
        batch = self._take(seeds, np.zeros(len(seeds), int))
        nothing = np.empty(0)
        replays = {place: (seed, nothing) for place, seed in enumerate(seeds.tolist())}
        return Asked([batch.number] * len(seeds), replays)

    def find(self, seeds: np.ndarray, times: np.ndarray, past: np.ndarray, first: int = 0) -> Asked:
        """Find the batch that stands at these steps, or have one play up to them."""
        batch, ready = self._find(seeds, times, past)
        batch.seeds, batch.times = seeds.copy(), times.astype(int)
        if batch.past is None or not ready.all():
            batch.past = past.copy()
        replays = {
            place: (int(seeds[place]), _to_replay(int(times[place]), past[place], self._warn))
            for place in np.flatnonzero(~ready).tolist()
        }
        return Asked([batch.number] * len(seeds), replays)

    def advance(
        self, actions: np.ndarray, over: np.ndarray, fresh: np.ndarray | None, first: int = 0
    ) -> None:
        """Note a step of all games of the latest batch."""
        batch = self._latest
        assert batch is not None
        assert batch.past is not None
        remembered = np.flatnonzero(batch.times < batch.past.shape[1])
        batch.past[remembered, batch.times[remembered]] = actions[remembered]
        batch.times += 1
        if fresh is not None:
            batch.seeds = np.where(over, fresh, batch.seeds)
            batch.times[over] = 0

    def note_actors(self, acting: np.ndarray, first: int = 0) -> None:
        """Note the actors of all games of the latest batch."""
        assert self._latest is not None
        self._latest.acting = acting

    def latest(self, place: int) -> Call:
        """Return where a game of the latest batch stands."""
        batch = self._latest
        assert batch is not None
        acting = None if batch.acting is None else batch.acting[place]
        return Call(int(batch.seeds[place]), int(batch.times[place]), acting)

    def forget(self) -> None:
        """Forget all batches."""
        self._batches.clear()
        self._latest = None

    def _find(
        self, seeds: np.ndarray, times: np.ndarray, past: np.ndarray
    ) -> tuple[_Batch, np.ndarray]:
        """Find a batch, and which of its games stand as they are asked for, `[E]` bool."""
        batches = self._batches.get(len(seeds), [])
        for batch in batches:
            ready = batch.are_at(seeds, times, past)
            if (ready | (times == 0)).all():
                batches.remove(batch)
                batches.insert(0, batch)
                self._latest = batch
                return batch, ready
        return self._take(seeds, times), np.zeros(len(seeds), bool)

    def _take(self, seeds: np.ndarray, times: np.ndarray) -> _Batch:
        """Choose a batch to be reset: a new one, or the one that has waited longest."""
        batches = self._batches.setdefault(len(seeds), [])
        full = len(batches) == KEPT
        number = batches.pop().number if full else next(self._new_numbers)
        self._latest = _Batch(number, seeds.copy(), times.astype(int))
        batches.insert(0, self._latest)
        return self._latest


def _to_replay(time: int, past: np.ndarray, warn: Callable[[int, int], None]) -> np.ndarray:
    """Return the actions of an episode up to now; none where not all are remembered.

    Choices that are remembered in few bytes become int32, as they are when they are played.
    """
    if time > len(past):
        warn(time, len(past))
        time = 0
    past = past[:time]
    return past.astype(np.int32) if past.dtype.kind == "u" else past
