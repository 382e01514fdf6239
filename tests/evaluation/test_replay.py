"""Replays: the very episodes that are played elsewhere, with pictures and what networks answer."""

import dataclasses
from xml.etree import ElementTree

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
from jaxmarl_ppo.evaluation.opponents import seat_against
from jaxmarl_ppo.evaluation.recording import record_episodes
from jaxmarl_ppo.evaluation.replay import _choose, replay_episodes
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP

EPISODES = 6
KEY = jax.random.key(3)


def make(env, network=None, mapping="per_agent", policies=None, **kwargs):
    env, params = jaxmarl_envs.make(env, **kwargs)
    network = MLP(hidden_sizes=(4,)) if network is None else network
    config = TrainConfig(
        num_envs=4,
        num_steps=8,
        mapping=mapping,
        policies=policies or {},
        default_policy=PolicySpec(network=network),
    )
    learner = make_learner(env, params, config)
    return learner, jax.jit(learner.init_population)(jax.random.key(1))


@pytest.fixture(scope="module")
def board():
    return make("tic_tac_toe")


@pytest.fixture(scope="module")
def replays(board):
    return replay_episodes(*board, EPISODES, KEY)


def titles(replay):
    find = "{http://www.w3.org/2000/svg}title"
    return [ElementTree.fromstring(drawing).find(find).text for drawing in replay.drawings]


def test_a_replay_is_the_episode_that_is_recorded(board, replays):
    _, recorded = record_episodes(*board, EPISODES, KEY)
    assert [replay.num_steps for replay in replays] == recorded.length.tolist()
    for e, replay in enumerate(replays):
        of = slice(0, replay.num_steps)
        acts = recorded.agent_mask[e, of]
        for name, other in (
            ("players", "player"),
            ("alive", "alive"),
            ("acts", "agent_mask"),
            ("is_first", "is_first"),
            ("action_mask", "action_mask"),
            ("reward", "reward"),
            ("terminated", "terminated"),
            ("truncated", "truncated"),
        ):
            np.testing.assert_array_equal(
                getattr(replay, name), getattr(recorded, other)[e, of], err_msg=name
            )
        np.testing.assert_array_equal(replay.action[acts], recorded.action[e, of][acts])
        for name in ("value", "log_prob"):
            np.testing.assert_allclose(
                getattr(replay, name), getattr(recorded, name)[e, of], rtol=1e-5, atol=1e-6
            )


def test_probabilities_are_of_legal_actions(replays):
    for replay in replays:
        own = replay.probs[replay.acts]
        np.testing.assert_allclose(own.sum(-1), 1.0, rtol=1e-5)
        assert (own[~replay.action_mask[replay.acts]] == 0).all()
        assert np.isnan(replay.probs[~replay.acts]).all()
        entropy = -np.sum(own * np.log(np.where(own > 0, own, 1.0)), axis=-1)
        np.testing.assert_allclose(replay.entropy[replay.acts], entropy, rtol=1e-4)


def test_pictures_go_from_the_first_state_to_the_last(replays):
    for replay in replays:
        told = titles(replay)
        assert len(told) == replay.num_steps + 1
        for t, words in enumerate(told):
            assert words.startswith(f"Board after {t} moves")
        # Not of the next game, which began at the same step.
        assert "has won" in told[-1] or "a draw" in told[-1]
        assert not any("has won" in words for words in told[:-1])


def test_mistakes_are_seen(replays):
    """A solver allows every first move; and who plays badly makes a mistake sooner or later."""
    mistakes = 0
    for replay in replays:
        assert replay.best[0, 0].all()
        slots = np.argmax(replay.acts, axis=1)
        steps = np.arange(replay.num_steps)
        mistakes += (~replay.best[steps, slots, replay.action[steps, slots]]).sum()

    assert mistakes > 0
    assert replays[0].suggested.keys() == {"minimax", "win_block"}


def test_the_interesting_ones_are_chosen(board):
    totals = play_episodes(*board, 20, KEY)
    lengths = record_episodes(*board, 20, KEY)[1].length
    chosen = replay_episodes(*board, 4, KEY, num_candidates=20)
    found = {name: replay for replay in chosen for name in replay.interest}
    returns = totals.returns[:, 0]
    assert found["best for x"].reward[:, 0].sum() == returns.max()
    assert found["worst for x"].reward[:, 0].sum() == returns.min()
    assert found["longest"].num_steps == lengths.max()
    surprise = [-np.nanmean(replay.log_prob) for replay in chosen]
    assert -np.nanmean(found["most surprising"].log_prob) == max(surprise)
    assert len(chosen) == 4


@pytest.mark.rare
def test_the_interesting_ones_are_those_of_the_seat_that_is_watched():
    """Where a policy plays now one side and now the other, its own results count."""
    learner, population = make("tic_tac_toe", mapping="shared")
    learner = with_baselines(learner)
    players, subjects = seat_against(learner, population, "random", 32)
    assert subjects.tolist() == [0, 1] * 16
    totals = play_episodes(learner, population, 32, KEY, players=players)
    own = totals.returns[np.arange(32), subjects]
    assert own.min() < own.max()
    chosen = replay_episodes(
        learner, population, 4, KEY, players=players, subjects=subjects, num_candidates=32
    )
    found = {name: replay for replay in chosen for name in replay.interest}
    for name, wanted in (("best for shared", own.max()), ("worst for shared", own.min())):
        replay = found[name]
        (seat,) = np.nonzero(replay.players[0] == replay.names.index("shared"))[0]
        assert replay.reward[:, seat].sum() == wanted


