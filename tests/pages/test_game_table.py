"""Games between people and policies: whose turn it is, what may be done, and going back."""

import jax
import numpy as np
import pytest
from hybrid_env_deploy import Hybrid
from probe_envs import tiny_learner

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.evaluation.opponents import seat_opponent
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP
from jaxmarl_ppo.pages.game_table import Table

X, O = 0, 1  # noqa: E741


def make(env, network=None, mapping="shared", policies=None, **kwargs):
    env, params = jaxmarl_envs.make(env, **kwargs)
    config = TrainConfig(
        num_envs=4,
        num_steps=8,
        mapping=mapping,
        policies=policies or {},
        default_policy=PolicySpec(network=network or MLP(hidden_sizes=(4,))),
    )
    learner = with_baselines(make_learner(env, params, config))
    return learner, jax.jit(learner.init_population)(jax.random.key(1))


def against(made, opponent, **kwargs):
    learner, population = made
    return Table(learner, population, seat_opponent(learner, population, opponent), **kwargs)


@pytest.fixture(scope="module")
def board():
    return make("tic_tac_toe")


def play_out(table, slot, choose):
    while not table.is_over:
        table.act(slot, choose(table))
    return table.view()["agents"][slot]["return"]


def best(table):
    (slot,) = table.waits_for
    return table.hints(slot)["best"][0]


def worst(table):
    (slot,) = table.waits_for
    good = table.hints(slot)["best"]
    return next((a for a in table.legal(slot) if a not in good), good[0])


def test_good_play_draws_with_a_perfect_opponent_and_bad_play_loses(board):
    table = against(board, "minimax")
    for slot in (X, O):
        table.begin([slot])
        assert play_out(table, slot, best) == 0.0
        table.begin([slot])
        assert play_out(table, slot, worst) == -1.0
        assert table.view()["turn"] == []


def test_random_play_is_beaten(board):
    table = against(board, "random")
    returns = []
    for _ in range(10):
        table.begin([X])
        returns.append(play_out(table, X, best))
    assert min(returns) >= 0.0
    assert np.mean(returns) > 0.5


def test_the_opponent_begins_where_the_person_is_second(board):
    table = against(board, "minimax")
    table.begin([O])
    assert table.waits_for == [O]
    assert len(table.legal(O)) == 8


def test_two_people_play_each_other(board):
    table = Table(*board)
    table.begin([X, O])
    for slot, action in ((X, 0), (O, 3), (X, 1), (O, 4), (X, 2)):
        assert table.waits_for == [slot]
        table.act(slot, action)
    assert table.is_over
    assert [agent["return"] for agent in table.view()["agents"]] == [1.0, -1.0]
    with pytest.raises(ValueError, match="over"):
        table.act(O, 5)


def test_what_is_not_allowed_is_refused_and_changes_nothing(board):
    table = Table(*board)
    table.begin([X, O])
    table.act(X, 4)
    before = table.view()
    with pytest.raises(ValueError, match=r"^b2 is not legal; valid: a1, b1, c1, a2, c2"):
        table.act(O, 4)
    with pytest.raises(ValueError, match="legal"):
        table.act(O, 9)
    with pytest.raises(ValueError, match="legal"):
        table.act(O, -1)
    with pytest.raises(ValueError, match="turn of o"):
        table.act(X, 0)
    assert table.view() == before


def test_undo_goes_back_to_ones_own_last_decision(board):
    table = against(board, "minimax")
    table.begin([X])
    with pytest.raises(ValueError, match="nothing to undo"):
        table.undo(X)
    start = table.view()
    table.act(X, 0)
    one = table.view()
    table.act(X, table.legal(X)[0])
    table.undo(X)
    assert table.view() == one
    table.undo(X)
    assert table.view() == start
    # The other one answers as before, since randomness belongs to the step.
    table.act(X, 0)
    assert table.view() == one


def test_a_game_that_is_over_can_be_taken_back(board):
    table = against(board, "minimax")
    table.begin([X])
    play_out(table, X, worst)
    table.undo(X)
    assert not table.is_over
    assert table.waits_for == [X]


