"""Tic-tac-toe against the exact table of its positions, and the table against known figures."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_envs.tic_tac_toe import Board, GameTable, Outcome, State, TicTacToe, winning_lines

BOARDS = {"3x3": (3, 3), "5x5": (5, 4), "4x9": ((4, 9), 4), "7x7": (7, 5)}  # the last two: 2 words


def vmap_step(env):
    """Compiled `step_env` over keys, states and actions; `params` fixed."""
    step = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))
    return jax.jit(lambda keys, state, action: step(keys, state, action, env.default_params))


@pytest.fixture(scope="module")
def lose():
    env = TicTacToe()
    return SimpleNamespace(env=env, step=vmap_step(env), observe=jax.jit(jax.vmap(env.observe)))


@pytest.fixture(scope="module")
def random():
    env = TicTacToe(illegal="random")
    return SimpleNamespace(env=env, step=vmap_step(env))


@pytest.fixture(scope="module")
def table(lose):
    return GameTable(lose.env.board)


@pytest.fixture(scope="module")
def states(table):
    return table.states()


def pick(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def broadcast(tree, num):
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *x.shape)), tree)


def both(mover, cell, other):
    """Actions `[B, A]`: the mover's `cell [B]`, and `other` from whoever waits."""
    return np.where(np.arange(2) == np.asarray(mover)[:, None], np.asarray(cell)[:, None], other)


def assert_trees_equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


def naive_winner(board, k):
    """1 or 2 where that player has `k` in a row on the nested list `board`, else 0."""
    rows, cols = len(board), len(board[0])
    for r in range(rows):
        for c in range(cols):
            for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
                length, y, x = 0, r, c
                while 0 <= y < rows and 0 <= x < cols and board[y][x] == board[r][c] != 0:
                    length, y, x = length + 1, y + dr, x + dc
                if length >= k:
                    return board[r][c]
    return 0


# The table


def test_known_counts(table):
    assert (table.num_positions, table.num_decisions) == (5478, 4520)
    ends = table.result[table.terminal]
    assert [(ends == 1).sum(), (ends == -1).sum(), (ends == 0).sum()] == [626, 316, 16]
    assert not table.result[~table.terminal].any()
    assert table.num_games() == (131_184, 46_080, 77_904)


def test_table_results_against_naive_winner(table, states, lose):
    boards = np.asarray(jax.vmap(lose.env.board.cells)(states))
    sign = {0: 0, 1: 1, 2: -1}
    assert [sign[naive_winner(board.tolist(), 3)] for board in boards] == table.result.tolist()
    assert len(np.unique(boards.reshape(-1, 9), axis=0)) == table.num_positions
    np.testing.assert_array_equal((boards != 0).sum((1, 2)), table.ply)


def test_uniform_play_is_exact(table):
    uniform = table.uniform_policy()
    exact = Outcome(win=737 / 1260, draw=160 / 1260, loss=363 / 1260)
    np.testing.assert_allclose(table.expected_outcome(uniform, uniform), exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "value"), [("uniform", 0.959830), ("win_block", 0.663542), ("minimax", 0.0)]
)
def test_known_exploitabilities(table, name, value):
    policy = getattr(table, f"{name}_policy")()
    assert table.exploitability(policy) == pytest.approx(value, abs=5e-7)


def test_minimax_keeps_the_draw_and_never_loses(table):
    minimax, uniform = table.minimax_policy(), table.uniform_policy()
    assert table.values()[0] == 0
    assert table.expected_outcome(minimax, minimax) == pytest.approx((0, 1, 0), abs=1e-12)
    assert table.expected_outcome(minimax, uniform).loss == 0
    assert table.expected_outcome(uniform, minimax).win == 0
    assert np.count_nonzero(minimax[0]) == 9  # every first move holds the draw


def test_three_cells_by_hand():
    """1 x 3 with k = 2: x wins by the middle, or by the far end where o did not take the middle."""
    table = GameTable(Board(1, 3, k=2))
    uniform, minimax = table.uniform_policy(), table.minimax_policy()
    assert table.num_games() == (4, 2, 0)
    assert table.expected_outcome(uniform, uniform) == pytest.approx((2 / 3, 1 / 3, 0), abs=1e-12)
    assert table.best_response_value(uniform, "x") == pytest.approx(1)
    assert table.best_response_value(uniform, "o") == pytest.approx(-1 / 3)
    assert table.exploitability(uniform) == pytest.approx(1 / 3)
    assert table.values()[0] == 1
    np.testing.assert_array_equal(minimax[0], [0, 1, 0])
    assert table.exploitability(minimax) == 0


