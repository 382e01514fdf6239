"""Members of one program are the runs that they would be alone, and do not touch each other."""

import contextlib
import dataclasses

import jax
import numpy as np
import pytest
from probe_envs import FAULTS, Faulty, FaultyParams, tiny_learner

import jaxmarl_envs
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.devices.compilation import compile_run
from jaxmarl_ppo.devices.members import Members, hyperparams_of
from jaxmarl_ppo.devices.sharding import Devices
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


def crypto_learner(**changes):
    env, params = jaxmarl_envs.make("crypto")
    config = {"num_devices": 1, "stagger_starts": None, "total_env_steps": 60}
    return tiny_learner(env, params, mapping="per_agent", config=config, **{**PPO, **changes})


@pytest.fixture(scope="module")
def learner():
    return crypto_learner()


@pytest.fixture(scope="module")
def alone(learner):
    """The run of one member by itself: a function of key, iterations and hyper-parameters."""
    with optimised():
        run = compile_run(learner, Devices(1), jax.random.key(0))

    def train(key, count, hyperparams=None):
        state, metrics = run.init(key)
        if hyperparams is not None:
            training = [
                group.replace(hyperparams=jax.tree.map(jax.numpy.copy, own))
                for group, own in zip(state.training, hyperparams, strict=True)
            ]
            state = state.replace(training=tuple(training))
        return to_arrays(run.train(state, np.int32(count), metrics))

    return train


@pytest.fixture(scope="module")
def members(learner):
    """Three members on two devices, so that one replica is left over."""
    made = Members(learner, 3, num_devices=2, layout="in_turn")
    with optimised():
        made.compile()
    return made


def begin(members, **kwargs):
    keys = [jax.random.key(seed) for seed in range(members.num_members)]
    return members.init(keys, **kwargs), members.fill(members.no_metrics)


def arrays_of(members, states, metrics, replica):
    return to_arrays((members.member(states, replica), members.member(metrics, replica)))


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_member_in_turn_is_to_the_bit_the_run_that_its_seed_makes_alone(members, alone):
    states, metrics = begin(members)
    for counts in ([1, 0, 3], [1, 2, 1]):
        states, metrics = members.train(states, np.array(counts), metrics)
    for replica, count in enumerate([2, 2, 4]):
        found = arrays_of(members, states, metrics, replica)
        assert_same(found, alone(jax.random.key(replica), count))


def test_members_have_hyperparameters_of_their_own(members, alone):
    own = [
        hyperparams_of(crypto_learner(learning_rate=Linear(rate, 0.0), gae_lambda=decay))
        for rate, decay in ((1e-3, 0.9), (3e-2, 0.5), (1e-2, 1.0))
    ]
    states, metrics = begin(members, hyperparams=own)
    states, metrics = members.train(states, np.full(3, 2), metrics)
    for replica in range(3):
        found = arrays_of(members, states, metrics, replica)
        assert_same(found, alone(jax.random.key(replica), 2, own[replica]))


def test_a_run_takes_the_replica_of_another_and_the_rest_go_on(members, alone):
    states, metrics = begin(members)
    states, metrics = members.train(states, np.array([1, 2, 1]), metrics)
    states = members.put(states, 0, jax.random.key(7))
    metrics = members.write(metrics, 0, members.no_metrics)
    states, metrics = members.train(states, np.array([1, 1, 1]), metrics)
    for replica, (seed, count) in enumerate([(7, 1), (1, 3), (2, 2)]):
        found = arrays_of(members, states, metrics, replica)
        assert_same(found, alone(jax.random.key(seed), count))


def test_the_replica_left_over_never_trains(members):
    states, metrics = begin(members)
    assert members.num_replicas == 4
    states, metrics = members.train(states, np.array([1, 1, 1]), metrics)
    assert states.iteration.tolist() == [1, 1, 1, 0]
    assert metrics.sums.env_steps[3] == 0


@pytest.mark.rare_cases("2")
@pytest.mark.parametrize("num_devices", [1, 2])
def test_side_by_side_is_the_same_but_for_rounding(learner, alone, num_devices):
    members = Members(learner, 2, num_devices=num_devices, layout="side_by_side")
    states, metrics = begin(members)
    states, metrics = members.train(states, np.array([1, 2]), metrics)
    for replica, count in enumerate([1, 2]):
        found = arrays_of(members, states, metrics, replica)
        for name, array in alone(jax.random.key(replica), count).items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_one_device_trains_members_in_turn_to_the_bit(learner, alone):
    members = Members(learner, 2, num_devices=1, layout="in_turn")
    with optimised():
        members.compile()
    states, metrics = begin(members)
    states, metrics = members.train(states, np.array([1, 2]), metrics)
    for replica, count in enumerate([1, 2]):
        found = arrays_of(members, states, metrics, replica)
        assert_same(found, alone(jax.random.key(replica), count))


def test_a_fault_ends_the_member_that_meets_it_and_no_other():
    sound, faulty = FaultyParams(), FaultyParams(fault=FAULTS.index("reward"), step=7)
    learner = tiny_learner(Faulty(), sound, num_envs=2, config={"num_devices": 1})
    members = Members(learner, 2, layout="in_turn")
    states, metrics = begin(members, env_params=[sound, faulty])
    states, metrics = members.train(states, np.array([4, 4]), metrics)
    assert metrics.fault.found.tolist() == [False, True]
    assert states.iteration.tolist() == [4, 2]


def test_what_cannot_be_members_is_refused(learner):
    with pytest.raises(ValueError, match="num_members must be at least 1, got 0"):
        Members(learner, 0)
    with pytest.raises(ValueError, match="num_devices=3 must be from 1 to 2"):
        Members(learner, 4, num_devices=3)
    with pytest.raises(ValueError, match="valid: in_turn, side_by_side"):
        Members(learner, 2, layout="across")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="make it with num_devices=1"):
        Members(dataclasses.replace(learner, num_devices=2), 2)


def test_hyperparameters_that_need_another_program_are_refused(members):
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"num_epochs shapes the compiled program"):
        members.begin(key, hyperparams_of(crypto_learner(num_epochs=2)))
    with pytest.raises(ValueError, match=r"learning_rate.*as many points"):
        members.begin(key, hyperparams_of(crypto_learner(learning_rate=1e-3)))
    with pytest.raises(ValueError, match="keys must be one for each of the 3 members, got 1"):
        members.init([key])
