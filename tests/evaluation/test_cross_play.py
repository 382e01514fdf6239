"""The matrix of everybody against everybody, against exact results."""

import jax
import numpy as np
import pytest
from probe_envs import quick_jit, tiny_learner

import jaxmarl_envs
from jaxmarl_envs.tic_tac_toe import GameTable
from jaxmarl_ppo.config.mapping import Matchups
from jaxmarl_ppo.config.policies import Snapshots
from jaxmarl_ppo.evaluation.cross_play import cross_play
from jaxmarl_ppo.evaluation.scenarios.tic_tac_toe import move_probabilities
from jaxmarl_ppo.evaluation.tables import format_cross_play, plot_cross_play

EPISODES = 300


@pytest.fixture(scope="module")
def board():
    """A policy for x, one for o, and a pool with one of its three entries in use."""
    env, params = jaxmarl_envs.make("tic_tac_toe")
    learner = tiny_learner(
        env,
        params,
        mapping=Matchups(({"x": "p", "o": "q"}, {"x": "p", "o": "old"})),
        config={"policies": {"old": Snapshots("q", size=3, add_every=1)}},
    )
    population = quick_jit(learner.init_population)(jax.random.key(0))
    return learner, population, cross_play(learner, population, EPISODES, seed=1)


def test_every_pairing_has_its_exact_result(board):
    learner, population, report = board
    rows, columns = report["rows"]["players"], report["columns"]["players"]
    assert rows == ["p", "random", "minimax", "win_block"]
    assert columns == ["q", "old@it0", "random", "minimax", "win_block"]
    table = GameTable(learner.env.board)
    policies = {
        name: move_probabilities(learner, learner.env_params, population, table, player)
        for player, name in enumerate(learner.players.names_now(population.league))
    }
    policies |= {
        "random": table.uniform_policy(),
        "minimax": table.minimax_policy(),
        "win_block": table.win_block_policy(),
    }
    mean, ci = (np.array(report["returns"]["x"][key]) for key in ("mean", "ci95"))
    rate = np.array(report["win_rate"]["mean"])
    np.testing.assert_allclose(report["returns"]["o"]["mean"], -mean)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            win, draw, loss = table.expected_outcome(policies[row], policies[column])
            error = max(np.sqrt((win + loss - (win - loss) ** 2) / EPISODES), 1e-9)
            assert abs(mean[i, j] - (win - loss)) < 4.5 * error
            assert ci[i, j] == pytest.approx(1.96 * error, rel=0.35, abs=1e-6)
            assert abs(rate[i, j] - (win + 0.5 * draw)) < 4.5 * error
    assert mean[rows.index("minimax"), columns.index("minimax")] == 0.0


def test_greedy_networks_and_the_same_seed(board):
    learner, population, report = board
    assert cross_play(learner, population, EPISODES, seed=1) == report
    greedy = cross_play(learner, population, 8, greedy=True, baselines=False)
    assert greedy["rows"]["players"] == ["p"]
    # Two greedy policies play one game only.
    assert np.allclose(greedy["returns"]["x"]["ci95"], 0.0)


def test_a_side_of_several_agents_plays_as_a_team():
    env, params = jaxmarl_envs.make("crypto")
    learner = tiny_learner(env, params, mapping="ensemble:2")
    population = quick_jit(learner.init_population)(jax.random.key(0))
    report = cross_play(learner, population, 4, row_agents=("bob_0", "alice_0"))
    assert report["rows"] == {
        "agents": ["bob_0", "alice_0"],
        "players": ["bob_0_0 + alice_0_0", "bob_0_1 + alice_0_1", "random"],
    }
    assert report["columns"]["players"] == ["eve_0_0", "eve_0_1", "random"]
    np.testing.assert_array_equal(
        report["returns"]["bob_0"]["mean"], report["returns"]["alice_0"]["mean"]
    )


def test_table_and_picture(board, tmp_path):
    report = board[2]
    lines = format_cross_play(report).splitlines()
    assert lines[0].startswith("return of x (mean ± 95 % interval over 300 episodes)")
    assert lines[1].split() == report["columns"]["players"]
    assert [line.split()[0] for line in lines[2:]] == report["rows"]["players"]
    path = tmp_path / "matrix.png"
    plot_cross_play(report, "all of them", path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"episodes": 0}, ["episodes", "0"]),
        ({"row_agents": ("z",)}, ["'z'", "x, o"]),
        ({"row_agents": ("x", "o")}, ["both sides", "x, o"]),
        ({"row_agents": ()}, ["both sides", "none"]),
    ],
)
def test_what_is_wrong_is_said(board, options, words):
    learner, population, _ = board
    with pytest.raises(ValueError) as error:
        cross_play(learner, population, **options)
    for word in words:
        assert word in str(error.value)
