"""Positions of games in their episodes, as the process of the trainer tracks them.

Games of a process are counted by numbers. A request may ask for any episodes: games that are
already at the position asked for continue, and others are reset with their seed and played again.
It is for places in a batch, one after the other from `first` on; see `HostPool` for the arrays.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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


class SeparateEpisodes:
    """Games that are stepped each by itself, two at a place in a batch, of which one is the latest.

    Args:
        warn: warns that an episode of so many steps is remembered only up to a step.
    """

    def __init__(self, warn: Callable[[int, int], None]) -> None:
        self._warn = warn
        self.forget()

    def forget(self) -> None:
        """Forget all games."""
        self._latest = np.zeros(0, int)  # [places]: 0 or 1
        # Of both games of every place, [2, places, ...]; the past as in `_Batch`.
        self._is_known = np.zeros((KEPT, 0), bool)
        self._seeds, self._times = np.zeros((2, KEPT, 0), np.int64)
        self._past: np.ndarray | None = None
        self._acting: np.ndarray | None = None

    def begin(self, seeds: np.ndarray) -> Asked:
        """Take a game of every place."""
        places = self._places(0, len(seeds))
        self._take(places, seeds, np.zeros(len(seeds), int))
        replays = {place: (seed, np.empty(0)) for place, seed in enumerate(seeds.tolist())}
        return Asked(self._numbers(places), replays)

    def find(self, seeds: np.ndarray, times: np.ndarray, past: np.ndarray, first: int = 0) -> Asked:
        """Find the games that stand at these steps, and have others play up to them."""
        places = self._places(first, len(seeds))
        self._past = _with_room(self._past, len(self._latest), past)
        latest = self._latest[places]
        ready = self._are_at(latest, places, seeds, times, past)
        replays = {}
        if not ready.all():
            returns = ~ready & self._are_at(1 - latest, places, seeds, times, past)
            self._latest[places] = np.where(returns, 1 - latest, latest)
            lost = np.flatnonzero(~(ready | returns))
            self._take(places[lost], seeds[lost], times[lost])
            self._past[self._latest[places[lost]], places[lost]] = past[lost]
            for row in lost.tolist():
                replay = _to_replay(int(times[row]), past[row], self._warn)
                replays[row] = int(seeds[row]), replay
        return Asked(self._numbers(places), replays)

    def advance(
        self, actions: np.ndarray, over: np.ndarray, fresh: np.ndarray | None, first: int = 0
    ) -> None:
        """Note a step of every place's latest game, and which episodes are over, `[E]` bool."""
        places = self._places(first, len(actions))
        games = self._latest[places], places
        times = self._times[games]
        assert self._past is not None
        remembered = np.flatnonzero(times < self._past.shape[2])
        self._past[games[0][remembered], places[remembered], times[remembered]] = actions[
            remembered
        ]
        self._times[games] = times + 1
        if fresh is not None and over.any():
            self._times[games] = np.where(over, 0, times + 1)
            self._seeds[games] = np.where(over, fresh, self._seeds[games])

    def note_actors(self, acting: np.ndarray, first: int = 0) -> None:
        """Note who must act now in every place's latest game, `[E, A]` bool."""
        places = self._places(first, len(acting))
        self._acting = _with_room(self._acting, len(self._latest), acting)
        self._acting[self._latest[places], places] = acting

    def latest(self, place: int) -> Call:
        """Return where a place's latest game stands."""
        game = self._latest[place], place
        acting = None if self._acting is None else self._acting[game]
        return Call(int(self._seeds[game]), int(self._times[game]), acting)

    def _places(self, first: int, num_games: int) -> np.ndarray:
        """Return consecutive places, and make room for them."""
        missing = first + num_games - len(self._latest)
        if missing > 0:
            self._latest = np.pad(self._latest, (0, missing))
            more = ((0, 0), (0, missing))
            self._is_known = np.pad(self._is_known, more)
            self._seeds, self._times = np.pad(self._seeds, more), np.pad(self._times, more)
        return np.arange(first, first + num_games)

    def _numbers(self, places: np.ndarray) -> list[int]:
        return (KEPT * places + self._latest[places]).tolist()

    def _are_at(
        self,
        which: np.ndarray,
        places: np.ndarray,
        seeds: np.ndarray,
        times: np.ndarray,
        past: np.ndarray,
    ) -> np.ndarray:
        """Return of which places the game `which [E]` stands as asked for, `[E]` bool."""
        games = which, places
        found = self._is_known[games] & (self._seeds[games] == seeds)
        found &= self._times[games] == times
        longest = _longest(times, past)
        if not longest or not found.any():
            return found
        assert self._past is not None
        return found & _is_same(self._past[which, places, :longest], past[:, :longest], times)

    def _take(self, places: np.ndarray, seeds: np.ndarray, times: np.ndarray) -> None:
        """Choose a game of each place to be reset: a new one, or the one that waits for longer."""
        latest = self._latest[places]
        latest = np.where(self._is_known[latest, places], 1 - latest, latest)
        self._latest[places] = latest
        self._is_known[latest, places] = True
        self._seeds[latest, places], self._times[latest, places] = seeds, times


def _with_room(array: np.ndarray | None, num_places: int, rows: np.ndarray) -> np.ndarray:
    """Make an array `[2, places, ...]` of the kind of `rows [E, ...]`, or enlarge it."""
    if array is None:
        return np.zeros((KEPT, num_places, *rows.shape[1:]), rows.dtype)
    missing = num_places - array.shape[1]
    if not missing:
        return array
    return np.pad(array, ((0, 0), (0, missing), *((0, 0),) * (array.ndim - 2)))


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
        longest = _longest(times, past)
        if self.past is None or not longest or not found.any():
            return found
        return found & _is_same(self.past[:, :longest], past[:, :longest], times)


class BatchEpisodes:
    """Games that are stepped together, all of a request in one batch of their number.

    A batch goes on where all its games stand as they are asked for, or have just begun, since a
    reset leaves the others alone. As a single game cannot be stepped, otherwise all are played
    again.

    Args:
        warn: as in `SeparateEpisodes`.
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
        """Note a step of all games of the latest batch, and which episodes are over, `[E]` bool."""
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
        """Note who must act now in all games of the latest batch, `[E, A]` bool."""
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


Episodes = SeparateEpisodes | BatchEpisodes


def _longest(times: np.ndarray, past: np.ndarray) -> int:
    """Return how many steps of `past [E, capacity, ...]` count at most."""
    return min(int(times.max(initial=0)), past.shape[1])


def _is_same(own: np.ndarray, past: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return where two pasts `[E, T, ...]` are the same up to `times [E]`, `[E]` bool."""
    counts = np.arange(own.shape[1]) < times[:, None]
    return ((own == past).reshape(*counts.shape, -1).all(axis=2) | ~counts).all(axis=1)


def _to_replay(time: int, past: np.ndarray, warn: Callable[[int, int], None]) -> np.ndarray:
    """Return the actions of an episode up to now; none where not all are remembered.

    Choices that are remembered in few bytes become int32, as they are when they are played.
    """
    if time > len(past):
        warn(time, len(past))
        time = 0
    past = past[:time]
    return past.astype(np.int32) if past.dtype.kind == "u" else past
