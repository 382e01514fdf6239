"""What accelerators compute otherwise than a CPU, computed on a CPU: the same training."""

import dataclasses

import jax
import numpy as np
import pytest
from probe_envs import quick_jit

import jaxmarl_envs
from jaxmarl_ppo import PolicySpec, PPOConfig, TrainConfig, make_learner
from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks import LSTM, MLP
from jaxmarl_ppo.ppo import fused_gradient
from jaxmarl_ppo.training.trainer import Trainer

SMALL = MLP(hidden_sizes=(8,))
RECURRENT = LSTM(hidden_sizes=(8,), lstm_size=4)
EPOCHS = 2
# Environment, mapping, network, steps: all act at every step; drawn policies; these in turn;
# in turn, shared and not; some wait; born and dying; memory, shared and not; and a single step.
WORKLOADS = [
    ("crypto", "per_agent", SMALL, 16),
    ("crypto", "ensemble:3", SMALL, 16),
    ("tic_tac_toe", "ensemble:2", SMALL, 16),
    ("tic_tac_toe", "shared", SMALL, 16),
    ("tic_tac_toe", "per_agent", SMALL, 16),
    ("flex_agents", "shared", SMALL, 16),
    ("shuttle_grid", "shared", RECURRENT, 20),
    ("shuttle_grid", "per_agent", RECURRENT, 20),
    ("tic_tac_toe", "ensemble:2", RECURRENT, 20),
    ("crypto", "per_agent", SMALL, 1),
]


def train(env_name, mapping, network, num_steps, num_minibatches=3, **fields):
    """Two iterations: the state that they end in, and what the second reports."""
    env, env_params = jaxmarl_envs.make(env_name)
    config = TrainConfig(
        num_envs=24,
        num_steps=num_steps,
        total_env_steps=10**6,
        num_devices=1,
        mapping=mapping,
        default_policy=PolicySpec(network=network),
        default_ppo=PPOConfig(num_epochs=EPOCHS, num_minibatches=num_minibatches),
        **fields,
    )
    learner = make_learner(env, env_params, config)
    step = quick_jit(learner.train_step)
    state = quick_jit(learner.init)(jax.random.key(0))
    state, _ = step(state)
    return learner, *step(state)


@pytest.mark.rare_cases(
    "crypto-per_agent-16",
    "crypto-ensemble:3-16",
    "tic_tac_toe-shared-16",
    "flex_agents-shared-16",
    "shuttle_grid-per_agent-20",
    "tic_tac_toe-ensemble:2-20",
    "crypto-per_agent-1",
)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: f"{w[0]}-{w[1]}-{w[3]}")
def test_a_gpu_trains_the_same(monkeypatch, workload):
    assert_same_training(monkeypatch, tuning.GPU, workload, num_minibatches=3)


@pytest.mark.rare_cases(
    "crypto-per_agent-16",
    "crypto-ensemble:3-16",
    "tic_tac_toe-shared-16",
    "tic_tac_toe-per_agent-16",
    "shuttle_grid-shared-20",
    "shuttle_grid-per_agent-20",
    "tic_tac_toe-ensemble:2-20",
    "crypto-per_agent-1",
)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: f"{w[0]}-{w[1]}-{w[3]}")
def test_a_tpu_trains_the_same(monkeypatch, workload):
    # Its blocks are of other rows, so minibatches are, too. In a single one there are all of them.
    assert_same_training(monkeypatch, tuning.TPU, workload, num_minibatches=1)


@pytest.mark.rare_cases("crypto-per_agent-16", "flex_agents-shared-16")
@pytest.mark.parametrize(
    "workload",
    # In the last, one agent has two numbers, the other a choice as well.
    [WORKLOADS[0], WORKLOADS[2], WORKLOADS[5], ("convoy", "per_agent", SMALL, 16)],
    ids=lambda w: f"{w[0]}-{w[1]}-{w[3]}",
)
def test_a_gpu_trains_the_same_in_kernels_of_small_networks(monkeypatch, workload):
    monkeypatch.setattr(fused_gradient, "NUM_PROGRAMS", 8)
    fused = {"fused_gradients": True, "fused_acting": True}
    assert_same_training(monkeypatch, tuning.GPU, workload, 3, **fused)