def test_best_response_bounds_every_opponent(table):
    rng = np.random.default_rng(0)
    weights = table.action_mask * rng.exponential(size=table.action_mask.shape)
    policy = weights / weights.sum(1, keepdims=True)
    for other in (table.uniform_policy(), table.win_block_policy(), table.minimax_policy()):
        as_x, as_o = table.expected_outcome(other, policy), table.expected_outcome(policy, other)
        assert as_x.win - as_x.loss <= table.best_response_value(policy, "x")
        assert as_o.loss - as_o.win <= table.best_response_value(policy, "o")
        assert sum(as_x) == pytest.approx(1, abs=1e-12)
    assert table.best_response_value(policy, "x") > table.best_response_value(policy, "o") > 0


def test_win_block_by_hand(table, states, lose):
    policy = table.win_block_policy()
    boards = np.asarray(jax.vmap(lose.env.board.cells)(states))[table.decisions].reshape(-1, 9)

    def row(*cells):
        return policy[(boards == np.array(cells)).all(1).argmax()]

    np.testing.assert_array_equal(row(1, 1, 0, 2, 2, 0, 0, 0, 0), np.eye(9)[2])  # win, not block
    np.testing.assert_array_equal(row(1, 1, 0, 2, 0, 0, 0, 0, 0), np.eye(9)[2])  # o blocks
    fork = row(1, 0, 1, 0, 2, 0, 1, 0, 2)  # x threatens cells 1 and 3
    np.testing.assert_array_equal(fork, np.eye(9)[[1, 3]].sum(0) / 2)
    np.testing.assert_allclose(row(1, 0, 0, 0, 0, 0, 0, 0, 0)[1:], 1 / 8)


def test_greedy(table):
    greedy = table.greedy(table.uniform_policy())
    np.testing.assert_array_equal(greedy.argmax(1), table.action_mask.argmax(1))
    assert table.exploitability(table.greedy(table.minimax_policy())) == 0
    assert table.exploitability(greedy) == 1


def test_observations_are_the_movers_own(table, states, lose):
    features, action_mask = map(np.asarray, table.observations())
    np.testing.assert_array_equal(action_mask, table.action_mask)
    boards = np.asarray(jax.vmap(lose.env.board.cells)(states))[table.decisions].reshape(-1, 9)
    planes = features.reshape(-1, 9, 3)
    stone = 1 + table.mover[:, None]
    np.testing.assert_array_equal(planes[..., 0], boards == stone)
    np.testing.assert_array_equal(planes[..., 1], boards == 3 - stone)
    np.testing.assert_array_equal(planes[..., 2], 1)
    assert features.shape == (4520, *lose.env.observation_space("x", lose.env.default_params).shape)


def test_float32_softmax_is_a_policy(table):
    logits = np.random.default_rng(1).normal(size=table.action_mask.shape).astype(np.float32)
    policy = jax.nn.softmax(jnp.where(table.action_mask, logits, jnp.finfo(jnp.float32).min))
    assert sum(table.expected_outcome(policy, policy)) == pytest.approx(1, abs=1e-12)


def test_table_refuses_bad_input(table):
    with pytest.raises(ValueError, match=r"5 x 5 board .* at most 12 cells"):
        GameTable(Board(5, 5, k=4))
    good = table.uniform_policy()
    with pytest.raises(ValueError, match=r"shape \(9,\): must be \(4520, 9\)"):
        table.exploitability(good[0])
    with pytest.raises(ValueError, match=r"sums to 0\.5 at decision 3"):
        table.exploitability(np.where(np.arange(4520)[:, None] == 3, good / 2, good))
    with pytest.raises(ValueError, match="entry nan"):
        table.greedy(good * np.nan)
    with pytest.raises(ValueError, match="entry -1"):
        table.greedy(-np.ones_like(good))
    with pytest.raises(ValueError, match=r"illegal moves the probability 0\.888889 at"):
        table.expected_outcome(good, np.full_like(good, 1 / 9))
    with pytest.raises(ValueError, match=r"seat='z': valid choices: x, o"):
        table.best_response_value(good, "z")


