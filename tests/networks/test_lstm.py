"""The LSTM cell and its gradient beside the equations of textbooks."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from probe_envs import quick_jit

from jaxmarl_ppo.networks.actor_critic import LSTM
from jaxmarl_ppo.networks.lstm import update_cell


def test_lstm_cell_equals_its_equations():
    network = LSTM(num_outputs=2, hidden_sizes=(), lstm_size=3)
    x = jax.random.normal(jax.random.key(1), (1, 4))
    hidden = ((0.3 * jnp.ones((1, 3)), -0.2 * jnp.ones((1, 3))),)
    variables = quick_jit(network.init)(jax.random.key(0), hidden, x)
    core = variables["params"]["trunk_lstm"]
    gates = x @ core["input_gates"]["kernel"] + hidden[0][1] @ core["hidden_gates"]["kernel"]
    i, f, g, o = np.split(np.asarray(gates), 4, -1)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    c = sigmoid(f + 1) * 0.3 + sigmoid(i) * np.tanh(g)
    new, _, _ = network.apply(variables, hidden, x)
    np.testing.assert_allclose(new[0][0], c, atol=1e-6)
    np.testing.assert_allclose(new[0][1], sigmoid(o) * np.tanh(c), atol=1e-6)


def test_the_cell_and_its_gradient_equal_the_equations():
    def textbook(c, gates):
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = nn.sigmoid(f + 1.0) * c + nn.sigmoid(i) * nn.tanh(g)
        return c, nn.sigmoid(o) * nn.tanh(c)

    keys = jax.random.split(jax.random.key(0), 4)
    c, gates = jax.random.normal(keys[0], (5, 3)), 3.0 * jax.random.normal(keys[1], (5, 12))
    gradients = jax.random.normal(keys[2], (5, 3)), jax.random.normal(keys[3], (5, 3))
    ours, pull_back = jax.vjp(update_cell, c, gates)
    theirs, their_pull_back = jax.vjp(textbook, c, gates)
    chex.assert_trees_all_close(ours, theirs, atol=1e-6)
    chex.assert_trees_all_close(pull_back(gradients), their_pull_back(gradients), atol=1e-6)