def test_what_is_so_of_all_is_no_reason_to_choose():
    """A team earns together, and every shift is as long."""
    played = make("shuttle_grid", None, "shared", max_steps=6)
    for replay in replay_episodes(*played, 2, KEY, num_candidates=4):
        assert not set(replay.interest) - {"best", "worst", "most surprising"}
    alike = {"best": np.zeros(3), "longest": np.array([4, 4, 4]), "most surprising": np.arange(3)}
    assert _choose(alike, 3, 2) == {2: ("most surprising",), 0: ()}


def test_greedy_players_take_the_most_likely_action(board):
    for replay in replay_episodes(*board, 2, KEY, greedy=True):
        best = np.argmax(replay.probs, axis=-1)
        np.testing.assert_array_equal(replay.action[replay.acts], best[replay.acts])


def test_scripts_and_snapshots_are_named(board):
    learner = with_baselines(board[0])
    random = learner.players.names.index("random")
    replay = replay_episodes(learner, board[1], 1, KEY, players=np.array([0, random]))[0]
    assert [replay.names[q] for q in replay.players[0]] == ["x", "random"]
    by_script = replay.acts & (replay.players == random)
    assert np.isnan(replay.value[by_script]).all()
    assert np.isnan(replay.probs[by_script]).all()
    assert np.isfinite(replay.value[replay.acts & ~by_script]).all()
    pool = {"past": Snapshots("main", size=4, add_every=8, on_device=2)}
    played = make("tic_tac_toe", mapping={"x": "main", "o": "past"}, policies=pool)
    replay = replay_episodes(*played, 1, KEY)[0]
    assert replay.names[replay.players[0, 1]] == "past@it0"


def test_memory_and_waiting_agents():
    """Only idle shuttles act, and a network with memory answers as it did in play."""
    played = make("shuttle_grid", LSTM(hidden_sizes=(4,), lstm_size=4), "shared", max_steps=20)
    replay = replay_episodes(*played, 1, KEY)[0]
    recorded = record_episodes(*played, 1, KEY)[1]
    assert 0 < replay.acts.mean() < 1
    np.testing.assert_allclose(replay.value, recorded.value[0], rtol=1e-4, atol=1e-5)
    assert titles(replay)[-1].startswith("step 20, ")
    assert replay.best is None
    assert len(replay.suggested) >= 2
    assert replay.reference in replay.suggested
    assert replay.remembers == (True,)


def test_continuous_actions_have_no_table_of_probabilities():
    played = make("crypto", mapping="per_agent", continuous_actions=True)
    replay = replay_episodes(*played, 1, KEY)[0]
    assert replay.probs is None
    assert replay.action.shape[1:] == (3, 4)
    assert np.isfinite(replay.entropy).all()


@pytest.fixture(scope="module")
def hybrid():
    learner = tiny_learner(Hybrid(), None)
    return learner, jax.jit(learner.init_population)(jax.random.key(1))


def test_a_replay_of_factored_actions_is_the_episode_that_is_recorded(hybrid):
    replays = replay_episodes(*hybrid, 3, KEY)
    _, recorded = record_episodes(*hybrid, 3, KEY)
    for e, replay in enumerate(replays):
        np.testing.assert_array_equal(replay.action.choices, recorded.choices[e])
        np.testing.assert_allclose(replay.action.numbers, recorded.numbers[e], rtol=1e-5)
        own = np.isfinite(replay.log_prob)
        np.testing.assert_array_equal(own, np.tile([True, False, True, True], (5, 1)))
        # Of an agent without numbers it is that of the whole action.
        np.testing.assert_allclose(
            replay.log_prob[:, [0, 3]], recorded.log_prob[e][:, [0, 3]], rtol=1e-5
        )
        assert titles(replay)[1] == f"time 1 {recorded.choices[e, 0].tolist()}"
        assert set(replay.suggested) == {"low"}
        assert replay.suggested["low"].numbers.shape == (5, 4, 2)


def test_options_of_every_choice_have_probabilities(hybrid):
    (replay,) = replay_episodes(*hybrid, 1, KEY)
    first, second = replay.probs[..., :4], replay.probs[..., 4:]
    for probs, mask in (
        (first, replay.action_mask[..., :4]),
        (second, replay.action_mask[..., 4:7]),
    ):
        np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
        assert (probs[~mask] == 0).all()
    assert (first[:, 1] == [1, 0, 0, 0]).all()  # a choice that it does not have
    pair = -np.sum(replay.probs[:, 3] * np.log(np.maximum(replay.probs[:, 3], 1e-9)), axis=-1)
    np.testing.assert_allclose(replay.entropy[:, 3], pair, rtol=1e-4)


def test_the_least_likely_choices_are_the_most_surprising(hybrid):
    chosen = replay_episodes(*hybrid, 4, KEY, num_candidates=12)
    surprise = [-np.nanmean(replay.log_prob) for replay in chosen]
    (most,) = (i for i, replay in enumerate(chosen) if "most surprising" in replay.interest)
    assert most == np.argmax(surprise)


def test_environments_that_do_not_draw_themselves():
    played = make("flex_agents")
    replay = replay_episodes(*played, 1, KEY, max_steps=12)[0]
    assert titles(replay)[0].startswith("step 0; ")
    assert titles(replay)[-1].startswith(f"step {replay.num_steps}; ")
    assert dataclasses.replace(replay, interest=("best",)).num_steps == replay.num_steps
