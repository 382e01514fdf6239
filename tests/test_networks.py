"""Networks: shapes, initialisation, and modules of a user's own."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import Reach, quick_jit

import jaxmarl_envs
from jaxmarl_ppo.build import make_learner
from jaxmarl_ppo.config import PolicySpec, PPOConfig, TrainConfig
from jaxmarl_ppo.networks import CNN, LSTM, MLP


def learner_for(network, env="tic_tac_toe", **kwargs):
    if isinstance(env, str):
        env, params = jaxmarl_envs.make(env, **kwargs)
    else:
        params = None
    spec = PolicySpec(network=network)
    config = TrainConfig(
        num_envs=2, num_steps=4, policy=spec, ppo=PPOConfig(num_epochs=1, num_minibatches=1)
    )
    return make_learner(env, params, config)


@pytest.fixture(scope="module")
def lstm_params():
    network = LSTM(num_outputs=3, hidden_sizes=(8,), lstm_size=6, separate_critic=True)
    hidden = network.initial_hidden((1,))
    return quick_jit(network.init)(jax.random.key(0), hidden, jnp.zeros((1, 5)))["params"]


def test_weights_are_orthogonal_with_their_gains(lstm_params):
    def gain(kernel):
        kernel = np.asarray(kernel)
        gram = kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(len(gram)), atol=1e-5)
        return float(np.sqrt(gram[0, 0]))

    torso = lstm_params["actor_torso"]["Dense_0"]
    assert gain(torso["kernel"]) == pytest.approx(np.sqrt(2), rel=1e-4)
    assert gain(lstm_params["policy_head"]["kernel"]) == pytest.approx(0.01, rel=1e-4)
    assert gain(lstm_params["value_head"]["kernel"]) == pytest.approx(1.0, rel=1e-4)
    assert gain(lstm_params["critic_lstm"]["hidden_gates"]["kernel"]) == pytest.approx(
        1.0, rel=1e-4
    )
    biases = [x for path, x in jax.tree.leaves_with_path(lstm_params) if path[-1].key == "bias"]
    assert biases
    assert all((x == 0).all() for x in biases)


def test_critic_and_actor_share_nothing_when_separate(lstm_params):
    network = LSTM(num_outputs=3, hidden_sizes=(8,), lstm_size=6, separate_critic=True)
    x, hidden = jnp.ones((2, 5)), network.initial_hidden((2,))

    def output(params, index):
        return network.apply({"params": params}, hidden, x)[index].sum()

    for index, other in ((1, "critic"), (2, "actor")):
        grads = jax.grad(output)(lstm_params, index)
        for name in (f"{other}_torso", f"{other}_lstm"):
            assert all((g == 0).all() for g in jax.tree.leaves(grads[name]))


@pytest.mark.parametrize(
    ("network", "shape"),
    [(MLP(num_outputs=4), (7,)), (CNN(num_outputs=4, channels=(3,)), (3, 3, 2))],
)
def test_any_leading_axes(network, shape):
    x = jax.random.normal(jax.random.key(1), (2, 3, *shape))
    variables = network.init(jax.random.key(0), (), x[0])
    _, outputs, value = network.apply(variables, (), x)
    assert outputs.shape == (2, 3, 4)
    assert value.shape == (2, 3)
    np.testing.assert_allclose(outputs[1], network.apply(variables, (), x[1])[1], atol=1e-6)


def test_lstm_cell_equals_its_equations():
    network = LSTM(num_outputs=2, hidden_sizes=(), lstm_size=3)
    x = jax.random.normal(jax.random.key(1), (1, 4))
    hidden = ((0.3 * jnp.ones((1, 3)), -0.2 * jnp.ones((1, 3))),)
    variables = network.init(jax.random.key(0), hidden, x)
    core = variables["params"]["trunk_lstm"]
    gates = x @ core["input_gates"]["kernel"] + hidden[0][1] @ core["hidden_gates"]["kernel"]
    i, f, g, o = np.split(np.asarray(gates), 4, -1)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    c = sigmoid(f + 1) * 0.3 + sigmoid(i) * np.tanh(g)
    new, _, _ = network.apply(variables, hidden, x)
    np.testing.assert_allclose(new[0][0], c, atol=1e-6)
    np.testing.assert_allclose(new[0][1], sigmoid(o) * np.tanh(c), atol=1e-6)


class Own(nn.Module):
    """A user's network; what it returns can be spoilt."""

    num_outputs: int = 0
    flaw: str = ""

    @nn.compact
    def __call__(self, hidden, inputs):
        x = nn.Dense(4)(inputs)
        value = nn.Dense(1)(x)
        outputs = nn.Dense(self.num_outputs + (self.flaw == "outputs"))(x)
        if self.flaw == "error":
            raise RuntimeError("of the user's own")
        if self.flaw == "tuple":
            return outputs, value[..., 0]
        if self.flaw == "batch_norm":
            x = nn.BatchNorm(use_running_average=False)(x)
        return hidden, outputs, value if self.flaw == "value" else value[..., 0]


