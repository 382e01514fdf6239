"""Snapshots of policies as opponents: when they are taken, and results between players.

A pool is a fixed number of rows in the policy group of its origin. So snapshots act like any other
policy, from the next rollout on, and cost nothing in the update.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.ops.collectives import all_any, all_sum
from jaxmarl_ppo.policies.snapshot_pools import SnapshotPool
from jaxmarl_ppo.types import League, Outcomes, PolicyStack, Pool, RunningGames

# Results decay, so that ratings follow policies that learn: by e in this many iterations.
MEMORY_ITERATIONS = 50.0
# A win rate over fewer games adds no snapshot.
MIN_GAMES = 100.0


def init_league(num_players: int, pools: tuple[SnapshotPool, ...]) -> League:
    """Make the league that a run begins with: no results, one snapshot in each pool."""
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
                added_at=jnp.zeros(pool.spec.num_places, jnp.int32),
                last_added=none,
                wins=zero,
                games=zero,
            )
            for pool in pools
        ),
    )


def no_games(counted: jax.Array) -> RunningGames:
    """Make games that have not begun.

    `counted [E, A]` is False where training began in mid-episode.
    """
    return RunningGames(
        returns=jnp.zeros(counted.shape),
        player=jnp.full(counted.shape, -1, jnp.int32),
        mixed=~counted,
    )


def track_games(games: RunningGames, outcomes: Outcomes) -> tuple[RunningGames, RunningGames]:
    """Follow every episode through the outcomes of a rollout, `[T, E, A]`.

    Returns:
        The totals of episodes in progress, and those of each episode at each step.
    """

    def step(games: RunningGames, outcome: Outcomes) -> tuple[RunningGames, RunningGames]:
        first = games.player < 0
        player = jnp.where(outcome.alive & first, outcome.player, games.player)
        games = RunningGames(
            returns=games.returns + outcome.reward,
            player=player,
            # Reborn as another player: the return of the slot then belongs to no single player.
            mixed=games.mixed | (outcome.alive & (player != outcome.player)),
        )
        over = outcome.episode_over[:, None]
        fresh = no_games(jnp.ones_like(games.mixed))
        # Recorded before the reset, so that the last step of an episode is in its totals.
        return jax.tree.map(lambda x, y: jnp.where(over, x, y), fresh, games), games

    return jax.lax.scan(step, games, outcomes)


def record_results(
    league: League,
    pools: tuple[SnapshotPool, ...],
    games: RunningGames,
    episode_over: jax.Array,
    axis_name: str | None = None,
) -> League:
    """Add the episodes that ended in a rollout to the results between players.

    Any two slots of an episode are opponents.

    Args:
        league: before.
        pools: all of them.
        games: from `track_games`, `[T, E, A]`.
        episode_over: `[T, E]` bool.
        axis_name: of the devices that environments are spread over.
    """
    num_players, num_agents = league.games.shape[0], games.player.shape[-1]
    size = num_players**2
    # A slot that several players held in one episode is no evidence about any of them.
    steady = episode_over[..., None] & ~games.mixed & (games.player >= 0)

    def add_pair(totals: tuple[jax.Array, ...], pair: jax.Array):
        i, j = pair
        met = steady[..., i] & steady[..., j] & (i != j)
        # One past the table where the two have not met, so that the scatter drops it.
        where = jnp.where(met, games.player[..., i] * num_players + games.player[..., j], size)
        mine, theirs = games.returns[..., i], games.returns[..., j]
        score = jnp.where(mine > theirs, 1.0, jnp.where(mine == theirs, 0.5, 0.0))
        new = (score, mine, jnp.ones_like(mine))
        return tuple(
            total.at[where.ravel()].add(x.ravel(), mode="drop")
            for total, x in zip(totals, new, strict=True)
        ), None

    # Pair by pair: all at once would be an array of `A * A` numbers for every step.
    pairs = jnp.stack(jnp.meshgrid(*[jnp.arange(num_agents)] * 2), -1).reshape(-1, 2)
    sums, _ = jax.lax.scan(add_pair, (jnp.zeros(size),) * 3, pairs)
    sums = all_sum(sums, axis_name)
    score, payoff, count = (x.reshape(num_players, num_players) for x in sums)
    # Those of all pools: a policy can meet the snapshots of others as well as its own.
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
                wins=pool.wins + score[place.origin] @ snapshots,
                games=pool.games + count[place.origin] @ snapshots,
            )
            for pool, place in zip(league.pools, pools, strict=True)
        ),
    )


def add_snapshots(
    league: League,
    pools: tuple[SnapshotPool, ...],
    stacks: tuple[PolicyStack, ...],
    playing: jax.Array,
    iteration: jax.Array,
    axis_name: str | None = None,
) -> tuple[League, tuple[PolicyStack, ...]]:
    """Take the snapshots that are due, unless the entry that they replace is being played.

    Args:
        league: after `record_results`.
        pools: all of them.
        stacks: of all policy groups, after the update.
        playing: `[E, A]`, who holds the slots of agents that are alive now; -1 elsewhere.
        iteration: `()`, how many have been done.
        axis_name: of the devices that environments are spread over.
    """
    # Without a barrier the compiler may compute a row a second time for its copy, with other
    # rounding. A snapshot must equal the policy bit-for-bit.
    states, new_stacks = list(league.pools), list(jax.lax.optimization_barrier(stacks))
    for index, place in enumerate(pools):
        pool, spec = states[index], place.spec
        if spec.add_every is not None:
            due = iteration - pool.last_added >= spec.add_every
        else:
            due = pool.games >= MIN_GAMES
            if spec.on_device is not None:
                # At most one between two exchanges, which write new snapshots to files.
                due &= iteration - pool.last_added >= 2 * spec.exchange_interval
        if spec.add_at_win_rate is not None:
            due &= pool.wins >= spec.add_at_win_rate * pool.games
        full = pool.count == spec.num_places
        entry = jnp.where(full, pool.oldest, pool.count)
        player = place.first_player + entry
        # A life that began with its parameters must end with them.
        in_use = all_any((playing == player).any(), axis_name)
        adds = (pool.waiting | due) & ~(full & in_use)
        stack, target = new_stacks[place.policy_group], place.first_index + entry
        new_stacks[place.policy_group] = _copy_snapshot(stack, place.origin_index, target, adds)
        # From here on the entry is another player, without its old results.
        forgotten = adds & (jnp.arange(league.games.shape[0]) == player)
        league = league.replace(
            **{
                name: jnp.where(forgotten | forgotten[:, None], 0.0, getattr(league, name))
                for name in ("score", "payoff", "games")
            }
        )
        states[index] = Pool(
            count=pool.count + (adds & ~full),
            oldest=jnp.where(adds & full, (pool.oldest + 1) % spec.num_places, pool.oldest),
            waiting=(pool.waiting | due) & ~adds,
            added_at=jnp.where(
                adds & (jnp.arange(spec.num_places) == entry), iteration, pool.added_at
            ),
            last_added=jnp.where(adds, iteration, pool.last_added),
            wins=jnp.where(adds, 0.0, pool.wins),
            games=jnp.where(adds, 0.0, pool.games),
        )
    return league.replace(pools=tuple(states)), tuple(new_stacks)


def _copy_snapshot(
    stack: PolicyStack, source: int, target: jax.Array, wanted: jax.Array
) -> PolicyStack:
    return jax.tree.map(lambda x: x.at[target].set(jnp.where(wanted, x[source], x[target])), stack)
