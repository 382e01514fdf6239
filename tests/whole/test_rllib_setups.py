"""Set-ups that people bring from RLlib, trained as they stand, and what went wrong there.

Each has its own class and its own configuration, which is translated; none needs Ray.
"""

import random
import warnings

import jax
import numpy as np
import pytest
from probe_envs import quick_jit
from rllib_setups import Board, CartPoles, ShuttleGrid, ThenB

from jaxmarl_envs import make
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_ppo import Trainer
from jaxmarl_ppo.config.rllib.translate import RLlibTranslationWarning, from_rllib_config
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.learner.build import make_learner

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)


def translated(config, **told):
    """What becomes of a configuration; what is told of it is looked at elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RLlibTranslationWarning)
        return from_rllib_config(config, **told)


def test_an_ensemble_holds_for_a_life():
    """There a draw in the middle of an episode ended the run after some thousand steps."""
    pytest.importorskip("mpe2")
    env, params = make("pettingzoo", env_id="mpe2.simple_crypto_v3", num_workers=0)
    policies = {
        f"{agent}_{k}": ("PPOTorchPolicy", {"framework": "torch"})
        for agent in env.agents
        for k in range(3)
    }
    config = {
        "framework": "torch",
        "num_workers": 2,
        "rollout_fragment_length": 40,
        "train_batch_size": 160,
        "sgd_minibatch_size": 40,
        "num_sgd_iter": 1,
        "entropy_coeff": 0.01,
        "lambda": 0.9,
        "vf_clip_param": 50,
        "model": {"fcnet_hiddens": [8]},
        "multiagent": {
            "policies": policies,
            "policy_mapping_fn": lambda agent: f"{agent}_{random.randint(0, 2)}",
            "policies_to_train": list(policies),
        },
    }
    mapping = {agent: [f"{agent}_{k}" for k in range(3)] for agent in env.agents}
    learner = make_learner(env, params, translated(config, mapping=mapping))
    state = quick_jit(learner.init)(jax.random.key(0))
    _, played = quick_jit(learner.play)(state, jax.random.key(1))
    outcomes = jax.device_get(played.outcomes)
    ended = outcomes.terminated | outcomes.truncated
    changes = outcomes.player[1:] != outcomes.player[:-1]
    assert not (changes & ~ended[:-1]).any()
    assert changes.any()
    assert len(np.unique(outcomes.player)) == 9


def test_shuttles_of_which_only_the_idle_are_observed_train_an_lstm(tmp_path):
    """There rollouts stalled, and memory fell out of step with who acted."""
    config = {
        "num_env_runners": 1,
        "num_envs_per_env_runner": 4,
        "rollout_fragment_length": 1,
        "gamma": 0.99,
        "train_batch_size": 256,
        "sgd_minibatch_size": 64,
        "num_sgd_iter": 2,
        "model": {
            "use_lstm": True,
            "lstm_cell_size": 16,
            "fcnet_hiddens": [16],
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
        },
        "policies": {"shared_policy": (None, None, None, {})},
        "policy_mapping_fn": lambda agent_id, *args, **kwargs: "shared_policy",
        "policies_to_train": ["shared_policy"],
        "batch_mode": "complete_episodes",
    }
    env = from_rllib_env(ShuttleGrid, horizon=24, num_workers=0)
    told = translated(config, mapping="shared", decisions_per_step=3.0, total_env_steps=768)
    result = Trainer(env, (), told, tmp_path / "run", progress=False).train()
    assert not result.interrupted
    assert result.env_steps == 768
    decisions = [entry["decisions_per_step"] for entry in result.history]
    assert all(0 < number < 6 for number in decisions)
    final = result.history[-1]["policies"]["shared"]
    assert final["trained_decisions"] > 0
    assert sum(entry["episodes"] for entry in result.history) == 768 // 24


@pytest.mark.rare
def test_a_league_is_zero_sum_to_the_digit_in_rollouts_of_one_step(tmp_path):
    """There the rewards of one player showed up in the other's return."""
    config = {
        "policies": {"p1", "p2", "p3", "p4"},
        "policy_mapping_fn": lambda agent_id, episode, **kwargs: f"p{agent_id + 1}",
        "policies_to_train": ["p1", "p2"],
        "_enable_new_api_stack": True,
        "num_rollout_workers": 1,
        "num_envs_per_worker": 8,
        "rollout_fragment_length": 1,
        "train_batch_size": 8,
        "sgd_minibatch_size": 8,
        "num_sgd_iter": 1,
        "lambda": 0.94,
        "clip_param": 0.007,
        "lr_schedule": [[0, 2e-5], [1e6, 1e-8]],
        "kl_coeff": 0.0,
        "entropy_coeff": 0.03,
        "model": {"fcnet_hiddens": [8, 8], "fcnet_activation": "relu"},
    }
    env = from_rllib_env(Board, horizon=9, num_workers=0)
    told = translated(
        config,
        mapping={"0": {"p1": 0.8, "p3": 0.2}, "1": {"p2": 0.8, "p4": 0.2}},
        decisions_per_step=1.0,
        stop={"timesteps_total": 1600},
    )
    assert (told.num_envs, told.num_steps) == (8, 1)
    result = Trainer(env, (), told, tmp_path / "run", progress=False).train()
    entries = [entry for entry in result.history if entry["all"]["episodes"]]
    assert sum(entry["episodes"] for entry in entries) > 100
    for entry in entries:
        assert entry["all"]["return_min"] == entry["all"]["return_max"] == 0
        first, second = (entry["agents"][agent] for agent in ("0", "1"))
        assert first["return_mean"] == -second["return_mean"]
    assert any(entry["agents"]["0"]["return_mean"] for entry in entries)
    report = evaluate_policies(make_learner(env, (), told), result.state.population, 64, seed=1)
    assert report["all"]["return_min"] == report["all"]["return_max"] == 0


