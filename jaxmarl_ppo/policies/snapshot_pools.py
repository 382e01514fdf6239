"""Pools of frozen snapshots: their places and names, and draws of entries.

`past@it150` is the snapshot that the pool `past` took after 150 iterations. `past@2` is the place
of a snapshot in the pool, counted from 0, where others may follow.
"""

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.config.policies import Snapshots
from jaxmarl_ppo.types import League

# A pair with fewer games counts as even.
PRIOR_GAMES = 2.0
_NAME = re.compile(r"(.+)@it(\d+)")


def snapshot_name(pool: str, iteration: int) -> str:
    """Name the snapshot that a pool took after so many iterations."""
    return f"{pool}@it{iteration}"


def parse_name(name: str) -> tuple[str, int] | None:
    """Split a name from `snapshot_name` into pool and iteration; None for other names."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


@dataclass(frozen=True)
class SnapshotPool:
    """The place of a pool of snapshots among policies, players and members; static."""

    spec: Snapshots
    policy: int  # its index among the policies
    origin: int  # the player whose snapshots it holds
    policy_group: int
    origin_index: int  # of the policy group
    first_index: int  # of the policy group
    first_player: int

    @property
    def players(self) -> slice:
        """Slice of the players that are the entries of the pool."""
        return slice(self.first_player, self.first_player + self.spec.num_places)


def win_rate(league: League) -> jax.Array:
    """Compute the score per game of the row against the column, `[Q, Q]`; few games mean 1/2."""
    return (league.score + 0.5 * PRIOR_GAMES) / (league.games + PRIOR_GAMES)


def draw_entries(
    key: jax.Array,
    league: League,
    place: SnapshotPool,
    index: int,
    player: jax.Array,
    alive: jax.Array,
) -> jax.Array:
    """Draw an entry of one pool for every slot of one environment, `[A]` int.

    Args:
        key: of the draw.
        league: results and pools.
        place: where the pool stands.
        index: of the pool among all pools.
        player: `[A]`, the slots' players; slots of pools hold their first entry.
        alive: `[A]` bool, the slots that hold an agent; the others are no opponents.
    """
    pool, spec = league.pools[index], place.spec
    size = spec.num_places
    entries = jnp.arange(size)
    available = entries < pool.count
    # The entry to be replaced is no longer drawn; where others wait off the device there always is
    # one.
    is_next = (pool.count == size) & (entries == pool.oldest)
    available &= ~(is_next if spec.on_device is not None else is_next & pool.waiting)
    if spec.draw == "latest":
        newest = jnp.argmax(jnp.where(available, pool.added_at, -1))
        return jnp.full(player.shape, newest)
    weight = jnp.ones((player.shape[0], size))
    # Where entries rotate, those on the device have already been drawn by priority.
    if spec.draw == "prioritised" and spec.on_device is None:
        beats = win_rate(league)[place.players, :][:, player].T  # [A, size]: against each slot
        others = ~np.eye(player.shape[0], dtype=bool) & alive
        weight = (others @ beats) / jnp.maximum(others.sum(1, keepdims=True), 1)
        weight = weight ** (1.0 if spec.priority is None else spec.priority)
    # Without a living opponent all weights are 0, and any entry will do.
    logits = jnp.where(available, jnp.log(jnp.maximum(weight, 1e-6)), -jnp.inf)
    return jax.random.categorical(unrolled(key), logits)
