"""Relay, unequal spaces and the dice game, against tables, enumeration and an exact solver."""

import functools
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_play import assert_uniform, compiled, naming, play, table

from jaxmarl_envs import Box, Discrete, toy
from jaxmarl_envs.toy.small import (
    HOLD,
    THROW,
    MultiSpaces,
    PressYourLuck,
    PressYourLuckState,
    Relay,
    RelayState,
)

RELAY, SPACES, DICE = Relay(), MultiSpaces(), PressYourLuck()
LEFT, RIGHT = range(2)


def test_everything_can_be_imported_from_one_module():
    classes = {name: getattr(toy, name) for name in toy.__all__}
    assert {cls.__name__ for cls in classes.values()} == set(classes)
    names = {cls.name for cls in classes.values()}
    assert len(names) == len(classes) == 14


# ---- Relay ---------------------------------------------------------------------------------------

NUM_RELAYS = 128  # of each play, as every size is compiled anew


def run_relay(a, b, params=None):
    """A takes the steps `a`, B the steps `b`, each of them at all times."""

    def policy(features, time_step):
        return np.broadcast_to([a[time_step], b[time_step]], (NUM_RELAYS, 2))

    return play(RELAY, policy, NUM_RELAYS, params)


def goals(played):
    return played.features[0, :, 0, 1]


def test_b_is_born_where_and_when_a_ends():
    # Right, right, left: A leaves the baton at 1. Then left, right, right: B ends at 2.
    steps = [RIGHT, RIGHT, LEFT, LEFT, RIGHT, RIGHT]
    played = run_relay(steps, steps)
    lives = table("10 10 10 01 01 01 00")[:, None].repeat(NUM_RELAYS, 1)
    np.testing.assert_array_equal(played.alive, lives)
    np.testing.assert_array_equal(played.acts, lives)
    terminated = table("00 00 10 00 00 01")[:, None].repeat(NUM_RELAYS, 1)
    np.testing.assert_array_equal(played.terminated, terminated)
    assert not played.truncated.any()
    for goal, of_a, of_b in ((1, -5, -4), (-1, -7, -8)):
        reward = [[0, 0], [0, 0], [of_a, 0], [0, 0], [0, 0], [0, of_b]]
        episodes = np.flatnonzero(goals(played) == goal)
        for episode in episodes[:2]:
            np.testing.assert_array_equal(played.reward[:, episode], reward)
        assert len(episodes) > 1
    position = np.array([0, 1, 2, 1, 0, 1, 2]) / 6
    to_go = np.array([[3, 2, 1, 0, 0, 0, 0], [3, 3, 3, 3, 2, 1, 0]]).T / 3
    features = played.features[:, 0]
    np.testing.assert_allclose(features[..., 0], np.stack([position] * 2, 1), rtol=1e-6)
    np.testing.assert_array_equal(features[..., 1], goals(played)[0])
    np.testing.assert_allclose(features[..., 2], to_go, rtol=1e-6)


def test_of_all_ways_to_run_the_best_ends_at_the_goal():
    everything = np.array(list(itertools.product([-1, 1], [LEFT, RIGHT], *[[LEFT, RIGHT]] * 5)))
    goal, steps = everything[:, 0], everything[:, 1:]
    zero = jnp.zeros(NUM_RELAYS, jnp.int32)
    state = RelayState(time=zero, position=zero, goal=jnp.asarray(goal, jnp.int32))
    keys, step = jax.random.split(jax.random.key(0), NUM_RELAYS), compiled(RELAY)[1]
    total = np.zeros((NUM_RELAYS, 2))
    for column in steps.T:
        action = jnp.asarray(np.stack([column] * 2, 1), jnp.int32)
        _, state, reward, *_ = step(keys, state, action, RELAY.default_params)
        total += np.asarray(reward)
    # [goal, first leg, second leg, A]
    returns = total.reshape(2, 8, 8, 2)
    np.testing.assert_array_equal(returns.mean((0, 1, 2)), [-6, -6])
    np.testing.assert_array_equal(returns.max((1, 2)), [[-3, 0]] * 2)
    np.testing.assert_array_equal(returns[0, 0, 0], [-3, 0])  # left throughout
    np.testing.assert_array_equal(returns[1, -1, -1], [-3, 0])  # right throughout
    of_a, best_of_b = returns[:, :, 0, 0], returns[..., 1].max(-1)
    np.testing.assert_array_equal(returns[..., 0], of_a[..., None].repeat(8, -1))
    # Where A leaves a distance d, B can do no better than 3 - d.
    np.testing.assert_array_equal(best_of_b, 3 + of_a)
    assert best_of_b.mean() == -3