# The environment against the table


def test_every_legal_move_of_every_position(table, states, lose):
    decision, cell = np.nonzero(table.action_mask)
    assert decision.size == 16_167
    before = pick(states, table.decisions[decision])
    successor = table.successor[decision, cell]
    mover = table.mover[decision]
    other = np.random.default_rng(0).integers(-5, 40, (decision.size, 1))  # must be ignored
    keys = jax.random.split(jax.random.key(0), decision.size)
    obs, after, reward, terminated, truncated, info = lose.step(
        keys, before, both(mover, cell, other)
    )
    assert_trees_equal(after, pick(states, successor))
    assert_trees_equal(obs, lose.observe(pick(states, successor)))
    result, ended = table.result[successor], table.terminal[successor]
    np.testing.assert_array_equal(reward, np.stack([result, -result], 1))
    np.testing.assert_array_equal(terminated, np.stack([ended, ended], 1))
    assert not truncated.any()
    sign = result[:, None] * np.array([1, -1])
    np.testing.assert_array_equal(info["metrics"]["win"], sign == 1)
    np.testing.assert_array_equal(info["metrics"]["loss"], sign == -1)
    drawn = np.broadcast_to((ended & (result == 0))[:, None], (decision.size, 2))
    np.testing.assert_array_equal(info["metrics"]["draw"], drawn)
    assert reward.dtype == jnp.float32
    assert all(metric.dtype == jnp.float32 for metric in info["metrics"].values())


def test_reset_is_the_first_position(states, lose):
    obs, state = lose.env.reset(jax.random.key(3))
    assert_trees_equal(state, pick(states, 0))
    assert_trees_equal(obs, pick(lose.observe(states), 0))


def test_masks_at_every_position(table, states, lose):
    obs = lose.observe(states)
    going = ~table.terminal
    x_moves, o_moves = going & (table.ply % 2 == 0), going & (table.ply % 2 == 1)
    np.testing.assert_array_equal(obs.alive, np.stack([going, going], 1))
    np.testing.assert_array_equal(obs.agent_mask, np.stack([x_moves, o_moves], 1))
    assert np.asarray(obs.agent_mask).sum(1).max() == lose.env.max_actors == 1
    empty = np.asarray(jax.vmap(lose.env.board.cells)(states)).reshape(-1, 1, 9) == 0
    acting = np.asarray(obs.agent_mask)[:, :, None]
    np.testing.assert_array_equal(obs.action_mask, np.where(acting, empty, True))
    assert obs.action_mask.any(-1).all()
    waiting = np.asarray(obs.features).reshape(-1, 2, 9, 3)[~np.asarray(obs.agent_mask)]
    assert not waiting[..., 2].any()


def test_game_that_is_over_stays_as_it_is(table, states, lose, random):
    ended = pick(states, np.flatnonzero(table.terminal))
    num = ended.ply.size
    keys = jax.random.split(jax.random.key(1), num)
    action = np.random.default_rng(2).integers(0, 9, (num, 2))
    for game in (lose, random):
        obs, after, reward, terminated, truncated, info = game.step(keys, ended, action)
        assert_trees_equal(after, ended)
        assert_trees_equal(obs, lose.observe(ended))
        for edge_or_reward in (reward, terminated, truncated):
            assert not edge_or_reward.any()
        assert not any(metric.any() for metric in info["metrics"].values())


# Illegal moves


def test_illegal_move_loses(table, states, lose):
    cells = np.concatenate([np.arange(-3, 70), [2**31 - 1, -(2**31)]])
    legal = np.concatenate([np.zeros((4520, 3), bool), table.action_mask], 1)
    legal = np.pad(legal, ((0, 0), (0, cells.size - legal.shape[1])))
    decision, index = np.nonzero(~legal[::7])  # every seventh position
    decision = decision * 7
    before = pick(states, table.decisions[decision])
    keys = jax.random.split(jax.random.key(0), decision.size)
    mover = table.mover[decision]
    obs, after, reward, terminated, truncated, info = lose.step(
        keys, before, both(mover, cells[index], 4)
    )
    lost = np.arange(2) == mover[:, None]
    np.testing.assert_array_equal(reward, np.where(lost, -1, 1))
    np.testing.assert_array_equal(info["metrics"]["loss"], lost)
    np.testing.assert_array_equal(info["metrics"]["win"], ~lost)
    assert not info["metrics"]["draw"].any()
    assert terminated.all()
    for nobody in (truncated, obs.alive, obs.agent_mask):
        assert not nobody.any()
    assert obs.action_mask.all()
    assert_trees_equal(after, before.replace(over=jnp.ones_like(before.over)))


