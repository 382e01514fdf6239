"""Snapshots of policies as opponents: when they are taken, who meets whom, and how it ends.

A pool is a fixed number of rows in the bank of the policy that it keeps snapshots of. So snapshots
act like any other policy, from the very next rollout on, and cost nothing in the update.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.ops.collectives import all_any, all_sum
from jaxmarl_ppo.types import BankState, FrozenBank, Games, League, Outcomes, Policies, Pool

OpponentDraw = Literal["uniform", "latest", "prioritised"]
OPPONENT_DRAWS = ("uniform", "latest", "prioritised")
# Results fade, so that ratings follow policies that learn: after this many iterations by e.
MEMORY_ITERATIONS = 50.0
# A pair that has played this little is taken to be even.
PRIOR_GAMES = 2.0
# A win rate over fewer games adds no snapshot.
MIN_GAMES = 100.0


@dataclass(frozen=True)
class Snapshots:
    """A policy that is a pool of frozen snapshots of another one.

    It starts with one entry, the parameters that its origin starts from. Once the pool is full the
    oldest entry makes way; one that a running life plays is not drawn any more, and replaced when
    that life has ended.

    Attributes:
        of: the policy that snapshots are taken of.
        size: entries that the pool can hold.
        add_every: iterations from one snapshot to the next; None to go by `add_at_win_rate`.
        add_at_win_rate: take one when the policy's score (a win counts 1, a draw 1/2) against all
            snapshots of the run, since the last was taken and over at least 100 games, reaches
            this.
        draw: `"uniform"`, `"latest"`, or `"prioritised"`: the more often an entry beats the
            opponents that it is drawn against, the more often it is drawn (prioritised fictitious
            self-play, Vinyals et al. 2019).
        priority: exponent of the priority.
    """

    of: str
    size: int = 8
    add_every: int | None = None
    add_at_win_rate: float | None = None
    draw: OpponentDraw = "uniform"
    priority: float | None = None

    def __post_init__(self) -> None:
        for name in ("size", "add_every"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise ValueError(
                    f"{name} of snapshots must be a whole number from 1, got {value!r}"
                )
        if (self.add_every is None) == (self.add_at_win_rate is None):
            raise ValueError(
                "snapshots need either add_every or add_at_win_rate, got "
                f"add_every={self.add_every} and add_at_win_rate={self.add_at_win_rate}"
            )
        if self.add_at_win_rate is not None and not 0.0 < self.add_at_win_rate < 1.0:
            raise ValueError(
                f"add_at_win_rate must lie between 0 and 1, got {self.add_at_win_rate}"
            )
        if self.draw not in OPPONENT_DRAWS:
            raise ValueError(f"unknown draw {self.draw!r}; valid: {', '.join(OPPONENT_DRAWS)}")
        if self.priority is not None and self.draw != "prioritised":
            raise ValueError(
                f"priority={self.priority} has no effect with draw={self.draw!r}; "
                "set draw='prioritised' or drop it"
            )
        if self.priority is not None and not 0.0 < self.priority < np.inf:
            raise ValueError(f"priority must be positive and finite, got {self.priority}")


@dataclass(frozen=True)
class PoolSeats:
    """Where a pool stands: static."""

    spec: Snapshots
    policy: int  # its index among the policies
    origin: int  # the player whose snapshots it holds
    bank: int
    origin_row: int  # of the bank
    first_row: int  # of the bank
    first_player: int

    @property
    def players(self) -> slice:
        """Its entries among the players."""
        return slice(self.first_player, self.first_player + self.spec.size)


def init_league(num_players: int, pools: tuple[PoolSeats, ...]) -> League:
    """No results; in each pool one snapshot of the beginning."""
    zero, none = jnp.zeros(()), jnp.zeros((), jnp.int32)
    results = jnp.zeros((num_players, num_players))
    return League(
        score=results,
        payoff=results,
        games=results,
        pools=tuple(
            Pool(
                count=jnp.ones((), jnp.int32),
                oldest=none,
                waiting=jnp.zeros((), bool),
                added_at=jnp.zeros(pool.spec.size, jnp.int32),
                last_added=none,
                wins=zero,
                games=zero,
            )
            for pool in pools
        ),
    )


def win_rate(league: League) -> jax.Array:
    """Score per game of the row against the column, `[Q, Q]`, drawn towards 1/2 by few games."""
    return (league.score + 0.5 * PRIOR_GAMES) / (league.games + PRIOR_GAMES)


def draw_entries(
    key: jax.Array, league: League, seats: PoolSeats, index: int, player: jax.Array
) -> jax.Array:
    """An entry of one pool for every slot of one environment, `[A]` int.

    Args:
        key: of the draw.
        league: results and pools.
        seats: of the pool.
        index: of the pool.
        player: `[A]`, who holds the slots; slots of pools hold their first entry.
    """
    pool, spec = league.pools[index], seats.spec
    entries = jnp.arange(spec.size)
    available = entries < pool.count
    # What is to be replaced is not drawn any more; with a single entry there is nothing else.
    retires = pool.waiting & (pool.count == spec.size) & (entries == pool.oldest)
    available &= ~retires | (pool.count == 1)
    if spec.draw == "latest":
        newest = jnp.argmax(jnp.where(available, pool.added_at, -1))
        return jnp.full(player.shape, newest)
    weight = jnp.ones((player.shape[0], spec.size))
    if spec.draw == "prioritised":
        beats = win_rate(league)[seats.players, :][:, player].T  # [A, size]: against each slot
        others = ~np.eye(player.shape[0], dtype=bool)
        weight = (others @ beats) / max(player.shape[0] - 1, 1)
        weight = weight ** (1.0 if spec.priority is None else spec.priority)
    logits = jnp.where(available, jnp.log(jnp.maximum(weight, 1e-6)), -jnp.inf)
    return jax.random.categorical(unrolled(key), logits)


def init_games(counted: jax.Array) -> Games:
    """Nothing played; `counted [E, A]` is False where an episode began before training did."""
    return Games(
        returns=jnp.zeros(counted.shape),
        player=jnp.full(counted.shape, -1, jnp.int32),
        mixed=~counted,
    )


def track_games(games: Games, outcomes: Outcomes) -> tuple[Games, Games]:
    """Follow every episode through a rollout, `[T, E, A]`.

    Returns:
        The totals of episodes that go on, and those of each episode on each tick.
    """

    def tick(games: Games, outcome: Outcomes) -> tuple[Games, Games]:
        first = games.player < 0
        player = jnp.where(outcome.alive & first, outcome.player, games.player)
        games = Games(
            returns=games.returns + outcome.reward,
            player=player,
            mixed=games.mixed | (outcome.alive & (player != outcome.player)),
        )
        over = outcome.episode_over[:, None]
        fresh = init_games(jnp.ones_like(games.mixed))
        return jax.tree.map(lambda x, y: jnp.where(over, x, y), fresh, games), games

    return jax.lax.scan(tick, games, outcomes)


def record_results(
    league: League,
    pools: tuple[PoolSeats, ...],
    games: Games,
    episode_over: jax.Array,
    axis_name: str | None = None,
) -> League:
    """Enter the episodes that ended in a rollout; any two slots of an episode are opponents.

    Args:
        league: before.
        pools: all of them.
        games: from `track_games`, `[T, E, A]`.
        episode_over: `[T, E]` bool.
        axis_name: of the devices that environments are spread over.
    """
    num_players, num_agents = league.games.shape[0], games.player.shape[-1]
    size = num_players**2
    steady = episode_over[..., None] & ~games.mixed & (games.player >= 0)

    def add_pair(totals: tuple[jax.Array, ...], pair: jax.Array):
        i, j = pair
        met = steady[..., i] & steady[..., j] & (i != j)
        where = jnp.where(met, games.player[..., i] * num_players + games.player[..., j], size)
        mine, theirs = games.returns[..., i], games.returns[..., j]
        score = jnp.where(mine > theirs, 1.0, jnp.where(mine == theirs, 0.5, 0.0))
        new = (score, mine, jnp.ones_like(mine))
        return tuple(
            total.at[where.ravel()].add(x.ravel(), mode="drop")
            for total, x in zip(totals, new, strict=True)
        ), None

    pairs = jnp.stack(jnp.meshgrid(*[jnp.arange(num_agents)] * 2), -1).reshape(-1, 2)
    sums, _ = jax.lax.scan(add_pair, (jnp.zeros(size),) * 3, pairs)
    sums = all_sum(sums, axis_name)
    score, payoff, count = (x.reshape(num_players, num_players) for x in sums)
    snapshots = np.zeros(num_players)
    for pool in pools:
        snapshots[pool.players] = 1.0
    keep = np.exp(-1.0 / MEMORY_ITERATIONS)
    return League(
        score=keep * league.score + score,
        payoff=keep * league.payoff + payoff,
        games=keep * league.games + count,
        pools=tuple(
            pool.replace(
                wins=pool.wins + score[seats.origin] @ snapshots,
                games=pool.games + count[seats.origin] @ snapshots,
            )
            for pool, seats in zip(league.pools, pools, strict=True)
        ),
    )


def add_snapshots(
    league: League,
    pools: tuple[PoolSeats, ...],
    banks: tuple[BankState | FrozenBank, ...],
    playing: jax.Array,
    iteration: jax.Array,
    axis_name: str | None = None,
) -> tuple[League, tuple[BankState | FrozenBank, ...]]:
    """Take the snapshots that are due, where their place is free.

    Args:
        league: after `record_results`.
        pools: all of them.
        banks: after the update.
        playing: `[E, A]`, who holds the slots now.
        iteration: `()`, how many have been done.
        axis_name: of the devices that environments are spread over.
    """
    # Without a barrier the compiler may compute a row a second time for its copy, and round it
    # otherwise: a snapshot is to be the policy to the bit.
    states, new_banks = list(league.pools), list(jax.lax.optimization_barrier(banks))
    for index, seats in enumerate(pools):
        pool, spec = states[index], seats.spec
        if spec.add_every is not None:
            due = iteration - pool.last_added >= spec.add_every
        else:
            due = pool.games >= MIN_GAMES
        if spec.add_at_win_rate is not None:
            due &= pool.wins >= spec.add_at_win_rate * pool.games
        full = pool.count == spec.size
        entry = jnp.where(full, pool.oldest, pool.count)
        player = seats.first_player + entry
        in_use = all_any((playing == player).any(), axis_name)
        adds = (pool.waiting | due) & ~(full & in_use)
        bank = new_banks[seats.bank]
        policies = _copy_row(bank.policies, seats.origin_row, seats.first_row + entry, adds)
        new_banks[seats.bank] = bank.replace(policies=policies)
        forgotten = adds & (jnp.arange(league.games.shape[0]) == player)
        league = league.replace(
            **{
                name: jnp.where(forgotten | forgotten[:, None], 0.0, getattr(league, name))
                for name in ("score", "payoff", "games")
            }
        )
        states[index] = Pool(
            count=pool.count + (adds & ~full),
            oldest=jnp.where(adds & full, (pool.oldest + 1) % spec.size, pool.oldest),
            waiting=(pool.waiting | due) & ~adds,
            added_at=jnp.where(adds & (jnp.arange(spec.size) == entry), iteration, pool.added_at),
            last_added=jnp.where(adds, iteration, pool.last_added),
            wins=jnp.where(adds, 0.0, pool.wins),
            games=jnp.where(adds, 0.0, pool.games),
        )
    return league.replace(pools=tuple(states)), tuple(new_banks)


def _copy_row(policies: Policies, source: int, target: jax.Array, wanted: jax.Array) -> Policies:
    return jax.tree.map(
        lambda x: x.at[target].set(jnp.where(wanted, x[source], x[target])), policies
    )


def elo_ratings(score: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Elo ratings that explain the results best, with mean 1,000.

    The maximum of the Bradley-Terry likelihood (Bradley & Terry 1952) in which every player has
    also played one drawn game against an average one, so that nobody runs off to infinity. A
    difference of 400 means odds of 10 to 1.

    Args:
        score: `[Q, Q]`, what the row won off the column; a draw is 1/2.
        games: `[Q, Q]`.

    Returns:
        `[Q]`; NaN for players without a game.
    """
    played = games.sum(1) > 0
    rating = np.zeros(len(games))
    for _ in range(200):
        expected = 1.0 / (1.0 + np.exp(rating[None, :] - rating[:, None]))
        alone = 1.0 / (1.0 + np.exp(-rating))
        gradient = (score - games * expected).sum(1) + 0.5 - alone
        curvature = (games * expected * (1.0 - expected)).sum(1) + alone * (1.0 - alone)
        step = gradient / curvature
        # All players move at once, so each goes half of its own Newton step.
        rating += np.clip(0.5 * step, -1.0, 1.0)
        if np.abs(step[played]).max(initial=0.0) < 1e-6:
            break
    rating = 400.0 / np.log(10.0) * (rating - rating[played].mean() if played.any() else rating)
    return np.where(played, 1000.0 + rating, np.nan)
