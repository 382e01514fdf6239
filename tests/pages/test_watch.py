"""Which episodes of a run are watched, and what is said of them."""

from types import SimpleNamespace

import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_ppo import (
    MLP,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    TrainConfig,
    Trainer,
    watch_run,
)
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.pages.watch import _is_duel


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    env, params = jaxmarl_envs.make("tic_tac_toe")
    config = TrainConfig(
        total_env_steps=128,
        num_envs=4,
        num_steps=16,
        mapping="shared",
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_minibatches=1),
    )
    folder = tmp_path_factory.mktemp("runs") / "board"
    return Trainer(env, params, config, folder, progress=False).train().run_dir


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


def test_only_a_game_that_a_policy_plays_with_itself_is_half_against_random_play():
    """A team has no opponent, nor have two of whom one sets the other a task."""

    def is_duel(name, rewards, **kwargs):
        env, params = jaxmarl_envs.make(name)
        config = TrainConfig(num_envs=4, num_steps=8, **kwargs)
        learner = make_learner(env, params, config)
        return _is_duel(learner, [SimpleNamespace(reward=np.array([reward])) for reward in rewards])

    assert is_duel("tic_tac_toe", [[1, -1], [0, 0]], mapping="shared")
    assert is_duel("tic_tac_toe", [[-1, 1]], mapping="per_agent")
    assert not is_duel("tic_tac_toe", [[1, -1], [1, 0]], mapping="shared")
    assert not is_duel("shuttle_grid", [[0] * 6], mapping="shared")
    scripted = {"other": Scripted("random")}
    against = {"x": "main", "o": "other"}
    assert not is_duel("tic_tac_toe", [[1, -1]], mapping=against, policies=scripted)
    past = {"other": Snapshots("main", size=2, add_every=8)}
    assert not is_duel("tic_tac_toe", [[1, -1]], mapping=against, policies=past)
