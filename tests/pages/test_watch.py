"""Which episodes of a run are watched, and what is said of them."""

import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig, Trainer, watch_run


def train(folder, env, mapping="shared", **kwargs):
    env, params = jaxmarl_envs.make(env, **kwargs)
    config = TrainConfig(
        total_env_steps=128,
        num_envs=4,
        num_steps=16,
        mapping=mapping,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_minibatches=1),
    )
    return Trainer(env, params, config, folder, progress=False).train().run_dir


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "board", "tic_tac_toe")


def test_half_of_a_game_that_a_policy_plays_with_itself_is_against_random_play(board):
    watched = watch_run(board, episodes=4)
    against = [replay.interest[:1] == ("against random",) for replay in watched.replays]
    assert against == [True, True, False, False]
    for replay, is_against in zip(watched.replays, against, strict=True):
        held = {replay.names[player] for player in np.unique(replay.players)}
        assert held == ({"shared", "random"} if is_against else {"shared"})
    assert ("actions", "sampled") in watched.facts
    assert "policy" not in dict(watched.facts)


def test_an_opponent_that_is_named_plays_in_all(board):
    watched = watch_run(board, episodes=2, opponent="minimax")
    assert all(replay.interest[0] == "against minimax" for replay in watched.replays)
    assert dict(watched.facts)["opponent"] == "minimax"


def test_who_does_not_play_for_and_against_is_watched_as_it_was_trained(tmp_path):
    """A team has no opponent, nor have two of whom one sets the other a task."""
    for name, kwargs in (("shuttle_grid", {"max_steps": 6}), ("asymmetric_play", {})):
        watched = watch_run(train(tmp_path / name, name, **kwargs), episodes=2)
        assert not any("against" in words for r in watched.replays for words in r.interest)
        assert dict(watched.facts)["policy"] == "shared"