def test_illegal_move_plays_a_random_legal_one(table, states, random):
    # Every illegal in-range move of every position leads to one of its successors.
    decision, cell = np.nonzero(~table.action_mask)
    before = pick(states, table.decisions[decision])
    keys = jax.random.split(jax.random.key(5), decision.size)
    _, after, reward, terminated, _, _ = random.step(
        keys, before, both(table.mover[decision], cell, 0)
    )
    successors = np.where(table.action_mask, table.successor, 0)[decision]
    found = (np.asarray(states.stones)[successors] == np.asarray(after.stones)[:, None]).all((2, 3))
    np.testing.assert_array_equal(found.sum(1), 1)
    reached = successors[np.arange(decision.size), found.argmax(1)]
    np.testing.assert_array_equal(reward[:, 0], table.result[reached])
    np.testing.assert_array_equal(terminated[:, 0], table.terminal[reached])


def test_random_legal_move_is_uniform(table, states, random):
    decision = int(np.flatnonzero((table.action_mask.sum(1) == 4) & (table.mover == 1))[100])
    num = 16_167  # as many as above: nothing is compiled anew
    cell = np.broadcast_to(np.flatnonzero(~table.action_mask[decision])[0], num)
    before = broadcast(pick(states, table.decisions[decision]), num)
    keys = jax.random.split(jax.random.key(6), num)
    _, after, _, _, _, _ = random.step(keys, before, both(np.ones(num), cell, 0))
    targets = table.successor[decision][table.action_mask[decision]]
    same = np.asarray(after.stones)[:, None] == np.asarray(states.stones)[targets]  # [num, 4, 2, 1]
    counts = same.all((2, 3)).sum(0)
    assert counts.sum() == num
    # Five standard deviations of a binomial count: four cells fail by chance with p < 3e-6.
    assert np.abs(counts - num / 4).max() < 5 * np.sqrt(num * 3 / 16)


def test_legal_moves_are_played_as_they_are_in_random_mode(table, states, random):
    decision, cell = np.nonzero(table.action_mask)
    before = pick(states, table.decisions[decision])
    keys = jax.random.split(jax.random.key(0), decision.size)
    _, after, _, _, _, _ = random.step(keys, before, both(table.mover[decision], cell, 0))
    assert_trees_equal(after, pick(states, table.successor[decision, cell]))


# Whole games


def random_legal_actions(key, action_mask):
    return jax.random.categorical(key, jnp.where(action_mask, 0.0, -jnp.inf), axis=-1)


def test_simulated_uniform_play(lose):
    """Every environment's first game alone counts, so short games are not over-represented."""
    num, env = 20_000, lose.env

    @jax.jit
    def play(key):
        key_reset, key_scan = jax.random.split(key)
        reset = jax.vmap(env.reset, in_axes=(0, None))
        obs, state = reset(jax.random.split(key_reset, num), env.default_params)

        def time_step(carry, key):
            obs, state = carry
            key_action, key_step = jax.random.split(key)
            action = random_legal_actions(key_action, obs.action_mask)
            keys = jax.random.split(key_step, num)
            step = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))
            obs, state, reward, _, _, info = step(keys, state, action, env.default_params)
            return (obs, state), (reward, info["metrics"])

        _, (reward, metrics) = jax.lax.scan(time_step, (obs, state), jax.random.split(key_scan, 9))
        return reward.sum(0), jax.tree.map(lambda x: x.sum(0), metrics)

    reward, metrics = jax.tree.map(np.asarray, play(jax.random.key(0)))
    np.testing.assert_array_equal(sum(metrics.values()), 1)  # one ending for each player and game
    np.testing.assert_array_equal(reward, metrics["win"] - metrics["loss"])
    np.testing.assert_array_equal(metrics["win"], metrics["loss"][:, ::-1])
    counts = [metrics[name][:, 0].sum() for name in ("win", "draw", "loss")]
    p = np.array([737, 160, 363]) / 1260
    # Five standard deviations of a binomial count: three fail by chance with p < 2e-6.
    assert (np.abs(counts - num * p) < 5 * np.sqrt(num * p * (1 - p))).all()


