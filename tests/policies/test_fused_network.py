"""Acting in one kernel, interpreted, against the network's own call."""

import jax
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks.actor_critic import CNN, LSTM, MLP
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.factored import FactoredDistribution, as_factored
from jaxmarl_ppo.networks.numbers import BetaDistribution, ClippedGaussian, SquashedGaussian
from jaxmarl_ppo.policies import fused_network
from jaxmarl_ppo.policies.fusable import why_not_fused
from jaxmarl_ppo.policies.stacked_network import StackedNetwork

K = 2


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(tuning, "CPU", tuning.GPU)
    monkeypatch.setattr(fused_network, "TILE_ROWS", 16)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("module", "num_inputs", "distribution", "num_rows"),
    [
        (MLP(hidden_sizes=(8, 17)), 5, MaskedCategorical(3), 40),
        (
            MLP(hidden_sizes=(6,), head_sizes=(4,), activation="relu"),
            16,
            FactoredDistribution((3, 5, 1), SquashedGaussian(2)),
            16,
        ),
        (MLP(hidden_sizes=(), separate_critic=True), 20, MaskedCategorical(33), 1),
        (
            MLP(hidden_sizes=(5,), separate_critic=True, actor_width=3),
            7,
            ClippedGaussian(17),
            33,
        ),
    ],
)
def test_a_kernel_answers_as_the_network(module, num_inputs, distribution, num_rows, precision):
    numbers = as_factored(distribution).numbers
    module = module.clone(
        num_outputs=distribution.num_outputs,
        num_log_stds=numbers.num_log_stds if numbers else 0,
        matmul_precision=precision,
    )
    network = StackedNetwork(
        module,
        distribution,
        (num_inputs,),
        num_members=K,
        matmul_precision=precision,
    )
    assert why_not_fused(network) is None
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: (x + 0.2 * rng.normal(size=x.shape)).astype(np.float32),
        network.init(jax.random.key(0)).params,
    )
    inputs = rng.normal(size=(K, num_rows, num_inputs)).astype(np.float32)

    @quick_jit
    def both(params, inputs):
        # As in `StackedNetwork.forward`, for all policies at once.
        found = jax.vmap(lambda *x: fused_network.forward(network, *x))(params, inputs)
        return found, jax.vmap(lambda p, x: module.apply({"params": p}, (), x)[1:])(params, inputs)

    found, wanted = both(params, inputs)
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-5)
        assert np.abs(want).max() > 0.1


@pytest.mark.parametrize(
    ("module", "distribution", "reason"),
    [
        (LSTM(), MaskedCategorical(3), "its network is of the class LSTM, not MLP"),
        (CNN(), MaskedCategorical(3), "its network is of the class CNN, not MLP"),
        (
            MLP(hidden_sizes=(8,) * 4, head_sizes=(8,)),
            MaskedCategorical(3),
            "it has 5 hidden layers, more than 4",
        ),
        (
            MLP(hidden_sizes=(129,)),
            MaskedCategorical(3),
            "it has a layer or inputs of width 129, more than 128",
        ),
        (MLP(), MaskedCategorical(65), "it has 1 x 65 options, more than 64"),
        (MLP(), FactoredDistribution((30, 2, 2), None), "it has 3 x 30 options, more than 64"),
        (MLP(), ClippedGaussian(65), "it has 65 numbers, more than 64"),
        (
            MLP(),
            FactoredDistribution((2,), BetaDistribution(2)),
            "its numbers have the distribution BetaDistribution, not a Gaussian",
        ),
        (MLP(unimix=0.1), MaskedCategorical(3), "unimix=0.1"),
        (MLP(dtype="bfloat16"), MaskedCategorical(3), "dtype='bfloat16'"),
    ],
)
def test_networks_without_a_kernel(module, distribution, reason):
    assert why_not_fused(StackedNetwork(module, distribution, (4,))) == reason