def test_only_the_runner_moves_the_baton():
    played = run_relay([RIGHT] * 6, [LEFT] * 6)
    position = np.array([0, 1, 2, 3, 2, 1, 0]) / 6
    np.testing.assert_allclose(played.features[:, 0, 0, 0], position, rtol=1e-6)


def test_the_goal_is_a_fair_coin_and_the_leg_a_parameter():
    params = RELAY.default_params.replace(leg=1)
    assert RELAY.horizon(params) == 2
    played = run_relay([RIGHT] * 2, [RIGHT] * 2, params)
    goal = goals(played)
    assert_uniform((goal > 0).astype(int), 2)
    # One step to the right from 0, then one from 1, towards 2 or -2.
    np.testing.assert_array_equal(played.reward[0, :, 0], np.where(goal > 0, -1, -3))
    np.testing.assert_array_equal(played.reward[1, :, 1], np.where(goal > 0, 0, -4))
    np.testing.assert_array_equal(played.alive[:, 0], table("10 01 00"))


# ---- Unequal spaces ------------------------------------------------------------------------------


def test_unequal_agents_name_their_own_targets():
    def policy(features, time_step):
        return np.stack([features[:, 0, :2].argmax(-1), features[:, 1, :3].argmax(-1)], axis=1)

    played = play(SPACES, policy, 256)
    np.testing.assert_array_equal(played.reward, 1)
    assert played.truncated.shape == (25, 256, 2)
    assert played.truncated[-1].all()
    assert not played.truncated[:-1].any()
    assert not played.terminated.any()
    np.testing.assert_array_equal(played.alive[:-1], True)
    np.testing.assert_array_equal(played.alive, played.acts)
    assert not played.alive[-1].any()
    wrong = play(
        SPACES, lambda features, time_step: (policy(features, time_step) + 1) % [2, 3], 256
    )
    assert not wrong.reward.any()


def test_unequal_observations_are_one_hots_and_noise():
    features = play(SPACES, naming(2), 256).features
    for agent, (num_actions, width) in enumerate(((2, 10), (3, 20))):
        own = features[:, :, agent]
        one_hot, noise = own[..., :num_actions], own[..., num_actions:width]
        np.testing.assert_array_equal(np.sort(one_hot, -1)[..., -1], 1)
        np.testing.assert_array_equal(one_hot.sum(-1), 1)
        assert_uniform(one_hot.argmax(-1), num_actions)
        assert not own[..., width:].any()
        # Uniform on [-1, 1]: mean 0, variance 1/3, each within five standard errors.
        error = 5 / np.sqrt(noise.size)
        assert abs(noise.mean()) < error * np.sqrt(1 / 3)
        assert abs((noise**2).mean() - 1 / 3) < error * np.sqrt(1 / 5 - 1 / 9)
        assert np.abs(noise).max() <= 1
        spread = noise.std(axis=(0, 1))
        assert spread.min() > 0.5, "a column of noise does not vary"
    pairs = features[..., 0, :2].argmax(-1) * 3 + features[..., 1, :3].argmax(-1)
    assert_uniform(pairs, 6)


