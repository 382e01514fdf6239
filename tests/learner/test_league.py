"""Results, ratings and pools against tables and a replay in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from probe_envs import Faulty, quick_jit, tiny_learner

from jaxmarl_ppo.config.mapping import Draw
from jaxmarl_ppo.config.policies import Snapshots
from jaxmarl_ppo.learner import league_results as league_lib
from jaxmarl_ppo.learner.elo import elo_ratings
from jaxmarl_ppo.policies.snapshot_pools import SnapshotPool, draw_entries
from jaxmarl_ppo.types import Outcomes, PolicyStack

Q, SIZE = 6, 3
# Players 0 and 1 are trained; 2, 3, 4 are snapshots of 0; 5 is somebody else.
SPEC = Snapshots("main", size=SIZE, add_every=4)


def pool_of(spec=SPEC):
    return SnapshotPool(
        spec, policy=2, origin=0, policy_group=0, origin_index=0, first_index=2, first_player=2
    )


def make_outcomes(reward, player, over, alive=None):
    shape = reward.shape
    no = jnp.zeros(shape, bool)
    alive = np.ones(shape, bool) if alive is None else alive
    return Outcomes(
        reward=jnp.asarray(reward), terminated=no, truncated=no, final_value=jnp.zeros(shape),
        alive=jnp.asarray(alive), acted=jnp.asarray(alive), player=jnp.asarray(player),
        has_decided=no, episode_over=jnp.asarray(over), metrics={},
    )  # fmt: skip


def test_results_are_those_of_a_replay():
    rng = np.random.default_rng(0)
    steps, envs, agents = 40, 5, 3
    over = rng.random((steps, envs)) < 0.2
    reward = rng.integers(-1, 2, (steps, envs, agents)).astype(np.float32)
    alive = rng.random((steps, envs, agents)) < 0.9
    player = np.zeros((steps, envs, agents), np.int32)
    held = rng.integers(0, Q, (envs, agents))
    for t in range(steps):
        # Now and then somebody else takes over in the middle.
        swap = rng.random((envs, agents)) < 0.03
        held = np.where(swap, rng.integers(0, Q, held.shape), held)
        player[t] = held
        held = np.where(over[t][:, None], rng.integers(0, Q, held.shape), held)
    counted = np.ones((envs, agents), bool)
    counted[1] = False

    score, payoff, games = (np.zeros((Q, Q)) for _ in range(3))
    for e in range(envs):
        start = 0
        for end in np.nonzero(over[:, e])[0]:
            span = slice(start, end + 1)
            total = reward[span, e].sum(0)
            who = [set(player[span, e, a][alive[span, e, a]]) for a in range(agents)]
            steady = [len(w) == 1 and not (start == 0 and e == 1) for w in who]
            for i in range(agents):
                for j in range(agents):
                    if i != j and steady[i] and steady[j]:
                        pair = next(iter(who[i])), next(iter(who[j]))
                        score[pair] += 0.5 + 0.5 * np.sign(total[i] - total[j])
                        payoff[pair] += total[i]
                        games[pair] += 1
            start = end + 1
    assert games.sum() > 40

    league = league_lib.init_league(Q, (pool_of(),))
    running = league_lib.no_games(jnp.asarray(counted))
    record = jax.jit(
        lambda league, running, outcomes: (
            lambda played: (
                league_lib.record_results(league, (pool_of(),), played[1], outcomes.episode_over),
                played[0],
            )
        )(league_lib.track_games(running, outcomes))
    )
    outcomes = make_outcomes(reward, player, over, alive)
    league, _ = record(league, running, outcomes)
    np.testing.assert_allclose(league.games, games)
    np.testing.assert_allclose(league.score, score)
    np.testing.assert_allclose(league.payoff, payoff, atol=1e-4)
    np.testing.assert_allclose(league.pools[0].games, games[0, 2:5].sum())
    np.testing.assert_allclose(league.pools[0].wins, score[0, 2:5].sum())

    # The same in two rollouts, whose cut falls into episodes: older results have faded once.
    league = league_lib.init_league(Q, (pool_of(),))
    for part in (slice(0, 13), slice(13, steps)):
        league, running = record(league, running, jax.tree.map(lambda x, p=part: x[p], outcomes))
    np.testing.assert_allclose(league.pools[0].games, games[0, 2:5].sum())
    assert 0.97 * games.sum() < league.games.sum() < games.sum()


def draw_shares(league, spec, player=(0, 2), num=20_000):
    keys = jax.random.split(jax.random.key(0), num)
    player, alive = jnp.array(player), jnp.array([True, True])
    draw = jax.vmap(lambda key: draw_entries(key, league, pool_of(spec), 0, player, alive))
    entries = np.asarray(jax.jit(draw)(keys))[:, 1]
    return np.bincount(entries, minlength=SIZE) / num


def full_league(**pool):
    league = league_lib.init_league(Q, (pool_of(),))
    fields = {"count": 3, "oldest": 1, "added_at": jnp.array([8, 4, 6]), **pool}
    fields = {name: jnp.asarray(value) for name, value in fields.items()}
    return league.replace(pools=(league.pools[0].replace(**fields),))


def test_opponents_are_drawn_from_what_there_is():
    np.testing.assert_allclose(draw_shares(full_league(), SPEC), [1 / 3] * 3, atol=0.015)
    two = full_league(count=2)
    np.testing.assert_allclose(draw_shares(two, SPEC), [0.5, 0.5, 0], atol=0.015)
    # What is to be replaced is left alone.
    waiting = full_league(waiting=True)
    np.testing.assert_allclose(draw_shares(waiting, SPEC), [0.5, 0, 0.5], atol=0.015)
    filling = full_league(waiting=True, count=2, oldest=0)
    np.testing.assert_allclose(draw_shares(filling, SPEC), [0.5, 0.5, 0], atol=0.015)
    latest = Snapshots("main", size=SIZE, add_every=4, draw="latest")
    np.testing.assert_array_equal(draw_shares(full_league(), latest, num=50), [1, 0, 0])
    np.testing.assert_array_equal(draw_shares(two, latest, num=50), [1, 0, 0])


def test_prioritised_draws_go_by_who_beats_the_opponent():
    league = full_league()
    games = jnp.zeros((Q, Q)).at[2:5, 0].set(998.0)
    score = jnp.zeros((Q, Q)).at[2:5, 0].set(jnp.array([99.0, 399.0, 799.0]))
    league = league.replace(games=games, score=score)
    rates = np.array([0.1, 0.4, 0.8])
    hard = Snapshots("main", size=SIZE, add_every=4, draw="prioritised")
    np.testing.assert_allclose(draw_shares(league, hard), rates / rates.sum(), atol=0.015)
    harder = Snapshots("main", size=SIZE, add_every=4, draw="prioritised", priority=2.0)
    np.testing.assert_allclose(draw_shares(league, harder), rates**2 / (rates**2).sum(), atol=0.015)


def stack_of(values):
    return PolicyStack({"w": jnp.asarray(values, jnp.float32)[:, None]}, None, None)


def add(league, weights, playing, iteration, spec=SPEC):
    stacks = (stack_of(weights),)
    league, stacks = league_lib.add_snapshots(
        league, (pool_of(spec),), stacks, jnp.array(playing), jnp.asarray(iteration)
    )
    return league, np.asarray(stacks[0].params["w"][:, 0])


def test_snapshots_are_added_on_time_and_the_oldest_makes_way():
    league = league_lib.init_league(Q, (pool_of(),))
    weights, nobody = [1.0, 2.0, 0.0, 0.0, 0.0], [[0, 1]]
    for iteration in range(1, 17):
        weights[0] = 100.0 + iteration
        league, weights = add(league, weights, nobody, iteration)
        weights = weights.tolist()
        pool = league.pools[0]
        expected = {1: [0, 0, 0], 4: [0, 104, 0], 8: [0, 104, 108], 12: [112, 104, 108],
                    16: [112, 116, 108]}  # fmt: skip
        if iteration in expected:
            assert weights[2:] == expected[iteration]
        assert weights[1] == 2.0
    assert int(pool.count) == 3
    np.testing.assert_array_equal(pool.added_at, [12, 16, 8])


def test_an_entry_that_plays_is_not_overwritten_and_the_addition_waits():
    league = full_league(last_added=8)
    results = jnp.ones((Q, Q))
    league = league.replace(score=results, games=results, payoff=results)
    weights = [112.0, 2.0, 108.0, 104.0, 106.0]
    playing = [[0, 1], [3, 1]]  # player 3 is entry 1, the oldest
    league, after = add(league, weights, playing, 12)
    np.testing.assert_array_equal(after, weights)
    assert bool(league.pools[0].waiting)
    np.testing.assert_array_equal(league.games, results)
    weights[0] = 113.0
    league, after = add(league, weights, [[0, 1], [2, 4]], 13)
    np.testing.assert_array_equal(after, [113, 2, 108, 113, 106])
    assert not bool(league.pools[0].waiting)
    assert int(league.pools[0].oldest) == 2
    # What the old entry had done is forgotten, and nothing else.
    fresh = np.ones((Q, Q))
    fresh[3] = fresh[:, 3] = 0.0
    for table in (league.games, league.score, league.payoff):
        np.testing.assert_array_equal(table, fresh)


@pytest.mark.parametrize(
    ("wins", "games", "adds"), [(80, 100, True), (79, 100, False), (99, 99, False)]
)
def test_a_win_rate_adds(wins, games, adds):
    spec = Snapshots("main", size=SIZE, add_at_win_rate=0.8)
    league = full_league(count=1, wins=float(wins), games=float(games))
    league, after = add(league, [5.0, 2.0, 0.0, 0.0, 0.0], [[0, 1]], 1, spec)
    assert (after[3] == 5.0) == adds
    assert int(league.pools[0].count) == 1 + adds
    assert float(league.pools[0].games) == (0.0 if adds else games)


def test_elo_of_known_odds():
    """Odds of 3 to 1 are 190.8 points, and they add up."""
    games = 1e6 * (1.0 - np.eye(3))
    share = np.array([[0.5, 0.75, 0.9], [0.25, 0.5, 0.75], [0.1, 0.25, 0.5]])
    ratings = elo_ratings(share * games, games)
    np.testing.assert_allclose(np.diff(ratings), [-190.8, -190.8], atol=0.1)
    np.testing.assert_allclose(ratings.mean(), 1000.0, atol=1e-6)


def bradley_terry(score):
    """The same by a general minimiser; self games are left out by hand."""
    num = len(score)
    score = score * (1 - np.eye(num))

    def loss(rating):
        lost = np.logaddexp(0, rating[None, :] - rating[:, None])
        drawn = 0.5 * (np.logaddexp(0, rating) + np.logaddexp(0, -rating))
        share = scipy.special.expit(rating[:, None] - rating[None, :])
        gradient = (score.T * share - score * (1 - share)).sum(1)
        return (score * lost).sum() + drawn.sum(), gradient + scipy.special.expit(rating) - 0.5

    options = {"maxiter": 100_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9}
    found = scipy.optimize.minimize(
        loss, np.zeros(num), jac=True, method="L-BFGS-B", options=options
    )
    return 1000 + 400 / np.log(10) * (found.x - found.x.mean())


def test_elo_of_a_chain():
    """Each of 40 wins 9 of 10 games against the next: 381.7 points from one to the other, where
    games are so many that the one which each is assumed to have drawn does not count.
    """
    score = np.diag(np.full(39, 900.0), 1) + np.diag(np.full(39, 100.0), -1)
    ratings = elo_ratings(score, score + score.T)
    np.testing.assert_allclose(ratings, bradley_terry(score), atol=1.0)
    ratings = elo_ratings(1e4 * score, 1e4 * (score + score.T))
    np.testing.assert_allclose(-np.diff(ratings), 400 * np.log10(9), atol=0.01)


def test_elo_takes_nothing_from_self_games():
    score = np.array([[0.0, 9e3], [1e3, 0.0]])
    ratings = elo_ratings(score, score + score.T)
    np.testing.assert_allclose(ratings, bradley_terry(score), atol=0.01)
    with_self = score + np.diag([2e5, 0.0])
    np.testing.assert_array_equal(elo_ratings(with_self, with_self + with_self.T), ratings)
    alone = np.diag([50.0, 0.0])
    np.testing.assert_array_equal(elo_ratings(alone, 2 * alone), [1000.0, np.nan])


def test_elo_stays_finite_and_leaves_out_who_has_not_played():
    games = np.zeros((3, 3))
    games[0, 1] = games[1, 0] = 50.0
    score = np.zeros((3, 3))
    score[0, 1] = 50.0
    ratings = elo_ratings(score, games)
    assert np.isnan(ratings[2])
    assert 400 < ratings[0] - ratings[1] < 2000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"size": 0, "add_every": 1}, ["size", "0"]),
        ({"size": 1, "add_every": 1}, ["size of snapshots", "whole number of at least 2", "got 1"]),
        ({"add_every": 0}, ["add_every", "0"]),
        ({}, ["add_every or add_at_win_rate"]),
        ({"add_every": 1, "add_at_win_rate": 0.5}, ["either"]),
        ({"add_at_win_rate": 1.5}, ["1.5"]),
        ({"add_every": 1, "draw": "best"}, ["'best'", "uniform, latest, prioritised"]),
        ({"add_every": 1, "priority": 2.0}, ["no effect", "prioritised"]),
        ({"add_every": 1, "draw": "prioritised", "priority": 0.0}, ["positive"]),
        ({"add_every": 8, "size": None}, ["size=None", "needs on_device"]),
        ({"add_every": 8, "exchange_every": 1}, ["exchange_every=1", "without on_device"]),
        ({"add_every": 8, "on_device": 8}, ["on_device=8 has no effect", "size=8"]),
        ({"add_every": 8, "on_device": 1}, ["on_device", "at least 2", "got 1"]),
        ({"add_every": 8, "on_device": 2, "draw": "latest"}, ["on_device=2", "draw='latest'"]),
        ({"add_every": 1, "on_device": 2}, ["add_every=1", "exchange_every=1", "2 or more"]),
        ({"add_every": 8, "on_device": 2, "exchange_every": 5}, ["exchange_every=5", "half"]),
    ],
)
def test_bad_pools_are_refused(fields, words):
    with pytest.raises(ValueError) as error:
        Snapshots("main", **fields)
    for word in words:
        assert word in str(error.value)


class Widowed(Faulty):
    """Agent `b` dies at the first step, and the episode goes on without it."""

    def step_env(self, key, state, action, params):
        obs, after, reward, _, truncated, info = super().step_env(key, state, action, params)
        stays = jnp.array([True, False])
        obs = obs.replace(alive=obs.alive & stays, agent_mask=obs.agent_mask & stays)
        reward = jnp.where(stays | (state == 0), reward, 0.0)
        return obs, after, reward, ~stays & (state == 0), truncated & stays, info


def test_the_dead_hold_no_snapshot_back():
    env = Widowed()
    learner = tiny_learner(
        env,
        env.default_params,
        mapping={"a": "main", "b": "past"},
        config={"policies": {"past": Snapshots("main", size=2, add_every=1)}},
        num_steps=2,
    )
    state, step = quick_jit(learner.init)(jax.random.key(0)), quick_jit(learner.train_step)
    for added_at in ([0, 1], [2, 1], [2, 3]):
        state, _ = step(state)
        np.testing.assert_array_equal(state.population.league.pools[0].added_at, added_at)
    assert not state.per_env.rollout.obs.alive[:, 1].any()
    np.testing.assert_array_equal(state.per_env.rollout.episode, 0)


def test_prioritised_draws_go_by_the_living_alone():
    """Snapshots beat player 0 at one rate and player 1 at another; slot 1 is to be drawn."""
    env = Widowed()
    spec = Snapshots("main", size=SIZE, add_every=4, draw="prioritised")
    players = tiny_learner(
        env,
        env.default_params,
        mapping={"a": "main", "b": "past"},
        config={"policies": {"past": spec}},
    ).players
    pool = players.pools[0]
    games = jnp.zeros((players.num_players,) * 2).at[pool.players, 0].set(998.0)
    score = games.at[pool.players, 0].set(jnp.array([99.0, 399.0, 799.0]))
    league = league_lib.init_league(players.num_players, players.pools)
    league = league.replace(
        games=games, score=score, pools=(league.pools[0].replace(count=jnp.asarray(SIZE)),)
    )
    num = 20_000
    for lives, rates in ((True, np.array([0.1, 0.4, 0.8])), (False, np.ones(3))):
        draw = Draw(
            episode=jnp.zeros(num, int),
            needed=jnp.broadcast_to(jnp.array([False, True]), (num, 2)),
            held=jnp.zeros((num, 2), int),
            occupied=jnp.broadcast_to(jnp.array([lives, True]), (num, 2)),
        )
        player = players.draw(jax.random.key(0), league, draw)
        shares = np.bincount(player[:, 1] - pool.first_player, minlength=SIZE) / num
        np.testing.assert_allclose(shares, rates / rates.sum(), atol=0.015)
