"""In what networks multiply matrices: what is rounded, and what is not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import quick_jit

import jaxmarl_envs
from jaxmarl_envs import backend
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import make_learner, to_evaluate
from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks import CNN, GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.networks.layers import dense
from jaxmarl_ppo.networks.matmul import bfloat16_conv, bfloat16_dot_general

NETWORKS = {
    "mlp": MLP(hidden_sizes=(8,)),
    "separate": MLP(hidden_sizes=(8, 8), separate_critic=True),
    "lstm": LSTM(hidden_sizes=(8,), lstm_size=6),
    "gru": GRU(hidden_sizes=(8,), gru_size=6),
    "min_gru": MinGRU(hidden_sizes=(8,), gru_size=6),
    "cnn": CNN(channels=(4, 4), hidden_sizes=(8,)),
}
# Products with a kernel: torso, memory, two heads.
NUM_KERNELS = {"mlp": 3, "separate": 6, "lstm": 5, "gru": 5, "min_gru": 4, "cnn": 5}


def learner_for(network, precision, **changes):
    env, params = jaxmarl_envs.make("tic_tac_toe", planes=isinstance(network, CNN))
    config = TrainConfig(
        num_envs=2,
        num_steps=4,
        num_devices=1,
        default_policy=PolicySpec(network=network),
        default_ppo=PPOConfig(num_epochs=1, num_minibatches=1),
        matmul_precision=precision,
        **changes,
    )
    return make_learner(env, params, config)


def products(jaxpr):
    """Kinds of numbers that products of real ones take and give, all of a jaxpr's."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            kinds = [str(var.aval.dtype) for var in (*equation.invars, *equation.outvars)]
            # Metrics count by products with what is true.
            if "bool" not in kinds and "float" in kinds[-1]:
                found.append((tuple(kinds), equation.params["precision"]))
        for param in equation.params.values():
            for inner in param if isinstance(param, tuple) else (param,):
                inner = getattr(inner, "jaxpr", inner)
                found += products(inner) if hasattr(inner, "eqns") else []
    return found


def products_of_step(learner):
    state = jax.eval_shape(learner.init, jax.random.key(0))
    return products(jax.make_jaxpr(learner.train_step)(state).jaxpr)


@pytest.mark.rare_cases("gru", "separate")
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_product_of_a_step_is_rounded_and_summed_in_float32(kind):
    found = products_of_step(learner_for(NETWORKS[kind], "bfloat16"))
    assert {kinds for kinds, _ in found} == {("bfloat16", "bfloat16", "float32")}
    # Of every kernel one to play, one to value what comes last, three to learn, but for what the
    # inputs, which are not learnt, need not have.
    assert len(found) >= 5 * NUM_KERNELS[kind] - 2


@pytest.mark.parametrize("kind", ["lstm", "cnn"])
def test_nothing_is_rounded_unless_it_is_asked_for(kind):
    learner = learner_for(NETWORKS[kind], "float32")
    state = jax.eval_shape(learner.init, jax.random.key(0))
    traced = jax.make_jaxpr(learner.train_step)(state)
    assert "bf16" not in str(traced)
    assert {precision for _, precision in products(traced.jaxpr)} == {None}


def on_accelerators(monkeypatch, platform, capability="9.0"):
    """Have programs traced as for another platform."""
    device = type("Chip", (), {"compute_capability": capability})()
    monkeypatch.setattr(backend, "_named", (platform, (device,)))
    jax.clear_caches()


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("float32", (jax.lax.Precision.HIGHEST,) * 2),
        ("tf32", jax.lax.DotAlgorithmPreset.TF32_TF32_F32),
    ],
)
def test_a_gpu_is_told_how_finely_to_multiply(monkeypatch, precision, expected):
    on_accelerators(monkeypatch, "gpu")
    found = products_of_step(learner_for(NETWORKS["lstm"], precision))
    jax.clear_caches()
    assert {kinds for kinds, _ in found} == {("float32", "float32", "float32")}
    assert {said for _, said in found} == {expected}


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("num_outputs", [1, 2, 7])
def test_a_product_and_its_gradients_are_those_of_rounded_numbers(monkeypatch, num_outputs, copies):
    monkeypatch.setattr(tuning, "CPU", dataclasses.replace(tuning.CPU, copies_inputs=copies))
    rng = np.random.default_rng(num_outputs)
    x, kernel = rng.normal(size=(3, 5, 8)), rng.normal(size=(8, num_outputs))
    of_y = rng.normal(size=(3, 5, num_outputs))

    def layer(x, kernel):
        return bfloat16_dot_general(x, kernel, (((2,), (0,)), ((), ())))

    y, backward = jax.vjp(layer, jnp.float32(x), jnp.float32(kernel))
    of_x, of_kernel = backward(jnp.float32(of_y))
    x, kernel, of_y = map(rounded, (x, kernel, of_y))
    np.testing.assert_allclose(y, x @ kernel, atol=1e-5)
    np.testing.assert_allclose(of_x, of_y @ kernel.T, atol=1e-5)
    np.testing.assert_allclose(of_kernel, np.einsum("abi,abo->io", x, of_y), atol=1e-5)