def test_unequal_spaces_are_those_declared():
    params = SPACES.default_params
    assert [SPACES.observation_space(a, params) for a in SPACES.agents] == [
        Box(-1.0, 1.0, (10,)),
        Box(-1.0, 1.0, (20,)),
    ]
    assert list(SPACES.action_spaces(params).values()) == [Discrete(2), Discrete(3)]
    obs, _ = compiled(SPACES)[0](jax.random.split(jax.random.key(0), 256), params)
    np.testing.assert_array_equal(obs.action_mask[0], [[1, 1, 0], [1, 1, 1]])
    assert SPACES.horizon(params.replace(max_steps=3)) == 3


# ---- Throw again or hold -------------------------------------------------------------------------

BUST = 0
NUM_DICE = 4096  # states that are stepped at once, as every number is compiled anew


def dice_state(banked=(0, 0), at_stake=0, mover=0, thrown=False, left=10, num=1):
    one = PressYourLuckState(
        *(jnp.asarray(x, jnp.int32) for x in (banked, at_stake, mover)),
        thrown=jnp.asarray(thrown),
        left=jnp.asarray(left, jnp.int32),
    )
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *x.shape)), one)


def to_rows(state):
    """States as `[E, 6]` integers: banked (2), at stake, mover, thrown, left."""
    leaves = (state.at_stake, state.mover, state.thrown, state.left)
    return np.column_stack([state.banked, *(np.asarray(x, int) for x in leaves)])


@pytest.fixture(scope="module")
def dice():
    """A key for each way the die can fall, and how it falls for many keys."""
    keys = jax.random.split(jax.random.key(0), NUM_DICE)
    state = dice_state(thrown=True, num=NUM_DICE)
    action = jnp.zeros((NUM_DICE, 2), jnp.int32)
    _, after, *_ = compiled(DICE)[1](keys, state, action, DICE.default_params)
    fell = np.where(after.mover == 1, BUST, after.at_stake)
    return {face: keys[int((fell == face).argmax())] for face in np.unique(fell)}, fell


def test_the_die_falls_as_declared(dice):
    keys, fell = dice
    assert sorted(keys) == [BUST, 1, 2, 3]
    assert_uniform(fell, 4)


def test_the_chance_of_a_bust_is_a_parameter():
    step, keys = compiled(DICE)[1], jax.random.split(jax.random.key(1), NUM_DICE)
    state = dice_state(at_stake=2, thrown=True, num=NUM_DICE)
    for p_bust in (0.0, 1.0):
        params = DICE.default_params.replace(p_bust=p_bust)
        _, after, *_ = step(keys, state, jnp.zeros((NUM_DICE, 2), jnp.int32), params)
        assert (np.asarray(after.mover) == p_bust).all()
        assert (np.asarray(after.at_stake == 0) == p_bust).all()


def play_dice(dice, num_decisions, moves):
    """Play given moves: HOLD or THROW, or the face of a die after "die"; what was seen."""
    params = DICE.default_params.replace(num_decisions=num_decisions)
    reset, step = compiled(DICE)
    obs, state = reset(jax.random.split(jax.random.key(0), 1), params)
    seen, happened = [obs], []
    for move in moves:
        falls = isinstance(move, str)
        key = dice[0][int(move[-1])] if falls else jax.random.key(0)
        # Whoever does not act says the opposite.
        acts = np.asarray(seen[-1].agent_mask[0])
        assert acts.any() != falls
        action = np.where(acts, 0 if falls else move, 0 if falls else 1 - move)[None]
        obs, state, *rest = step(key[None], state, jnp.asarray(action, jnp.int32), params)
        seen.append(obs)
        happened.append(rest)
    return seen, happened


