"""An average of parameters changes nothing in training, and is what is evaluated and saved."""

import dataclasses

import jax
import numpy as np
import pytest
from lamps import (
    CONFIG,
    NUM_ENVS,
    NUM_STEPS,
    Lamps,
    assert_same,
    assert_same_end,
    cut_back,
    make_trainer,
    read_entries,
    resume,
    without_clock,
)

from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.sweeps.candidates import Candidates
from jaxmarl_ppo.sweeps.worker import Worker
from jaxmarl_ppo.sweeps.workers import RunName
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator

DECAY = 0.75
PER_ITERATION = NUM_ENVS * NUM_STEPS
AVERAGED = {
    "default_ppo": dataclasses.replace(CONFIG.default_ppo, ema_decay=DECAY),
    # The two are members of one group, of which one is not trained.
    "policies": {"bob_0": PolicySpec(network=CONFIG.default_policy.network, trainable=False)},
    "default_policy": PolicySpec(network=CONFIG.default_policy.network),
    "checkpoints": CheckpointConfig(every_minutes=None, every_env_steps=PER_ITERATION, keep=10),
    "evaluation": EvaluationConfig(every_env_steps=10 * PER_ITERATION, episodes=32),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_trainer(tmp_path_factory.mktemp("averages") / "run", **AVERAGED).train()


@pytest.fixture(scope="module")
def newest():
    """The players after each iteration of the same run without an average, and before the first."""
    config = dataclasses.replace(CONFIG, **{**AVERAGED, "default_ppo": CONFIG.default_ppo})
    learner = make_learner(Lamps(), Lamps().default_params, config)
    state, step = jax.jit(learner.init)(jax.random.key(config.seed)), jax.jit(learner.train_step)
    found = [state.population]
    for _ in range(config.num_iterations):
        state, _ = step(state)
        found.append(state.population)
    return jax.device_get(found)


def averaged(players):
    """The players after the last iteration, with their average."""
    (last,) = players[-1].policy_groups
    average = players[0].policy_groups[0].params
    for each in players[1:]:
        (stack,) = each.policy_groups
        average = jax.tree.map(lambda x, y: DECAY * x + (1 - DECAY) * y, average, stack.params)
    return last.replace(params=average)


def assert_close(x, y):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), x, y)


def test_the_average_of_what_was_trained_is_evaluated_and_saved(run, newest):
    wanted = averaged(newest)
    trained, fixed = ([leaf[k] for leaf in jax.tree.leaves(wanted.params)] for k in (0, 1))
    last = [leaf[0] for leaf in jax.tree.leaves(newest[-1].policy_groups[0].params)]
    assert max(np.abs(x - y).max() for x, y in zip(trained, last, strict=True)) > 1e-2
    assert_same(fixed, [leaf[1] for leaf in jax.tree.leaves(newest[0].policy_groups[0].params)])
    assert_close(run.population.policy_groups[0], wanted)
    assert_close(run.state.population.policy_groups[0], newest[-1].policy_groups[0])
    saved = load_run(run.run_dir, env=Lamps())
    assert_same(saved.population, run.population)
    assert_same(load_run(checkpoints_of(run.run_dir)[0], env=Lamps()).population, run.population)
    config = dataclasses.replace(CONFIG, **AVERAGED)
    evaluator = MeanwhileEvaluator(saved.learner, config)
    report = evaluator.evaluate(run.population, config.num_iterations)
    assert run.evaluations[-1]["agents"] == report["agents"]
    other = evaluator.evaluate(run.state.population, config.num_iterations)
    assert other["agents"] != report["agents"]


def test_a_killed_run_goes_on_with_its_average(run, tmp_path):
    found = resume(cut_back(run.run_dir, tmp_path / "cut", 4)).train()
    assert_same_end(found, run)
    assert_same(found.population, run.population)


def test_every_seed_of_a_group_has_its_own(run, tmp_path):
    group = make_trainer(tmp_path / "group", **AVERAGED, num_seeds=2).train()
    first, second = group.members
    assert_close(first.population, run.population)
    assert_same(load_run(second.run_dir, env=Lamps()).population, second.population)
    assert_same(jax.tree.map(lambda x: x[1], group.population), second.population)
    assert without_clock(read_entries(first.run_dir, "evaluations.jsonl")) == without_clock(
        first.evaluations
    )


def test_a_trial_of_a_search_is_judged_by_it(run, tmp_path):
    config = dataclasses.replace(
        CONFIG, **AVERAGED, objective=ObjectiveConfig("agents/ann_0/return_mean")
    )
    candidates = Candidates(Lamps(), Lamps().default_params, config, {})
    worker = Worker(1, saves=False)
    worker.begin(RunName(0, 0), candidates.make({}), tmp_path)
    looks = []
    while worker.is_busy:
        looks += worker.train()
    assert_close(looks[-1].population, run.population)