@pytest.mark.parametrize("name", BOARDS)
def test_other_boards_against_naive_winner(name):
    size, k = BOARDS[name]
    env = TicTacToe(size=size, k=k)
    params, cells, num = env.default_params, env.board.num_cells, 40
    rng = np.random.default_rng(0)
    order = np.stack([rng.permutation(cells) for _ in range(num)])  # [num, cells]

    @jax.jit
    def play(order):
        reset = env.reset(jax.random.key(0))

        def time_step(carry, cell):
            action = jnp.stack([cell, cell])
            obs, state, reward, terminated, _, _ = env.step_env(
                jax.random.key(0), carry[1], action, params
            )
            return (obs, state), (obs.alive[0], reward, terminated, env.board.cells(state))

        return jax.lax.scan(time_step, reset, order)[1]

    alive, reward, terminated, boards = map(np.asarray, jax.vmap(play)(order))
    wins = 0
    for game in range(num):
        board = [[0] * env.board.cols for _ in range(env.board.rows)]
        for ply, cell in enumerate(order[game]):
            board[cell // env.board.cols][cell % env.board.cols] = 1 + ply % 2
            winner = naive_winner(board, k)
            ended = winner != 0 or ply + 1 == cells
            np.testing.assert_array_equal(boards[game, ply], board)
            x_reward = (0, 1, -1)[winner]
            np.testing.assert_array_equal(reward[game, ply], [x_reward, -x_reward])
            assert (terminated[game, ply] == ended).all()
            assert alive[game, ply] == (not ended)
            if ended:
                wins += winner != 0
                break
        np.testing.assert_array_equal(boards[game, -1], board)  # frozen from then on
        assert terminated[game].sum() == 2
    assert wins > num / 4  # else the comparison would say little about lines


def test_draw_takes_the_whole_horizon(lose):
    state, rewards = lose.env.reset(jax.random.key(0))[1], []
    step = jax.jit(lose.env.step_env)
    for cell in (0, 1, 2, 4, 3, 5, 7, 6, 8):
        action = jnp.array([cell, cell])
        obs, state, reward, terminated, _, info = step(
            jax.random.key(0), state, action, lose.env.default_params
        )
        rewards.append(reward)
    assert len(rewards) == lose.env.horizon(lose.env.default_params) == 9
    assert not np.any(rewards)
    assert terminated.all()
    assert info["metrics"]["draw"].tolist() == [1, 1]
    assert not obs.alive.any()


@pytest.mark.rare_cases("lose")
@pytest.mark.parametrize("illegal", ["lose", "random"])
def test_step_batch_is_vmapped_step_with_resets(illegal):
    env = TicTacToe(illegal=illegal)
    params, num = env.default_params, 16
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    fresh = reset(jax.random.split(jax.random.key(0), num), params)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    raw = jax.jit(jax.vmap(env.step_env, in_axes=(0, 0, 0, None)))
    step_batch = jax.jit(env.step_batch)
    rng = np.random.default_rng(0)
    (_, state), endings = fresh, []
    for time_step in range(25):
        keys = jax.random.split(jax.random.key(time_step), num)
        action = rng.integers(0, 9, (num, 2))
        result = step_batch(keys, state, action, params)
        assert_trees_equal(result, step(keys, state, action, params))
        over = np.asarray(result[5]["episode_over"])
        endings.append(over.sum())
        np.testing.assert_array_equal(result[3], np.stack([over, over], 1))
        final = result[5]["final_observation"]
        np.testing.assert_array_equal(final.alive[:, 0], ~over)
        assert_trees_equal(pick(result[:2], over), pick(fresh, over))
        if illegal == "lose":  # chance plays no part, so the keys that `step` split do not matter
            assert_trees_equal(final, raw(keys, state, action, params)[0])
        assert_trees_equal(pick(result[0], ~over), pick(final, ~over))
        state = result[1]
    assert 0 < max(endings) < num  # some ended beside others that did not
    assert min(endings) == 0


def test_same_key_same_episode(random):
    state = random.env.reset(jax.random.key(0))[1]
    num = 64
    occupied = state.replace(stones=jnp.array([[1], [2]], jnp.uint32), ply=jnp.int32(2))
    before = broadcast(occupied, num)
    keys = jax.random.split(jax.random.key(7), num)
    action = np.zeros((num, 2), np.int32)
    first = random.step(keys, before, action)
    assert_trees_equal(first, random.step(keys, before, action))
    other = random.step(jax.random.split(jax.random.key(8), num), before, action)
    assert (first[1].stones != other[1].stones).any()


def test_planes_and_flat_features_agree(states, lose):
    env = TicTacToe(planes=True)
    obs = jax.vmap(env.observe)(states)
    assert obs.features.shape == (5478, 2, 3, 3, 3)
    flat = lose.observe(states)
    assert flat.features.shape == (5478, 2, 27)
    assert_trees_equal(replace(obs, features=obs.features.reshape(5478, 2, 27)), flat)
    # x on cell 0, o on cell 5 of an otherwise empty board, x to move
    state = State(jnp.array([[1], [1 << 5]], jnp.uint32), jnp.int32(2), jnp.bool_(False))
    x, o = np.asarray(env.observe(state).features)
    corner, edge = np.eye(9)[[0, 5]].reshape(2, 3, 3)
    np.testing.assert_array_equal(x, np.stack([corner, edge, np.ones((3, 3))], -1))
    np.testing.assert_array_equal(o, np.stack([edge, corner, np.zeros((3, 3))], -1))


# The contract's surface


def test_make_and_spaces():
    env, params = jaxmarl_envs.make("tic_tac_toe", size=5, k=4)
    assert (env.name, env.agents, env.num_agents) == ("tic_tac_toe", ("x", "o"), 2)
    assert env.horizon(params) == env.action_layout(params).width == 25
    assert env.action_layout(params).is_choice
    space = env.observation_space("o", params)
    assert space.shape == (75,)
    obs, _ = env.reset(jax.random.key(0), params)
    assert space.contains(obs.features[1])
    planes, params = jaxmarl_envs.make("tic_tac_toe", size=(2, 4), k=3, planes=True)
    assert planes.observation_space("x", params).shape == (2, 4, 3)
    assert planes.action_space("x", params) == jaxmarl_envs.Discrete(8)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"size": 0}, r"size=0: size must be a positive integer, or \(rows, cols\)"),
        ({"size": 3.0}, "size=3.0"),
        ({"size": True}, "size=True"),
        ({"size": "3"}, "size='3'"),
        ({"size": (3, 3, 3)}, r"size=\(3, 3, 3\)"),
        ({"size": (3, -1)}, r"size=\(3, -1\)"),
        ({"k": 0}, "k=0 on a 3 x 3 board: k must be an integer from 1 to 3"),
        ({"k": 4}, "k=4 .* from 1 to 3"),
        ({"size": (2, 5), "k": 6}, "k=6 on a 2 x 5 board: .* from 1 to 5"),
        ({"k": 2.0}, "k=2.0"),
        ({"planes": 1}, "planes=1: planes must be True or False"),
        ({"illegal": "skip"}, "illegal='skip': valid choices: lose, random"),
        ({"rows": 3}, "no option 'rows'; valid options: size, k, planes, illegal"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        jaxmarl_envs.make("tic_tac_toe", **kwargs)


def test_unknown_agent(lose):
    for space in (lose.env.observation_space, lose.env.action_space):
        with pytest.raises(ValueError, match=r"unknown agent 'z'.*x, o"):
            space("z", lose.env.default_params)


@pytest.mark.parametrize(
    ("rows", "cols", "k", "num"),
    [(3, 3, 3, 8), (5, 5, 4, 28), (15, 15, 5, 572), (2, 5, 4, 4), (2, 3, 1, 6), (1, 1, 1, 1)],
)
def test_number_of_lines(rows, cols, k, num):
    assert winning_lines(rows, cols, k).shape == (num, k)