def test_a_dice_game_by_hand(dice):
    moves = [THROW, "die 3", THROW, "die 2", HOLD, THROW, "die 0", THROW, "die 1"]
    seen, happened = play_dice(dice, 5, moves)
    acts = np.array([obs.agent_mask[0] for obs in seen])
    np.testing.assert_array_equal(acts, table("10 00 10 00 10 01 00 10 00 00"))
    alive = np.array([obs.alive[0] for obs in seen])
    np.testing.assert_array_equal(alive, [[1, 1]] * 9 + [[0, 0]])
    may_hold = np.array([obs.action_mask[0, :, HOLD] for obs in seen])
    np.testing.assert_array_equal(may_hold, table("00 00 10 10 10 00 00 00 00 10"))
    assert all(obs.action_mask[..., THROW].all() for obs in seen)
    # Points of first, points of second, at stake, turn of first, in the air, decisions left.
    rows = [
        [0, 0, 0, 1, 0, 5],
        [0, 0, 0, 1, 1, 4],
        [0, 0, 3, 1, 0, 4],
        [0, 0, 3, 1, 1, 3],
        [0, 0, 5, 1, 0, 3],
        [5, 0, 0, 0, 0, 2],
        [5, 0, 0, 0, 1, 1],
        [5, 0, 0, 1, 0, 1],
        [5, 0, 0, 1, 1, 0],
        [5, 0, 1, 1, 0, 0],
    ]
    first = np.array(rows) / [10, 10, 10, 1, 1, 5]
    second = first[:, [1, 0, 2, 3, 4, 5]]
    second[:, 3] = 1 - second[:, 3]
    features = np.array([obs.features[0] for obs in seen])
    np.testing.assert_allclose(features, np.stack([first, second], 1), rtol=1e-6)
    reward, terminated, truncated, _ = zip(*happened, strict=True)
    np.testing.assert_array_equal(np.array(reward)[:, 0], [[0, 0]] * 8 + [[1, -1]])
    np.testing.assert_array_equal(np.array(terminated)[:, 0], [[0, 0]] * 8 + [[1, 1]])
    assert not np.array(truncated).any()


@pytest.mark.parametrize(
    ("num_decisions", "moves", "first", "metric"),
    [
        (2, [THROW, "die 2", HOLD], 1, "win"),
        (4, [THROW, "die 2", HOLD, THROW, "die 2", HOLD], 0, "draw"),
        (4, [THROW, "die 2", HOLD, THROW, "die 3", HOLD], -1, "loss"),
        # What is at stake when the last die has fallen is lost.
        (2, [THROW, "die 3", THROW, "die 3"], 0, "draw"),
        # Holding with nothing at stake is a throw.
        (1, [HOLD, "die 1"], 0, "draw"),
        (2, [THROW, "die 0", HOLD, "die 3"], 0, "draw"),
    ],
)
def test_dice_games_end_with_their_last_decision(dice, num_decisions, moves, first, metric):
    seen, happened = play_dice(dice, num_decisions, moves)
    assert [bool(obs.alive.all()) for obs in seen] == [True] * len(moves) + [False]
    np.testing.assert_array_equal(happened[-1][0], [[first, -first]])
    assert not any(np.asarray(reward).any() for reward, *_ in happened[:-1])
    metrics = {name: value[0].tolist() for name, value in happened[-1][-1]["metrics"].items()}
    mirrored = {"win": "loss", "draw": "draw", "loss": "win"}[metric]
    expected = {name: [name == metric, name == mirrored] for name in ("win", "draw", "loss")}
    assert metrics == expected
    for *_, info in happened[:-1]:
        assert not any(np.asarray(value).any() for value in info["metrics"].values())


def solve(num_decisions, choose, p_bust=Fraction(1, 4)):
    """Value for whoever begins: backward induction over the lead, by the rules alone.

    `choose(hold, throw, at_stake)` gives the value of a decision from those of its two actions.
    """

    @functools.cache
    def value(left, lead, at_stake):
        if left == 0:
            return Fraction((lead > 0) - (lead < 0))
        falls = sum(value(left - 1, lead, at_stake + face) for face in (1, 2, 3)) / 3
        throw = (1 - p_bust) * falls - p_bust * value(left - 1, -lead, 0)
        if at_stake == 0:
            return throw
        return choose(-value(left - 1, -lead - at_stake, 0), throw, at_stake)

    return value(num_decisions, 0, 0)