def test_policies_play_as_in_evaluation():
    """Who does what the policy would have done changes nothing, its memory neither."""
    learner, population = make("tic_tac_toe", LSTM(hidden_sizes=(4,), lstm_size=4))
    table = Table(learner, population, greedy=True)
    alone = play_episodes(learner, population, 1, jax.random.key(0), greedy=True)
    length = int(alone.lengths[0].max())
    for persons, num_moves in (((X,), (length + 1) // 2), ((O,), length // 2), ((X, O), length)):
        table.begin(persons)
        for _ in range(num_moves):
            (slot,) = table.waits_for
            probs = table.hints(slot)["probs"]
            table.act(slot, int(max(probs, key=probs.get)))
        assert table.is_over
        assert [a["return"] for a in table.view()["agents"]] == alone.returns[0].tolist()


def test_who_acts_at_once_chooses_in_any_order():
    table = Table(*make("shuttle_grid", max_steps=6))
    table.begin([0, 1])
    assert table.waits_for == [0, 1]
    table.act(1, table.legal(1)[0])
    assert table.waits_for == [0]
    time = table.view()["picture"]
    with pytest.raises(ValueError, match="turn of shuttle_0"):
        table.act(1, 0)
    table.act(0, table.legal(0)[0])
    assert table.view()["picture"] != time


def test_environments_without_a_picture_or_with_continuous_actions_are_refused():
    with pytest.raises(ValueError, match="no picture"):
        Table(*make("flex_agents"))
    with pytest.raises(ValueError, match="continuous"):
        Table(*make("crypto", continuous=True))


PICKER, MOVER, BOTH, PAIR = range(4)


@pytest.fixture(scope="module")
def hybrid():
    learner = tiny_learner(Hybrid(), None, memory=True, spec={"prev_action": True})
    return learner, jax.jit(learner.init_population)(jax.random.key(1))


def test_a_person_chooses_an_option_of_every_choice(hybrid):
    table = Table(*hybrid)
    table.begin([PAIR, PICKER])
    assert table.view()["legal"] == {str(PICKER): [[1, 2, 3]], str(PAIR): [[0, 1], [1, 2]]}
    table.act(PICKER, 3)
    before = table.view()
    for action, message in (
        ([1, 0], r"^option 0 is not legal in choice 2; valid: option 1, option 2$"),
        ([2, 1], r"^option 2 is not legal in choice 1; valid: option 0, option 1$"),
        ([1], r"^choose an option of each of 2 choices, got \[1\]$"),
        (1, r"^choose an option of each of 2 choices, got \[1\]$"),
    ):
        with pytest.raises(ValueError, match=message):
            table.act(PAIR, action)
    assert table.view() == before
    table.act(PAIR, [1, 2])
    taken = table._last_action
    assert taken.choices[PICKER].tolist() == [3, 0]
    assert taken.choices[PAIR].tolist() == [1, 2]
    assert taken.numbers[BOTH].any()  # the policy's own
    earned = [agent["return"] for agent in table.view()["agents"]]
    assert (earned[PICKER], earned[PAIR]) == (3.0, 21.0)


def test_the_policy_plays_on_as_in_evaluation_where_it_is_followed(hybrid):
    alone = play_episodes(*hybrid, 1, jax.random.key(0), greedy=True)
    table = Table(*hybrid, greedy=True)
    table.begin([PAIR])
    while not table.is_over:
        probs = table.hints(PAIR)["probs"]
        assert [list(map(int, own)) for own in probs] == table.legal(PAIR)
        np.testing.assert_allclose([sum(own.values()) for own in probs], 1.0, rtol=1e-5)
        table.act(PAIR, [int(max(own, key=own.get)) for own in probs])
    found = [agent["return"] for agent in table.view()["agents"]]
    np.testing.assert_allclose(found, alone.returns[0], rtol=1e-5)


def test_nobody_can_play_an_agent_with_numbers(hybrid):
    table = Table(*hybrid)
    for slot, name in ((MOVER, "mover"), (BOTH, "both")):
        with pytest.raises(ValueError, match=f"actions of '{name}' have .*play picker, pair$"):
            table.begin([slot, PAIR])


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [("tic_tac_toe", {"size": 5, "k": 4}), ("pgx", {"env_id": "connect_four"})],
)
def test_other_boards(env, kwargs):
    table = against(make(env, **kwargs), "random")
    table.begin([0])
    while not table.is_over:
        table.act(0, table.legal(0)[0])
    assert sum(agent["return"] for agent in table.view()["agents"]) == 0.0


def test_who_plays_is_said_in_words(board):
    each = Table(*make("tic_tac_toe", mapping="per_agent"))
    assert [agent["player"] for agent in each.view()["agents"]] == ["policy x", "policy o"]
    assert Table(*board).view()["agents"][O]["player"] == "trained policy"
    assert against(board, "random").view()["agents"][O]["player"] == "random play"
    assert against(board, "minimax").view()["agents"][O]["player"] == "script minimax"
    pool = {"past": Snapshots("main", size=2, add_every=8)}
    table = Table(*make("tic_tac_toe", mapping={"x": "main", "o": "past"}, policies=pool))
    players = [agent["player"] for agent in table.view()["agents"]]
    assert players == ["trained policy", "snapshot past@it0"]


def test_an_opponent_that_is_not_there_is_named(board):
    with pytest.raises(ValueError, match=r"unknown opponent 'deep blue'; valid: .*minimax"):
        against(board, "deep blue")
