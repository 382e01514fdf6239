"""Parameters of an environment that change while training."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from probe_envs import Constant, ConstantParams, quick_jit, tiny_learner

from jaxmarl_ppo import Linear, TrainConfig, Trainer, make_learner
from jaxmarl_ppo.config.as_json import config_from_dict, config_to_dict
from jaxmarl_ppo.config.run_file import override
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.learner.env_schedules import make_env_schedules
from jaxmarl_ppo.learner.summary import summarise
from jaxmarl_ppo.runs.log import read_lines

# Three environments of five steps: 15 environment steps an iteration.
FALLING = {"reward": ((0.0, 2.0), (30.0, -1.0))}


class Shown(Constant):
    """Constant, whose agent sees at a reset what it will be paid."""

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return obs.replace(features=jnp.full((1, 1), params.reward, jnp.float32)), state


@struct.dataclass
class Outer:
    inner: ConstantParams
    small: Any = dataclasses.field(default_factory=lambda: jnp.float16(0.25))
    several: Any = dataclasses.field(default_factory=lambda: jnp.zeros(2))
    absent: Any = None


@pytest.fixture(scope="module")
def falling():
    learner = tiny_learner(Shown(), ConstantParams(), config={"env_schedules": FALLING})
    return learner, quick_jit(learner.init), quick_jit(learner.train_step)


def test_an_iteration_has_the_values_of_its_beginning(falling):
    learner, init, step = falling
    state, paid = init(jax.random.key(0)), []
    np.testing.assert_array_equal(state.per_env.rollout.obs.features, 2)
    for _ in range(4):
        state, metrics = step(state)
        paid.append(summarise(learner, metrics)["all"]["return_mean"])
    assert paid == [2.0, 0.5, -1.0, -1.0]
    assert state.env_params.reward == 1, "what the environment was given stays in the state"


def test_evaluations_play_by_what_the_environment_was_given(falling):
    learner, init, _ = falling
    report = evaluate_policies(learner, init(jax.random.key(0)).population, 4)
    assert report["all"]["return_mean"] == 1


def test_a_run_goes_on_where_it_was_and_logs_the_values(tmp_path):
    config = TrainConfig(
        total_env_steps=60,
        num_envs=3,
        num_steps=5,
        num_devices=1,
        log_interval=1,
        env_schedules=FALLING,
    )
    env, params = Constant(), ConstantParams()
    options = {"progress": False, "check_env": False}
    Trainer(env, params, config, tmp_path / "whole", **options).train()
    until = ("env_params.reward < 2",)
    half = dataclasses.replace(config, until=until)
    result = Trainer(env, params, half, tmp_path / "half", **options).train()
    assert (result.stopped_by, result.env_steps) == ("env_params.reward < 2 holds, it is 0.5", 30)
    Trainer.resume(tmp_path / "half", env=env, until=(), progress=False).train()
    for run in ("whole", "half"):
        entries = read_lines(tmp_path / run / "metrics.jsonl", 4)
        assert [entry["env_params"] for entry in entries] == [
            {"reward": value} for value in (2.0, 0.5, -1.0, -1.0)
        ]
        assert [entry["all"]["return_mean"] for entry in entries] == [2.0, 0.5, -1.0, -1.0]


def test_parameters_within_others_keep_their_types():
    params = Outer(ConstantParams())
    schedules = make_env_schedules(params, {"small": 0.5, "inner.reward": Linear(-1.0, 1.0)}, 100)
    after = schedules.at(params, jnp.float32(25))
    assert (after.inner.reward, after.small, after.small.dtype) == (-0.5, 0.5, jnp.float16)
    assert (after.inner.length, after.absent) == (1, None)
    assert schedules.values(25) == {"small": 0.5, "inner.reward": -0.5}
    assert (params.inner.reward, params.small) == (1, 0.25)


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        ({"rewards": 1.0}, r"the key 'rewards', which is no parameter .* valid: inner.reward, s"),
        ({"inner": 1.0}, r"has the key 'inner', which is no parameter"),
        ({"absent": 1.0}, r"has the key 'absent', which is no parameter"),
        ({"inner.length": 2.0}, r"'inner.length', which cannot change .* since it is 1 and not"),
        ({"inner.truncate": 1.0}, r"'inner.truncate', which cannot change .* since it is False"),
        ({"several": 1.0}, r"'several', which cannot change"),
    ],
)
def test_what_cannot_change_is_refused(schedules, message):
    with pytest.raises(ValueError, match=message):
        make_env_schedules(Outer(ConstantParams()), schedules, 100)


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        ([1.0], "env_schedules must be a table from a parameter"),
        ({1: 1.0}, "a parameter in env_schedules must be a word, got 1"),
        ({"reward": "low"}, r"env_schedules\['reward'\] must be a number, Linear"),
        ({"reward": ((3.0, 1.0), (2.0, 0.0))}, r"steps of env_schedules\['reward'\] must ascend"),
    ],
)
def test_what_is_no_schedule_is_refused(schedules, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(env_schedules=schedules)


def test_a_schedule_that_begins_after_the_run_has_no_effect():
    late = TrainConfig(
        total_env_steps=60,
        num_envs=3,
        num_steps=5,
        env_schedules={"reward": ((60.0, 1.0), (90.0, 0.0))},
    )
    with pytest.raises(ValueError, match="reward of env_schedules begins to change at environment"):
        make_learner(Constant(), ConstantParams(), late)


def test_a_file_changes_single_schedules():
    base = TrainConfig(env_schedules={"reward": Linear(-1.0, 1.0), "other": 2.0})
    assert config_from_dict(config_to_dict(base)).env_schedules == base.env_schedules
    merged = override(base, {"env_schedules": {"other": [[0, 1], [50, -3]]}})
    assert merged.env_schedules == {
        "reward": Linear(-1.0, 1.0),
        "other": ((0.0, 1.0), (50.0, -3.0)),
    }
