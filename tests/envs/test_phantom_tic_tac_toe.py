"""Phantom tic-tac-toe against plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_envs.phantom_tic_tac_toe import InformationTable, PhantomTicTacToe
from jaxmarl_envs.tic_tac_toe import winning_lines

LINES = [set(line) for line in winning_lines(3, 3, 3).tolist()]


class Plain:
    """One game, by the rules as OpenSpiel states them."""

    def __init__(self):
        self.stones, self.tries = [set(), set()], [[], []]
        self.turn, self.result = 0, None

    def act(self, cell):
        """Try a cell; tell whether the move was refused."""
        me, other = self.stones[self.turn], self.stones[1 - self.turn]
        self.tries[self.turn].append(cell)
        if cell in other:
            return True
        me.add(cell)
        if any(line <= me for line in LINES):
            self.result = [1, -1] if self.turn == 0 else [-1, 1]
        elif len(me) + len(other) == 9:
            self.result = [0, 0]
        self.turn = 1 - self.turn
        return False

    def features(self, player):
        seat = np.eye(2)[player]
        own, met, order = np.zeros(9), np.zeros(9), np.zeros((9, 9))
        for place, cell in enumerate(self.tries[player]):
            order[place, cell] = 1
            (own if cell in self.stones[player] else met)[cell] = 1
        return np.concatenate([seat, own, met, order.ravel()])


@pytest.fixture(scope="module")
def step():
    env = PhantomTicTacToe()
    step = jax.jit(jax.vmap(env.step_env, in_axes=(None, 0, 0, None)))
    return lambda state, action: step(jax.random.key(0), state, action, None)


def begin(num):
    env = PhantomTicTacToe()
    one = env.reset_env(jax.random.key(0), None)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *x.shape)), one)


def test_random_games_go_as_the_rules_say(step):
    """Features, turns, legal moves, refusals and results of 300 games, step by step."""
    rng, num = np.random.default_rng(0), 300
    games = [Plain() for _ in range(num)]
    obs, state = begin(num)
    seen, longest = {"refused": 0, "win": 0, "draw": 0, "loss": 0}, 0
    for time_step in range(PhantomTicTacToe().horizon(None)):
        obs = jax.device_get(obs)
        action, refused = rng.integers(0, 9, (num, 2)), np.zeros((num, 2))
        ends = np.zeros(num, bool)
        for row, game in enumerate(games):
            going = game.result is None
            assert obs.alive[row].tolist() == [going] * 2
            if not going:
                continue
            longest = time_step + 1
            turn = game.turn
            assert obs.agent_mask[row].tolist() == [turn == 0, turn == 1]
            legal = sorted(set(range(9)) - set(game.tries[turn]))
            assert np.flatnonzero(obs.action_mask[row, turn]).tolist() == legal
            assert obs.action_mask[row, 1 - turn].all()
            for player in range(2):
                np.testing.assert_array_equal(obs.features[row, player], game.features(player))
            stones = [[cell in own for cell in range(9)] for own in game.stones]
            np.testing.assert_array_equal(obs.state[row], [*np.ravel(stones), turn])
            action[row, turn] = rng.choice(legal)
            refused[row, turn] = game.act(action[row, turn])
            ends[row] = game.result is not None
        obs, state, reward, terminated, truncated, info = step(state, action)
        np.testing.assert_array_equal(terminated, np.stack([ends, ends], 1))
        assert not truncated.any()
        np.testing.assert_array_equal(info["metrics"]["refused"], refused)
        won = np.array(
            [game.result if end else [0, 0] for game, end in zip(games, ends, strict=True)]
        )
        np.testing.assert_array_equal(reward, won)
        np.testing.assert_array_equal(info["metrics"]["win"], won == 1)
        np.testing.assert_array_equal(info["metrics"]["draw"].sum(1), 2 * (ends & ~won.any(1)))
        for name in seen:
            seen[name] += float(np.asarray(info["metrics"][name]).sum())
    assert all(game.result is not None for game in games)
    assert min(seen.values()) > 0
    assert 9 < longest <= 17


def test_the_longest_game_takes_the_whole_horizon(step):
    """Each runs into all of the other's stones before the board is full."""
    x, o = [0, 1, 5, 6, 8], [2, 3, 4, 7]
    tries = [[], []]
    for k in range(9):
        mover = k % 2
        met = o[: k // 2] if mover == 0 else x[: (k + 1) // 2]
        for cell in met:
            if cell not in tries[mover]:
                tries[mover].append(cell)
        tries[mover].append((x, o)[mover][k // 2])
    _, state = begin(1)
    game, order = Plain(), [iter(each) for each in tries]
    steps = 0
    while game.result is None:
        cell = next(order[game.turn])
        action = np.full((1, 2), cell)
        game.act(cell)
        _, state, reward, terminated, *_ = step(state, action)
        steps += 1
        assert bool(terminated.all()) == (game.result is not None)
    assert steps == PhantomTicTacToe().horizon(None) == 17
    assert not reward.any()


def test_a_cell_that_was_tried_before_loses_at_once(step):
    _, state = begin(1)
    for cell in (4, 4, 0):  # o is refused, then moves
        _, state, _, terminated, *_ = step(state, np.full((1, 2), cell))
        assert not terminated.any()
    _, after, reward, terminated, _, info = step(state, np.full((1, 2), 4))
    assert terminated.all()
    assert reward.tolist() == [[-1, 1]]
    assert info["metrics"]["loss"].tolist() == [[1, 0]]
    assert not info["metrics"]["refused"].any()
    _, _, reward, terminated, *_ = step(after, np.full((1, 2), 8))  # over is over
    assert not reward.any()
    assert not terminated.any()


def test_the_picture_has_the_stones_of_both(step):
    _, state = begin(1)
    env = PhantomTicTacToe()
    for cell in (4, 4):
        _, state, *_ = step(state, np.full((1, 2), cell))
    one = jax.device_get(jax.tree.map(lambda x: x[0], state))
    svg = env.render(one)
    assert "x has 1 stones and has run into nothing; o has 0 and has run into b2; o to move" in svg
    framed = [line for line in svg.split("\n") if "stroke:var(--ink)" in line and "<rect" in line]
    assert len(framed) == 1
    assert 'data-action="4"' in framed[0]


# ---- All information states (values on small boards: test_sequence_form.py) ----------------------


def codes_of(state, mover):
    """Write what the movers know as a number each: which cell was tried when, and what it held."""
    rows = np.arange(len(mover))
    tried, stones = (np.asarray(x)[rows, mover] for x in (state.tried, state.stones))
    digits = np.where(stones, tried, np.where(tried > 0, tried + 9, 0)).astype(np.int64)
    return digits @ 19 ** np.arange(9) * 2 + mover


@pytest.fixture(scope="module")
def table():
    return InformationTable()


@pytest.mark.slow
def test_every_information_state_of_the_game_is_listed_once(table):
    assert table.num_info_states == 5_990_669
    codes = codes_of(table.states(), table.mover.astype(np.int64))
    assert len(np.unique(codes)) == len(codes)
    uniform = table.uniform_policy()
    # Whoever tries cells at random places a stone at random: as in tic-tac-toe, whose games of
    # random players are won by x with 737/1260 and by o with 363/1260.
    assert table.expected_value(uniform, uniform) == pytest.approx(374 / 1260, abs=1e-12)


@pytest.mark.slow
def test_best_responses_win_in_the_environment_what_they_are_said_to(table, step):
    """Played, a game at a time, against a random policy; every state met is in the table."""
    weights = np.random.default_rng(0).exponential(size=table.action_mask.shape) ** 2
    weights = np.where(table.action_mask, weights, 0)
    policy = weights / weights.sum(1, keepdims=True)
    codes = codes_of(table.states(), table.mover.astype(np.int64))
    order, num, rng = codes.argsort(), 20_000, np.random.default_rng(1)
    for slot, seat in enumerate(("x", "o")):
        value, response = (
            table.best_response_value(policy, seat),
            table.best_response(policy, seat),
        )
        (obs, state), won = begin(num), np.zeros(num)
        for _ in range(PhantomTicTacToe().horizon(None)):
            going, turn = ~np.asarray(state.over), np.asarray(state.turn)
            code = codes_of(state, turn)
            row = order[np.searchsorted(codes, code, sorter=order).clip(max=len(codes) - 1)]
            assert (codes[row] == code)[going].all()
            mask = np.asarray(obs.action_mask)[np.arange(num), turn]
            np.testing.assert_array_equal(table.action_mask[row][going], mask[going])
            probabilities = np.where(turn[:, None] == slot, response[row], policy[row])
            drawn = (probabilities.cumsum(1) > rng.random((num, 1))).argmax(1)
            obs, state, reward, *_ = step(state, np.stack([drawn, drawn], 1))
            won += np.asarray(reward)[:, slot]
        assert np.asarray(state.over).all()
        assert abs(won.mean() - value) < 4 * won.std() / np.sqrt(num)