POLICIES = {
    "best": lambda hold, throw, at_stake: max(hold, throw),
    "coin": lambda hold, throw, at_stake: (hold + throw) / 2,
    "hold at once": lambda hold, throw, at_stake: hold,
    "hold from 4": lambda hold, throw, at_stake: hold if at_stake >= 4 else throw,
}


def test_the_documented_values_are_exact():
    values = {name: solve(10, choose) for name, choose in POLICIES.items()}
    assert values["best"] == Fraction(29607, 262144)
    rounded = {name: round(float(value), 4) for name, value in values.items()}
    assert list(rounded.values()) == [0.1129, 0.1657, 0.2984, 0.2090]
    for value in rounded.values():
        assert f"{value:.4f}" in PressYourLuck.__doc__
    # By hand: throw, then hold unless it was a bust; the other cannot bank with no decision left.
    assert solve(2, POLICIES["best"]) == Fraction(3, 4)


def successors(rows, branch, key):
    """States and rewards that follow action `branch` (or the die that `key` throws), `[n]` each."""
    padded = np.resize(rows, (NUM_DICE, 6))
    state = PressYourLuckState(
        *(jnp.asarray(padded[:, i], jnp.int32) for i in (slice(2), 2, 3)),
        thrown=jnp.asarray(padded[:, 4].astype(bool)),
        left=jnp.asarray(padded[:, 5], jnp.int32),
    )
    action = jnp.full((NUM_DICE, 2), branch % 2, jnp.int32)
    keys = jnp.repeat(key[None], NUM_DICE)
    _, after, reward, *_ = compiled(DICE)[1](keys, state, action, DICE.default_params)
    after = map(tuple, to_rows(after).tolist())
    return list(zip(after, np.asarray(reward), strict=True))[: len(rows)]


@pytest.fixture(scope="module")
def game_graph(dice):
    """What follows each state that can be reached: `{row: [(row, reward) by action or face]}`."""
    keys = [dice[0][face] for face in (BUST, 1, 2, 3)]
    graph, frontier = {}, {tuple(to_rows(dice_state())[0].tolist())}
    while frontier:
        rows = sorted(frontier)[:NUM_DICE]
        branches = [successors(rows, branch, key) for branch, key in enumerate(keys)]
        for row, *after in zip(rows, *branches, strict=True):
            graph[row] = after if row[4] else after[:2]
            frontier |= {row for row, _ in graph[row] if row[4] or row[5]}
        frontier -= set(graph)
    return graph


@pytest.mark.rare_cases("best")
@pytest.mark.parametrize("name", POLICIES)
def test_the_value_of_the_game_as_it_is_played_is_that_of_its_rules(game_graph, name):
    """Rewards and transitions come from the environment, nothing but chance from the rules."""
    value = {}  # of slot 0
    # A throw takes a decision, its fall none.
    for row in sorted(game_graph, key=lambda row: (row[5], row[4])):
        branches = game_graph[row]
        outcomes = [float(reward[0]) + value.get(after, 0.0) for after, reward in branches]
        assert all(reward.sum() == 0 for _, reward in branches)
        at_stake, mover, thrown = row[2:5]
        if thrown:
            value[row] = float(np.dot(outcomes, [0.25] * 4))
        elif at_stake == 0:
            value[row] = outcomes[THROW]
        else:
            sign = 1 - 2 * mover
            hold, throw = (sign * outcome for outcome in outcomes)
            value[row] = sign * POLICIES[name](hold, throw, at_stake)
    start = tuple(to_rows(dice_state())[0].tolist())
    assert value[start] == pytest.approx(float(solve(10, POLICIES[name])), abs=1e-12)
