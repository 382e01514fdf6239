"""The minGRU beside its equations; all decisions of a chunk at once beside one after the other."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import quick_jit

from jaxmarl_ppo.networks.actor_critic import LSTM, ActorCritic, MinGRU
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.recurrence import linear_scan
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import Decisions

LENGTH, CHUNKS, WIDTH = 9, 20, 4
SIZES = {"num_outputs": 3, "hidden_sizes": (5,), "separate_critic": True}


class InTurn(nn.Module):
    """The very network of `MinGRU`, with the same parameters, that offers steps alone."""

    network: ActorCritic

    def setup(self):
        nn.share_scope(self, self.network)

    def initial_hidden(self, batch_shape):
        return self.network.initial_hidden(batch_shape)

    def __call__(self, hidden, inputs):
        return self.network(hidden, inputs)


def stacked(module):
    return StackedNetwork(module, MaskedCategorical(3), (WIDTH,))


@pytest.fixture(scope="module")
def chunks():
    """Chunks with lives that begin within, padding at the tail, and some that are taken up."""
    rng = np.random.default_rng(0)
    network = stacked(MinGRU(gru_size=6, **SIZES))
    policy = network.select(quick_jit(network.init)(jax.random.key(0)), 0)
    noise = lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32)  # noqa: E731
    policy = policy.replace(params=jax.tree.map(noise, policy.params))
    size = (CHUNKS, LENGTH)
    hidden, later = (jax.tree.map(noise, network.initial_hidden((CHUNKS,))) for _ in range(2))
    acted = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, (CHUNKS, 1))
    rows = Decisions(
        inputs=rng.normal(size=(*size, WIDTH)).astype(np.float32),
        action_mask=np.ones((*size, 3), bool),
        action=rng.integers(0, 3, size),
        log_prob=np.zeros(size, np.float32),
        value=np.zeros(size, np.float32),
        hidden=hidden,
        is_first=rng.random(size) < 0.3,
        acted=acted,
        policy_index=np.zeros(size, np.int32),
    )
    resumes = rng.random(CHUNKS) < 0.5
    assert (rows.is_first[:, 1] & resumes).any()
    assert (~rows.is_first[:, 1] & resumes & acted[:, 1]).any()
    return policy, rows, np.where(resumes, 1, LENGTH), later


def told(network, policy, rows, resume, later):
    """A number that depends on all that is said of decisions, and on nothing of the padding."""
    log_prob, entropy, value = network.evaluate(policy, rows, resume, later)
    weights = jnp.cos(jnp.arange(log_prob.size)).reshape(log_prob.shape)
    return (jnp.where(rows.acted, log_prob + 0.3 * entropy + value, 0.0) * weights).sum()


def test_a_step_equals_its_equations():
    network = MinGRU(num_outputs=2, hidden_sizes=(), gru_size=3)
    x, held = jax.random.normal(jax.random.key(1), (7, WIDTH)), 0.4 * jnp.ones((7, 3))
    variables = quick_jit(network.init)(jax.random.key(0), (held,), x)
    core = variables["params"]["trunk_min_gru"]["input_gates"]
    kept, candidate, shown = np.split(np.asarray(x @ core["kernel"]), 3, -1)
    z = 1 - 1 / (1 + np.exp(-kept - 1))
    expected = (1 - z) * 0.4 + z * candidate
    (new,), outputs, _ = network.apply(variables, (held,), x)
    np.testing.assert_allclose(new, expected, atol=1e-6)
    head = variables["params"]["policy_head"]["kernel"]
    np.testing.assert_allclose(outputs, expected / (1 + np.exp(-shown)) @ head, atol=1e-6)


@pytest.mark.parametrize("length", [1, 16, 33, 41])
def test_composed_steps_are_steps_in_turn(length):
    keys = jax.random.split(jax.random.key(length), 3)
    a = jax.random.uniform(keys[0], (length, 3))
    b, weights = (jax.random.normal(key, (length, 3)) for key in keys[1:])

    def in_turn(a, b):
        def step(h, x):
            return x[0] * h + x[1], x[0] * h + x[1]

        return jax.lax.scan(step, jnp.zeros(3), (a, b))[1]

    @quick_jit
    def results(a, b):
        pairs = (jax.vjp(f, a, b) for f in (linear_scan, in_turn))
        return [(states, pull_back(weights)) for states, pull_back in pairs]

    chex.assert_trees_all_close(*results(a, b), atol=1e-5)


def test_a_chunk_at_once_is_its_decisions_in_turn_and_so_is_its_gradient(chunks):
    policy, *args = chunks
    results = [
        quick_jit(jax.value_and_grad(lambda p, module=module: told(stacked(module), p, *args)))(
            policy
        )
        for module in (MinGRU(gru_size=6, **SIZES), InTurn(MinGRU(gru_size=6, **SIZES)))
    ]
    chex.assert_trees_all_close(*results, rtol=1e-4, atol=1e-4)
    gradients = jax.tree.leaves(results[0][1].params)
    assert all(np.abs(x).max() > 1e-3 for x in gradients)


@pytest.mark.parametrize(("module", "loops"), [(MinGRU, False), (LSTM, True)])
def test_the_gradient_of_a_min_gru_has_no_loop_over_time(chunks, module, loops):
    _, rows, resume, _ = chunks
    network = stacked(module(**SIZES))
    stack = jax.eval_shape(network.init, jax.random.key(0))
    policy = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), stack)
    hidden = network.initial_hidden((CHUNKS,))
    args = network, policy, rows.replace(hidden=hidden), resume, hidden
    traced = jax.jit(jax.grad(told, 1), static_argnums=0).trace(*args)
    assert ("scan[" in str(traced.jaxpr) or "while[" in str(traced.jaxpr)) == loops
    assert ("stablehlo.while" in traced.lower().as_text()) == loops
