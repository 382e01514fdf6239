"""What share of an iteration its rollout takes, measured beside training."""

import time

import jax
import numpy as np
import pytest
from lamps import CONFIG, Lamps, assert_same, make_trainer, without_clock

from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.training import time_split
from jaxmarl_ppo.training.time_split import TimeSplit


@pytest.fixture(scope="module")
def learner():
    env = Lamps()
    return make_learner(env, env.default_params, CONFIG)


@pytest.fixture(scope="module")
def state(learner):
    return Devices(learner.num_devices).place(jax.jit(learner.init)(jax.random.key(0)))


def measured(split, state, iteration_s):
    """Poll as the loop does, until there is nothing to do any more."""
    for _ in range(600):
        split.poll(state, iteration_s)
        if split.rollout_share is not None:
            return split.rollout_share
        time.sleep(0.1)
    raise AssertionError("nothing was measured")


def test_a_share_of_the_iterations_time(learner, state):
    split = TimeSplit(learner, Devices(learner.num_devices), after_s=0.0)
    before = jax.tree.map(np.array, jax.device_get(state.per_env.rollout.obs))
    share = measured(split, state, iteration_s=1e3)
    split.close()
    assert 0.0 < share < 1e-3  # a rollout of 32 steps takes less than a second
    assert_same(before, state.per_env.rollout.obs)  # the state is there as it was
    # Slower than the whole, as where something else was busy: not more than everything.
    split = TimeSplit(learner, Devices(learner.num_devices), after_s=0.0)
    assert measured(split, state, iteration_s=1e-9) == 1.0
    split.close()


def test_nothing_is_done_in_a_short_run(learner, state):
    split = TimeSplit(learner, Devices(learner.num_devices), after_s=3600.0)
    for _ in range(3):
        split.poll(state, 1.0)
    assert split.rollout_share is None
    assert split._compilation is None
    split.close()


@pytest.mark.rare
def test_a_run_is_the_same_to_the_bit_and_logs_the_share(tmp_path, monkeypatch):
    # So long that the rollout is compiled meanwhile.
    long = {"total_env_steps": 20_000 * 32, "log_interval": 500}
    plain = make_trainer(tmp_path / "plain", **long).train()
    monkeypatch.setattr(time_split.TimeSplit.__init__, "__defaults__", (0.0,))
    split = make_trainer(tmp_path / "split", **long).train()
    assert "rollout_share" not in plain.history[-1]
    assert 0.0 < split.history[-1]["rollout_share"] <= 1.0
    assert without_clock(plain.history) == without_clock(split.history)
    assert_same(plain.population, split.population)
    seconds = split.history[-1]["seconds"]
    assert seconds["training"] > 0.0
    assert seconds["compiling"] > 0.0
    assert sum(seconds.values()) == pytest.approx(split.history[-1]["wall_s"], rel=0.2, abs=0.5)