class OwnMemory(nn.Module):
    """A user's recurrent network that knows nothing of stages; `encode` is its own affair."""

    num_outputs: int = 0
    size: int = 3
    flaw: str = ""
    widths: Sequence[int] = (4,)

    def initial_hidden(self, batch_shape):
        return {"h": jnp.zeros((*batch_shape, self.size))}

    def encode(self, inputs, scale):
        return scale * inputs

    @nn.compact
    def __call__(self, hidden, inputs):
        x = self.encode(inputs, 2.0)
        h = nn.tanh(nn.Dense(self.size)(x) + nn.Dense(self.size)(hidden["h"]))
        new = {"h": h[..., :-1] if self.flaw == "hidden" else h}
        return new, nn.Dense(self.num_outputs)(h), nn.Dense(1)(h)[..., 0]


@pytest.mark.parametrize("module", [Own(), OwnMemory()])
def test_modules_of_ones_own_are_trained(module):
    learner = learner_for(module)
    state = quick_jit(learner.init)(jax.random.key(0))
    after, metrics = quick_jit(learner.train_step)(state)
    moved = jax.tree.map(
        lambda x, y: bool((x != y).any()), after.policies.params, state.policies.params
    )
    assert all(jax.tree.leaves(moved))
    assert metrics.sums.update.num_steps[0] == 1


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Own(flaw="outputs"), ["Own", "(3, 10)", "(3, 9)"]),
        (Own(flaw="value"), ["Own", "(3, 1)", "(3,)"]),
        (Own(flaw="tuple"), ["Own", "must return (hidden, distribution inputs, value)"]),
        (Own(flaw="error"), ["Own", "of the user's own"]),
        (Own(flaw="batch_norm"), ["Own", "batch_stats"]),
        (OwnMemory(flaw="hidden"), ["OwnMemory", "(3, 2)", "(3, 3)"]),
        (MLP(activation="swosh"), ["swosh"]),
    ],
)
def test_a_module_that_does_not_fit_is_refused_at_once(module, words):
    with pytest.raises(ValueError) as error:
        learner_for(module)
    for word in words:
        assert word in str(error.value)


def test_planes_and_flat_features_are_told_apart():
    with pytest.raises(ValueError, match="cnn"):
        learner_for("mlp", planes=True)
    with pytest.raises(ValueError, match="planes"):
        learner_for("cnn")
    assert learner_for("cnn", planes=True).bank.input_shape == (3, 3, 3)


def test_continuous_actions_get_means_and_a_free_deviation():
    learner = learner_for(MLP(hidden_sizes=(4,)), env=Reach())
    params = jax.eval_shape(learner.init, jax.random.key(0)).policies.params
    assert params["log_std"].shape == (1, 2)
    assert params["policy_head"]["kernel"].shape == (1, 4, 2)
    assert learner.bank.distribution.num_outputs == 4