@pytest.mark.rare_cases("GPU")
@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_several_steps_to_an_iteration_train_the_same(monkeypatch, device):
    choices = getattr(tuning, device)
    assert_same_training(monkeypatch, choices, WORKLOADS[0], 3, rollout_unroll=4)


@pytest.mark.rare
def test_minibatches_of_a_tpu_are_all_rows(monkeypatch):
    monkeypatch.setattr(tuning, "CPU", tuning.TPU)
    _, _, metrics = train("flex_agents", "shared", SMALL, 16)
    jax.clear_caches()
    np.testing.assert_array_equal(metrics.sums.update.losses.count, EPOCHS * metrics.sums.trained)
    np.testing.assert_array_equal(metrics.sums.update.num_steps, EPOCHS * 3)


def assert_same_training(monkeypatch, choices, workload, num_minibatches, **fields):
    _, wanted, reported = train(*workload, num_minibatches)
    monkeypatch.setattr(tuning, "CPU", choices)
    jax.clear_caches()
    learner, found, metrics = train(*workload, num_minibatches, **fields)
    jax.clear_caches()
    for group in learner.group_learners:
        assert (group.update_shape.num_micro_batches is not None) == choices.fixed_trip_counts
        acts_fused = group.policy_group.network.fused_forward is not None
        assert group.update_shape.fused == acts_fused == ("fused_acting" in fields)
    # No row is lost where there is room for so many only.
    np.testing.assert_array_equal(metrics.sums.trained, reported.sums.trained)
    np.testing.assert_array_equal(metrics.sums.update.losses.count, EPOCHS * metrics.sums.trained)
    for group, own in zip(
        found.population.policy_groups, wanted.population.policy_groups, strict=True
    ):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), group, own)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4),
        found.per_env.running,
        wanted.per_env.running,
    )


FUSED = TrainConfig(
    num_envs=8,
    num_steps=8,
    num_devices=1,
    fused_gradients=True,
    mapping="per_agent",
    default_policy=PolicySpec(network=SMALL),
)


@pytest.mark.parametrize("name", ["fused_gradients", "fused_acting"])
def test_kernels_of_small_networks_need_a_gpu(name):
    env, env_params = jaxmarl_envs.make("crypto")
    config = dataclasses.replace(FUSED, **{"fused_gradients": False, name: True})
    with pytest.raises(ValueError, match=f"{name}=True needs a GPU .* compiled for a cpu"):
        make_learner(env, env_params, config)


def test_a_title_says_what_has_kernels_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "CPU", tuning.GPU)
    env, env_params = jaxmarl_envs.make("crypto")

    def title(policies, **fields):
        config = dataclasses.replace(FUSED, policies=policies, **fields)
        return Trainer(env, env_params, config, tmp_path / "run", progress=False).title

    assert title({}).endswith(" | fused gradients")
    lstm = PolicySpec(network=RECURRENT)
    assert title({"eve_0": lstm}, fused_acting=True).endswith(
        "fused gradients, fused acting, not of eve_0 (its network is of the class LSTM, not MLP)"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"default_policy": PolicySpec(network=RECURRENT)},
            r"fused_gradients=True has no effect on eve_0, bob_0, alice_0 \(its network is of",
        ),
        ({"micro_batch_rows": 64}, "micro_batch_rows=64 has no effect with fused_gradients=True"),
    ],
)
def test_what_fused_gradients_leave_without_effect(monkeypatch, fields, message):
    monkeypatch.setattr(tuning, "CPU", tuning.GPU)
    env, env_params = jaxmarl_envs.make("crypto")
    with pytest.raises(ValueError, match=message):
        make_learner(env, env_params, dataclasses.replace(FUSED, **fields))
