"""A worker of a search: what it has told of a run is enough for another to go on with it."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.search import Range
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import LSTM
from jaxmarl_ppo.sweeps.candidates import Candidates
from jaxmarl_ppo.sweeps.worker import Worker
from jaxmarl_ppo.sweeps.workers import RunName

CONFIG = TrainConfig(
    total_env_steps=6 * 4 * 8,
    num_envs=4,
    num_steps=8,
    log_interval=2,
    default_policy=PolicySpec(
        network=LSTM(hidden_sizes=(4,), lstm_size=4), normalise_observations=True
    ),
    default_ppo=PPOConfig(num_minibatches=2, num_epochs=1, bptt_length=4),
    objective=ObjectiveConfig("agents/x/return_mean"),
)
RUN, FOLDER = RunName(0, 1), Path("run")


def train(worker):
    results = []
    while worker.is_busy:
        results += worker.train()
    return results


@pytest.fixture(scope="module")
def candidates():
    env, params = jaxmarl_envs.make("tic_tac_toe", size=3)
    space = {"default_ppo.learning_rate": Range(1e-4, 1e-1, log=True)}
    return Candidates(env, params, CONFIG, space)


@pytest.fixture(scope="module")
def worker():
    """One in which runs have been before."""
    return Worker(2, saves=True)


@pytest.fixture(scope="module")
def results(candidates, worker):
    worker.begin(RUN, candidates.make({"default_ppo.learning_rate": 3e-2}), FOLDER)
    return train(worker)


def test_a_run_that_goes_on_elsewhere_is_the_same_to_the_bit(candidates, worker, results):
    candidate = candidates.make({"default_ppo.learning_rate": 3e-2})
    # Beside another one, in the other replica.
    worker.begin(RunName(1, 0), candidates.make({"default_ppo.learning_rate": 1e-3}), FOLDER)
    worker.begin(RUN, candidate, FOLDER, results[0].saved)
    rest = [result for result in train(worker) if result.name == RUN]
    assert [result.env_steps for result in rest] == [result.env_steps for result in results[1:]]
    for before, after in zip(results[1:], rest, strict=True):
        assert before.value == after.value
        assert before.entry["policies"] == after.entry["policies"]
        assert before.entry["decisions"] == after.entry["decisions"]
        assert after.entry["wall_s"] > results[0].saved.wall_s
        same = jax.tree.map(np.array_equal, before.population, after.population)
        assert all(jax.tree.leaves(same))


def test_a_run_that_is_over_leaves_its_replica(worker, results):
    assert [result.is_over for result in results] == [False, False, True]
    assert [result.saved.iteration for result in results] == [2, 4, 6]
    assert worker.room == 2


def test_other_numbers_go_on_from_a_run_and_other_shapes_are_refused(candidates, worker, results):
    other = candidates.make({"default_ppo.learning_rate": 1e-3})
    worker.begin(RUN, other, FOLDER, results[0].saved)
    (rest, *_) = train(worker)
    assert rest.env_steps == results[1].env_steps
    parameters = [
        jax.tree.leaves(result.population.policy_groups[0].params) for result in (results[0], rest)
    ]
    moved = max(np.abs(x - y).max() for x, y in zip(*parameters, strict=True))
    assert 0 < moved < 4 * 2 * 1e-3  # so far Adam goes in as many steps at that rate
    narrow = {name: array.reshape(-1)[:1] for name, array in results[0].saved.arrays.items()}
    with pytest.raises(ValueError, match="run does not fit the run: state/"):
        worker.begin(RUN, other, FOLDER, dataclasses.replace(results[0].saved, arrays=narrow))