def rounded(x):
    return np.asarray(jnp.float32(x).astype(jnp.bfloat16).astype(jnp.float32))


def test_a_convolution_and_its_gradients_are_those_of_rounded_numbers():
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(5, 4, 3, 2)), rng.normal(size=(3, 3, 2, 6))
    of_y = rng.normal(size=(5, 4, 3, 6))

    def plain(x, kernel):
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dims)

    found, backward = jax.vjp(bfloat16_conv, jnp.float32(x), jnp.float32(kernel))
    expected, plain_backward = jax.vjp(plain, rounded(x), rounded(kernel))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    gradients = backward(jnp.float32(of_y)), plain_backward(rounded(of_y))
    for own, wanted in zip(*gradients, strict=True):
        np.testing.assert_allclose(own, wanted, atol=1e-4)


@pytest.mark.rare_cases("separate")
@pytest.mark.parametrize("kind", ["separate", "lstm", "cnn"])
def test_gradients_are_close_to_those_of_float32(kind):
    network = NETWORKS[kind].clone(num_outputs=3)
    inputs = jax.random.normal(jax.random.key(1), (64, *((4, 3, 2) if kind == "cnn" else (5,))))
    hidden = jax.tree.map(lambda x: x + 0.5, network.initial_hidden((64,)))
    params = quick_jit(network.init)(jax.random.key(0), hidden, inputs)

    def gradient(precision):
        def loss(params):
            module = network.clone(matmul_precision=precision)
            _, outputs, value = module.apply(params, hidden, inputs)
            return (outputs**2).mean() + (value**2).mean()

        leaves = jax.tree.leaves(quick_jit(jax.grad(loss))(params))
        assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    fine, coarse = gradient("float32"), gradient("bfloat16")
    apart = jnp.linalg.norm(coarse - fine) / jnp.linalg.norm(fine)
    assert 1e-4 < apart < 2e-2


class Plain(nn.Module):
    """A module that knows nothing of precision."""

    num_outputs: int = 0

    @nn.compact
    def __call__(self, hidden, inputs):
        return hidden, nn.Dense(self.num_outputs)(inputs), nn.Dense(1)(inputs)[..., 0]


class Willing(nn.Module):
    """A module that does as the run says."""

    num_outputs: int = 0
    matmul_precision: str = "float32"

    @nn.compact
    def __call__(self, hidden, inputs):
        heads = dense(self.num_outputs + 1, 1.0, matmul_precision=self.matmul_precision)(inputs)
        return hidden, heads[..., 1:], heads[..., 0]


def test_a_module_of_ones_own_takes_part_by_a_field():
    message = "matmul_precision='bfloat16' has no effect on the layers of Plain"
    with pytest.raises(ValueError, match=message):
        learner_for(Plain(), "bfloat16")
    found = products_of_step(learner_for(Willing(), "bfloat16"))
    assert {kinds for kinds, _ in found} == {("bfloat16", "bfloat16", "float32")}


@pytest.mark.parametrize(
    ("platform", "capability", "valid"),
    [("cpu", "", False), ("tpu", "", False), ("gpu", "7.5", False), ("gpu", "gfx942", True)],
)
def test_tf32_is_for_those_who_have_it(monkeypatch, platform, capability, valid):
    on_accelerators(monkeypatch, platform, capability)
    if valid:
        learner_for(NETWORKS["mlp"], "tf32")
    else:
        message = f"'tf32' needs a GPU that has it .* for a {platform}; valid here: float32, bf"
        with pytest.raises(ValueError, match=message):
            learner_for(NETWORKS["mlp"], "tf32")
    # What was learnt elsewhere plays here all the same.
    played = to_evaluate(TrainConfig(matmul_precision="tf32")).matmul_precision
    assert played == ("tf32" if valid else "float32")


def test_an_unknown_precision_is_refused():
    with pytest.raises(
        ValueError, match=r"unknown matmul_precision 'float16'; valid: float32, tf32, bfloat16"
    ):
        TrainConfig(matmul_precision="float16")  # pyright: ignore
