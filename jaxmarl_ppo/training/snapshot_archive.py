"""Snapshots that are not all on the device: their files, and which of them play when.

Compiled iterations know only the places of a pool. Between them, at multiples of its interval,
`exchange` writes new snapshots to files, and replaces the oldest entry of a full pool by another
snapshot. The place to be replaced is no longer drawn (`draw_entries`), and it is replaced only once
no slot plays it.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.checks import check_sequence
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.snapshot_files import (
    read_snapshot,
    sha256_of,
    snapshot_path,
    write_snapshot,
)
from jaxmarl_ppo.policies.snapshot_pools import PRIOR_GAMES
from jaxmarl_ppo.runs.checkpoints import archived_files
from jaxmarl_ppo.types import League, PolicyStack, Population, TrainState

# Number of hardest snapshots reported for a policy.
NUM_HARDEST = 3
_TABLES = ("score", "payoff", "games")


@dataclass
class Archived:
    """A snapshot in a file, and its results.

    Attributes:
        sha256: of the file.
        results: `[3, 2, F]`, score, payoff and games, as row and as column, against every player
            that is no snapshot. They date from when it was last on the device.
    """

    sha256: str
    results: np.ndarray

    @property
    def win_rate(self) -> float:
        """Its score per game against all its opponents; few games mean 1/2."""
        (score, _), _, (games, _) = self.results
        return float((score.sum() + 0.5 * PRIOR_GAMES) / (games.sum() + PRIOR_GAMES))


class SnapshotArchive:
    """The snapshots of all pools that are partly off the device.

    Args:
        players: of the run.
        run_dir: the folder of the run.
        recorded: `as_json` of the archive to resume from.

    Raises:
        ValueError: If that is of another run, or damaged.
    """

    def __init__(
        self, players: Players, run_dir: Path, recorded: Mapping[str, Any] | None = None
    ) -> None:
        self._players, self.run_dir = players, run_dir
        self._pools = {
            players.policies[pool.policy]: (index, pool)
            for index, pool in enumerate(players.pools)
            if pool.spec.on_device is not None
        }
        numbers = np.arange(players.num_players)
        snapshots = [numbers[pool.players] for pool in players.pools]
        # Players whose number means the same player at all times.
        self._others = np.setdiff1d(numbers, np.concatenate(snapshots)).tolist()
        # By pool and iteration, in the order in which they were taken.
        self._archived: dict[str, dict[int, Archived]] = {
            name: _read_archived((recorded or {}).get(name, ()), len(self._others), name)
            for name in self._pools
        }
        self._put = jax.jit(_put_snapshot, donate_argnums=0)

    @property
    def intervals(self) -> tuple[int, ...]:
        """The exchange interval of every pool, in iterations."""
        return tuple(pool.spec.exchange_interval for _, pool in self._pools.values())

    def exchange(self, state: TrainState, population: Population, iteration: int) -> TrainState:
        """Write new snapshots to files, and exchange those on the device that are due.

        Args:
            state: between two iterations; its memory is reused.
            population: a copy of the players on the host, with the same exchanges.
            iteration: number of iterations done.

        Returns:
            The state, unchanged wherever nothing was exchanged.
        """
        due = {
            name: (index, pool)
            for name, (index, pool) in self._pools.items()
            if iteration % pool.spec.exchange_interval == 0
        }
        if not due:
            return state
        rollout = state.per_env.rollout
        alive, player = jax.device_get((rollout.obs.alive, rollout.player))
        playing = set(np.unique(player[alive]).tolist())
        words = np.asarray(jax.random.key_data(state.key)).ravel().tolist()
        for name, (index, place) in due.items():
            self._archive(name, index, population)
            pool = population.league.pools[index]
            entry = int(pool.oldest)
            is_full = int(pool.count) == place.spec.num_places
            if not is_full or place.first_player + entry in playing:
                continue
            drawn = self._draw(name, np.asarray(pool.added_at), [*words, index])
            if drawn is not None:
                state = self._bring(state, population, name, entry, drawn)
        return state

    def forget_lost(self) -> None:
        """Forget snapshots whose files were removed: no checkpoint could refer to them.

        Those on the device are written again at the next exchange.
        """
        for name, archived in self._archived.items():
            paths = {k: snapshot_path(self.run_dir, name, k) for k in archived}
            lost = [k for k, path in paths.items() if not os.path.lexists(path)]
            if lost:
                first, number = paths[lost[0]], len(lost)
                which = f"{first} does not exist"
                which += f", nor do {number - 1} others of {name!r}" if number > 1 else ""
                _warn(f"{which}; training continues without this snapshot")
            for k in lost:
                del archived[k]

    def as_json(self) -> dict[str, Any]:
        """Return the part of it that a checkpoint keeps: its files and results."""
        return {
            name: [
                {"iteration": k, "sha256": one.sha256, "results": one.results.tolist()}
                for k, one in archived.items()
            ]
            for name, archived in self._archived.items()
        }

    def describe(self) -> dict[str, dict[str, Any]]:
        """Summarise every pool: the number of snapshots, and the hardest ones.

        Returns:
            `{policy: {"snapshots", "win_rate", "hardest": [{"iteration", "win_rate", "games"}]}}`;
            win rates are the snapshots' own, against all that is no snapshot.
        """
        found = {}
        for name, archived in self._archived.items():
            met = {k: one for k, one in archived.items() if one.results[2, 0].sum()}
            rates = {k: one.win_rate for k, one in met.items()}
            found[name] = {
                "snapshots": len(archived),
                "win_rate": float(np.mean(list(rates.values()))) if rates else None,
                "hardest": [
                    {
                        "iteration": k,
                        "win_rate": rates[k],
                        "games": float(met[k].results[2, 0].sum()),
                    }
                    for k in sorted(rates, key=lambda k: -rates[k])[:NUM_HARDEST]
                ],
            }
        return found

    def remove_unused(self) -> None:
        """Remove files of snapshots that neither this archive nor a checkpoint refers to.

        Do not call it while a checkpoint is being written.
        """
        bounded = [name for name, (_, pool) in self._pools.items() if pool.spec.size is not None]
        if not bounded:
            return
        try:
            used = archived_files(self.run_dir)
        except (OSError, ValueError):  # a checkpoint that cannot be read may need any of them
            return
        for name in bounded:
            used |= {snapshot_path(self.run_dir, name, k) for k in self._archived[name]}
            for path in snapshot_path(self.run_dir, name, 0).parent.glob("*.msgpack"):
                if path not in used:
                    path.unlink(missing_ok=True)

    def _archive(self, name: str, index: int, population: Population) -> None:
        """Write new snapshots on the device, and record the results of all there."""
        place, archived = self._pools[name][1], self._archived[name]
        pool, league = population.league.pools[index], population.league
        size = place.spec.size
        for entry in range(int(pool.count)):
            iteration = int(pool.added_at[entry])
            if iteration not in archived:
                # One that newer ones have replaced may still be on the device.
                if size is not None and len(archived) >= size and iteration < min(archived):
                    continue
                written = self._write(
                    name, iteration, population.policy_groups[place.policy_group], entry
                )
                if written is None:
                    continue
                archived[iteration] = Archived(written, np.zeros(0, np.float32))
            player = place.first_player + entry
            archived[iteration].results = _results(league, player, self._others)
        kept = sorted(archived.items())
        self._archived[name] = dict(kept if size is None else kept[-size:])

    def _write(self, name: str, iteration: int, group: PolicyStack, entry: int) -> str | None:
        policy_index = self._pools[name][1].first_index + entry
        own = jax.tree.map(lambda x: x[policy_index : policy_index + 1], group)
        try:
            return write_snapshot(self.run_dir, name, iteration, own)
        except OSError as error:
            path = snapshot_path(self.run_dir, name, iteration)
            _warn(f"{path} could not be written ({error}); it is tried again while it plays")
            return None

    def _draw(self, name: str, resident: np.ndarray, seed: Sequence[int]) -> int | None:
        """Draw the snapshot to put on the device; None if there is no other."""
        spec = self._pools[name][1].spec
        others = {k: one for k, one in self._archived[name].items() if k not in resident}
        if not others:
            return None
        exponent = 0.0
        if spec.draw == "prioritised":
            exponent = 1.0 if spec.priority is None else spec.priority
        weights = np.array([one.win_rate**exponent for one in others.values()])
        rng = np.random.default_rng(seed)
        return int(rng.choice(list(others), p=weights / weights.sum()))

    def _is_lost(self, name: str, iteration: int) -> bool:
        """Return whether a snapshot is missing or damaged, not merely unreadable for the moment."""
        try:
            found = sha256_of(snapshot_path(self.run_dir, name, iteration))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return found != self._archived[name][iteration].sha256

    def _bring(
        self, state: TrainState, population: Population, name: str, entry: int, iteration: int
    ) -> TrainState:
        """Put a snapshot from a file into a place, with its results."""
        index, place = self._pools[name]
        policy_index = place.first_index + entry
        group, league = population.policy_groups[place.policy_group], population.league
        try:
            own = read_snapshot(
                self.run_dir, name, iteration, jax.tree.map(lambda x: x[policy_index], group)
            )
        except ValueError as error:
            _warn(f"{error}; training continues without this snapshot")
            if self._is_lost(name, iteration):
                del self._archived[name][iteration]
            return state
        jax.tree.map(lambda rows, row: rows.__setitem__(policy_index, row), group, own)
        player = place.first_player + entry
        _enter(league, player, self._others, self._archived[name][iteration].results)
        pool = league.pools[index]
        pool.added_at[entry] = iteration
        pool.oldest[...] = (entry + 1) % place.spec.num_places
        stacks = list(state.population.policy_groups)
        stacks[place.policy_group] = self._put(
            stacks[place.policy_group], own, np.int32(policy_index)
        )
        return state.replace(
            population=Population(tuple(stacks), _like(league, state.population.league))
        )


def make_archive(
    players: Players, run_dir: Path, recorded: Mapping[str, Any] | None = None
) -> SnapshotArchive | None:
    """Make the archive of a run; None if all snapshots are on the device."""
    if all(pool.spec.on_device is None for pool in players.pools):
        return None
    return SnapshotArchive(players, run_dir, recorded)


def _results(league: League, player: int, others: Sequence[int]) -> np.ndarray:
    """Copy a player's results against others, `[3, 2, F]`."""
    tables = [getattr(league, name) for name in _TABLES]
    return np.array([[table[player, others], table[others, player]] for table in tables])


