"""A run as Tune drives it, without Tune: steps, checkpoints, other numbers from there on."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.on_ray.trainable import TunedRun, by_path
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.sweeps.candidates import Candidates

CONFIG = TrainConfig(
    total_env_steps=4 * 32,
    num_envs=4,
    num_steps=8,
    default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
    default_ppo=PPOConfig(num_minibatches=2, num_epochs=1),
    evaluation=EvaluationConfig(every_env_steps=64, episodes=4),
    objective=ObjectiveConfig("evaluation/agents/x/return_mean"),
)
RATE = "default_ppo.learning_rate"


@pytest.fixture(scope="module")
def candidates():
    env, params = jaxmarl_envs.make("tic_tac_toe", size=3)
    return Candidates(env, params, CONFIG, {})


@pytest.fixture(scope="module")
def trained(candidates, tmp_path_factory):
    """A run, its results, and its checkpoints after each."""
    run, results, folders = TunedRun(candidates, {RATE: np.float64(3e-2)}), [], []
    while not results or not results[-1]["done"]:
        results.append(run.step())
        folders.append(tmp_path_factory.mktemp("checkpoint"))
        run.save(folders[-1])
    return run, results, folders


def test_a_step_trains_to_the_next_evaluation(trained):
    _, results, _ = trained
    assert [(r["env_steps"], r["done"]) for r in results] == [(64, False), (128, True)]
    for result in results:
        assert result["objective"] == result["evaluation"]["agents"]["x"]["return_mean"]
    json.dumps(results)


def test_a_checkpoint_is_a_run_to_load(trained):
    loaded = load_run(trained[2][1])
    assert loaded.config.default_ppo.learning_rate == 3e-2
    assert loaded.learner.players.names == ("shared",)


def test_what_is_restored_goes_on_to_the_bit(trained, tmp_path):
    run, results, folders = trained
    run.begin({RATE: 3e-2})
    run.load(folders[0])
    again = run.step()
    assert again["policies"] == results[1]["policies"]
    assert again["evaluation"]["agents"] == results[1]["evaluation"]["agents"]
    run.save(tmp_path)
    populations = [load_run(folder).population for folder in (folders[1], tmp_path)]
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, *populations)))


def test_another_trial_goes_on_with_its_own_numbers(trained, tmp_path):
    run, _, folders = trained
    run.begin({RATE: 1e-12})
    run.load(folders[0])
    run.step()
    run.save(tmp_path)
    before, after = (
        load_run(folder).population.policy_groups[0] for folder in (folders[0], tmp_path)
    )
    moved = jax.tree.map(lambda x, y: np.abs(x - y).max(), before.params, after.params)
    assert max(jax.tree.leaves(moved)) < 1e-9
    assert load_run(tmp_path).config.default_ppo.learning_rate == 1e-12


def test_a_run_that_was_over_stays_over(trained, tmp_path):
    run, results, folders = trained
    run.begin({RATE: 1e-3})
    run.load(folders[1])
    assert run.step()["env_steps"] == results[1]["env_steps"]
    assert run.step()["done"]
    run.save(tmp_path)
    run.load(tmp_path)
    assert run.step()["objective"] == results[1]["objective"]


def test_values_are_read_by_path():
    values = {"default_ppo": {"gamma": np.float32(0.5)}, "env.params.limit": 3, "num_envs": [1]}
    found = by_path(values)
    assert found == {"default_ppo.gamma": 0.5, "env.params.limit": 3, "num_envs": [1]}
    assert type(found["default_ppo.gamma"]) is float


def test_values_that_are_no_configuration_are_refused(candidates):
    with pytest.raises(ValueError, match="learning_rat"):
        TunedRun(candidates, {"default_ppo.learning_rat": 1.0})


def test_what_has_no_effect_in_a_trial_is_refused():
    pytest.importorskip("ray")
    from jaxmarl_ppo.on_ray.trainable import make_trainable

    env, params = jaxmarl_envs.make("tic_tac_toe", size=3)
    with pytest.raises(ValueError, match="until has no effect in a search"):
        make_trainable(env, params, dataclasses.replace(CONFIG, until=("env_steps > 3",)))
