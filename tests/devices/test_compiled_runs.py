"""Runs of one program are the runs that they would be alone, and do not touch each other."""

import contextlib
import dataclasses

import jax
import numpy as np
import pytest
from on_devices import call_on_devices
from probe_envs import FAULTS, Faulty, FaultyParams, tiny_learner

import jaxmarl_envs
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns, hyperparams_of
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays

PPO = {"learning_rate": Linear(1e-2, 0.0), "entropy_coef": 0.01, "num_minibatches": 2}


@contextlib.contextmanager
def optimised():
    """Compile as in a run: what the compiler leaves undone in tests can change a last bit."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def crypto_learner(num_devices=1, **changes):
    env, params = jaxmarl_envs.make("crypto")
    config = {"num_devices": num_devices, "stagger_starts": None, "total_env_steps": 60}
    return tiny_learner(env, params, mapping="per_agent", config=config, **{**PPO, **changes})


@pytest.fixture(scope="module")
def learner():
    return crypto_learner()


@pytest.fixture(scope="module")
def alone(learner):
    """A run by itself: a function of key, iterations and hyper-parameters."""
    with optimised():
        one = CompiledRuns(learner)
        one.compile()

    def train(key, count, hyperparams=None):
        state, metrics = one.init([key])
        if hyperparams is not None:
            training = [
                group.replace(hyperparams=jax.tree.map(jax.numpy.copy, own))
                for group, own in zip(state.training, hyperparams, strict=True)
            ]
            state = state.replace(training=tuple(training))
        return to_arrays(one.train(state, np.array([count]), metrics))

    return train


@pytest.fixture(scope="module")
def runs(learner):
    """Three runs on two devices, so that one replica is left over."""
    made = CompiledRuns(learner, 3, num_rows=2, layout="in_turn")
    with optimised():
        made.compile()
    return made


def begin(runs, **kwargs):
    return runs.init([jax.random.key(seed) for seed in range(runs.num_runs)], **kwargs)


def arrays_of(runs, states, metrics, replica):
    return to_arrays((runs.run(states, replica), runs.run(metrics, replica)))


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_run_in_turn_is_to_the_bit_the_one_that_its_seed_makes_alone(runs, alone):
    states, metrics = begin(runs)
    for counts in ([1, 0, 3], [1, 2, 1]):
        states, metrics = runs.train(states, np.array(counts), metrics)
    for replica, count in enumerate([2, 2, 4]):
        found = arrays_of(runs, states, metrics, replica)
        assert_same(found, alone(jax.random.key(replica), count))


def test_members_have_hyperparameters_of_their_own(runs, alone):
    own = [
        hyperparams_of(crypto_learner(learning_rate=Linear(rate, 0.0), gae_lambda=decay))
        for rate, decay in ((1e-3, 0.9), (3e-2, 0.5), (1e-2, 1.0))
    ]
    states, metrics = begin(runs, hyperparams=own)
    states, metrics = runs.train(states, np.full(3, 2), metrics)
    for replica in range(3):
        found = arrays_of(runs, states, metrics, replica)
        assert_same(found, alone(jax.random.key(replica), 2, own[replica]))


def test_a_run_takes_the_replica_of_another_and_the_rest_go_on(runs, alone):
    states, metrics = begin(runs)
    states, metrics = runs.train(states, np.array([1, 2, 1]), metrics)
    states = runs.write(states, 0, runs.begin(jax.random.key(7)))
    metrics = runs.write(metrics, 0, runs.no_metrics)
    states, metrics = runs.train(states, np.array([1, 1, 1]), metrics)
    for replica, (seed, count) in enumerate([(7, 1), (1, 3), (2, 2)]):
        found = arrays_of(runs, states, metrics, replica)
        assert_same(found, alone(jax.random.key(seed), count))


def test_the_replica_left_over_never_trains(runs):
    states, metrics = begin(runs)
    assert runs.num_replicas == 4
    states, metrics = runs.train(states, np.array([1, 1, 1]), metrics)
    assert states.iteration.tolist() == [1, 1, 1, 0]
    assert metrics.sums.env_steps[3] == 0


@pytest.mark.rare_cases("2")
@pytest.mark.parametrize("num_devices", [1, 2])
def test_side_by_side_is_the_same_but_for_rounding(learner, alone, num_devices):
    runs = CompiledRuns(learner, 2, num_rows=num_devices, layout="side_by_side")
    states, metrics = begin(runs)
    states, metrics = runs.train(states, np.array([1, 2]), metrics)
    for replica, count in enumerate([1, 2]):
        found = arrays_of(runs, states, metrics, replica)
        for name, array in alone(jax.random.key(replica), count).items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_one_device_trains_members_in_turn_to_the_bit(learner, alone):
    runs = CompiledRuns(learner, 2, num_rows=1, layout="in_turn")
    with optimised():
        runs.compile()
    states, metrics = begin(runs)
    states, metrics = runs.train(states, np.array([1, 2]), metrics)
    for replica, count in enumerate([1, 2]):
        found = arrays_of(runs, states, metrics, replica)
        assert_same(found, alone(jax.random.key(replica), count))


def test_a_fault_ends_the_run_that_meets_it_and_no_other():
    sound, faulty = FaultyParams(), FaultyParams(fault=FAULTS.index("reward"), step=7)
    learner = tiny_learner(Faulty(), sound, num_envs=2, config={"num_devices": 1})
    runs = CompiledRuns(learner, 2, layout="in_turn")
    states, metrics = begin(runs, env_params=[sound, faulty])
    states, metrics = runs.train(states, np.array([4, 4]), metrics)
    assert metrics.fault.found.tolist() == [False, True]
    assert states.iteration.tolist() == [4, 2]


def test_what_cannot_be_runs_of_a_program_is_refused(learner):
    with pytest.raises(ValueError, match="num_runs must be at least 1, got 0"):
        CompiledRuns(learner, 0)
    with pytest.raises(ValueError, match="num_rows=3 must be from 1 to 2: there are 4 runs, and 2"):
        CompiledRuns(learner, 4, num_rows=3)
    with pytest.raises(ValueError, match=r"num_rows=2 must be from 1 to 1: .* each row takes 2"):
        CompiledRuns(dataclasses.replace(learner, num_devices=2), 2, num_rows=2)
    with pytest.raises(ValueError, match="valid: in_turn, side_by_side"):
        CompiledRuns(learner, 2, layout="across")  # type: ignore[arg-type]


def test_hyperparameters_that_need_another_program_are_refused(runs):
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"num_epochs shapes the compiled program"):
        runs.begin(key, hyperparams_of(crypto_learner(num_epochs=2)))
    with pytest.raises(ValueError, match=r"learning_rate.*as many points"):
        runs.begin(key, hyperparams_of(crypto_learner(learning_rate=1e-3)))
    with pytest.raises(ValueError, match="keys must be one for each of the 3 runs, got 1"):
        runs.init([key])


def test_a_run_on_a_row_of_devices_is_the_one_that_is_alone_on_as_many():
    call_on_devices(4, check_rows_of_devices)


def check_rows_of_devices():
    """Train three runs on two rows of two devices."""
    learner = crypto_learner(num_devices=2, num_envs=4)
    alone = CompiledRuns(learner)
    assert alone.num_devices == 2
    with optimised():
        alone.compile()

    def expected(seed, count):
        state, metrics = alone.init([jax.random.key(seed)])
        return to_arrays(alone.train(state, np.array([count]), metrics))

    for layout, tolerance in (("in_turn", (0.0, 0.0)), ("side_by_side", (1e-4, 1e-5))):
        runs = CompiledRuns(learner, 3, layout=layout)
        assert (runs.num_rows, runs.num_devices, runs.num_replicas) == (2, 4, 4)
        with optimised():
            runs.compile()
        states, metrics = begin(runs)
        states = runs.write(states, 1, runs.begin(jax.random.key(9)))
        for counts in ([1, 0, 2], [1, 2, 1]):
            states, metrics = runs.train(states, np.array(counts), metrics)
        for replica, (seed, count) in enumerate([(0, 2), (9, 2), (2, 3)]):
            found = arrays_of(runs, states, metrics, replica)
            for name, array in expected(seed, count).items():
                np.testing.assert_allclose(found[name], array, *tolerance, err_msg=name)