def test_what_b_does_is_paid_to_a(tmp_path):
    """Their author asked whether RLlib can do it: A's rollout first, then B's from its end."""
    config = {
        "policies": {"A", "B"},
        "policy_mapping_fn": lambda agent_id, episode, **kwargs: agent_id,
        "num_env_runners": 1,
        "num_envs_per_env_runner": 16,
        "train_batch_size": 768,
        "minibatch_size": 96,
        "num_epochs": 4,
        "lr": 3e-3,
        "gamma": 1.0,
        "model": {"fcnet_hiddens": [32]},
    }
    env = from_rllib_env(ThenB, horizon=6, num_workers=0, max_actors=1)
    told = translated(
        config,
        mapping={"A": "A", "B": "B"},
        decisions_per_step=0.5,
        stop={"env_runners/episode_return_min": 0, "num_env_steps_sampled_lifetime": 60_000},
    )
    trainer = Trainer(env, (), told, tmp_path / "run", progress=False)
    result = trainer.train()
    report = evaluate_policies(trainer.learner, result.population, 32, greedy=True)
    # Uniform play leaves 6 to go, and so does an A that walks at random before a B that walks on.
    assert {name: row["return_mean"] for name, row in report["agents"].items()} == {"A": 0, "B": 0}


@pytest.mark.slow
def test_every_policy_of_the_cart_poles_keeps_them_up(tmp_path):
    """Which policy balances which pole is drawn anew in every episode."""
    policies = {f"policy_{i}": {"config": {"gamma": gamma}} for i, gamma in enumerate((0.98, 0.99))}
    config = {
        "env": "MultiAgentCartPole",
        "env_config": {"num_agents": 4},
        "lr": 1e-3,
        "lambda": 0.95,
        "num_sgd_iter": 10,
        "num_workers": 32,
        "rollout_fragment_length": 64,
        "train_batch_size": 2048,
        "sgd_minibatch_size": 512,
        "kl_coeff": 0.0,
        "vf_clip_param": 10_000.0,
        "model": {"fcnet_hiddens": [64, 64]},
        "multiagent": {
            "policies": policies,
            "policy_mapping_fn": lambda agent_id, episode, worker, **kwargs: random.choice(
                [*policies]
            ),
        },
        "framework": "torch",
    }
    env = from_rllib_env(lambda: CartPoles({"num_agents": 4}), horizon=500)
    told = translated(
        config,
        mapping={agent: [*policies] for agent in env.agents},
        decisions_per_step=2.0,
        stop={"timesteps_total": 250_000},
    )
    trainer = Trainer(env, (), told, tmp_path / "run", progress=False)
    result = trainer.train()
    players = trainer.learner.players.names
    for policy in policies:
        totals = play_episodes(
            trainer.learner, result.population, 32, jax.random.key(3), greedy=True,
            players=np.full(4, players.index(policy)),
        )  # fmt: skip
        np.testing.assert_array_equal(totals.returns, 500)