def _enter(league: League, player: int, others: Sequence[int], results: np.ndarray) -> None:
    """Set a place's results to those of its new player; against snapshots it has none."""
    for name, (as_row, as_column) in zip(_TABLES, results, strict=True):
        table = getattr(league, name)
        table[player, :] = table[:, player] = 0.0
        table[player, others], table[others, player] = as_row, as_column


def _read_archived(recorded: Any, num_others: int, pool: str) -> dict[int, Archived]:
    """Read a checkpoint's record of the snapshots of a pool.

    Raises:
        ValueError: If it is damaged, or has results against other players.
    """
    found: dict[int, Archived] = {}
    for taken in check_sequence(f"the snapshots of {pool!r}", recorded, "a list"):
        try:
            results = np.array(taken["results"], np.float32)
            iteration, sha256 = int(taken["iteration"]), str(taken["sha256"])
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"the list of snapshots of {pool!r} is damaged: {error}") from error
        if results.shape != (len(_TABLES), 2, num_others):
            raise ValueError(
                f"a snapshot of {pool!r} has results of shape {list(results.shape)}, but should "
                f"have {[len(_TABLES), 2, num_others]}"
            )
        found[iteration] = Archived(sha256, results)
    return found


def _put_snapshot(stack: PolicyStack, own: PolicyStack, policy_index: jax.Array) -> PolicyStack:
    return jax.tree.map(lambda rows, row: rows.at[policy_index].set(row), stack, own)


def _like(league: League, there: League) -> League:
    """Put a league from the host onto the device of another one."""
    # Copied, since memory with another owner could not be donated.
    return jax.tree.map(lambda x, y: jax.device_put(x, y.sharding, may_alias=False), league, there)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
