"""Hold and reset of hidden state against explicit loops."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import quick_jit

from jaxmarl_ppo.networks.actor_critic import GRU, LSTM, MinGRU
from jaxmarl_ppo.networks.gru import GRUCore
from jaxmarl_ppo.networks.lstm import LSTMCore
from jaxmarl_ppo.networks.recurrence import advance, unroll, unroll_linear
from jaxmarl_ppo.ops.trees import where_rows


def recur(hidden, x):
    """Remembers everything, in a way that depends on the order."""
    moved = 0.5 * hidden[0] + x
    return (moved, hidden[1] + 1.0), moved * 10.0


def at_once(recur, hidden, x, *lives):
    """What `unroll` returns, from what `recur` is as coefficients."""
    half, one = (np.full(x.shape, number, np.float32) for number in (0.5, 1.0))
    states = unroll_linear(((half, one), (x, one)), hidden, *lives)
    return states[0] * 10.0


FORMS = pytest.mark.parametrize("unroll", [unroll, at_once])


@pytest.fixture(scope="module")
def chunks():
    rng = np.random.default_rng(0)
    length, num = 7, 40
    hidden = (rng.normal(size=(num, 3)), rng.normal(size=(num, 3)))
    x = rng.normal(size=(length, num, 3))
    is_first = rng.random((length, num)) < 0.25
    valid = rng.random((length, num)) < 0.7
    return hidden, x, is_first, valid


def explicit(hidden, x, is_first, valid):
    """One row after the other, in NumPy; also the states that each row started from."""
    hidden = [h.copy() for h in hidden]
    outputs, starts = np.zeros_like(x), np.zeros_like(x)
    for t, c in np.ndindex(*valid.shape):
        start = [np.zeros(3), np.zeros(3)] if is_first[t, c] else [h[c] for h in hidden]
        starts[t, c] = start[0]
        (first, second), outputs[t, c] = recur(start, x[t, c])
        if valid[t, c]:
            hidden[0][c], hidden[1][c] = first, second
    return hidden, starts, outputs


def test_advance_holds_and_resets(chunks):
    hidden, x, is_first, valid = chunks
    state, starts, outputs = hidden, [], []
    for t in range(len(x)):
        state, start, y = advance(recur, state, x[t], is_first[t], valid[t])
        starts.append(start[0])
        outputs.append(y)
    expected_hidden, expected_starts, expected_outputs = explicit(*chunks)
    np.testing.assert_allclose(np.stack(starts), expected_starts, atol=1e-5)
    np.testing.assert_allclose(np.stack(outputs), expected_outputs, atol=1e-4)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), state, tuple(expected_hidden)
    )


@FORMS
def test_unroll_is_repeated_advance(chunks, unroll):
    hidden, x, is_first, valid = chunks
    nowhere = jnp.full(valid.shape[1], len(x))
    outputs = np.asarray(unroll(recur, hidden, x, is_first, valid, nowhere, hidden))
    np.testing.assert_allclose(outputs[valid], explicit(*chunks)[2][valid], atol=1e-4)


@FORMS
def test_resumed_chunks_take_up_the_state_at_one_of_their_decisions(chunks, unroll):
    hidden, x, is_first, _ = chunks
    everything = np.ones(is_first.shape, bool)
    resume = 1 + np.arange(everything.shape[1]) % len(x)  # where it is the length, nowhere
    elsewhere = jax.tree.map(lambda h: h + 100.0, hidden)
    outputs = np.asarray(unroll(recur, hidden, x, is_first, everything, resume, elsewhere))
    plain = explicit(hidden, x, is_first, everything)[2]
    for at in range(1, len(x) + 1):
        mine = resume == at
        np.testing.assert_allclose(outputs[:at, mine], plain[:at, mine], atol=1e-4)
        behind = explicit(elsewhere, x[at:], is_first[at:], everything[at:])[2]
        np.testing.assert_allclose(outputs[at:, mine], behind[:, mine], rtol=1e-5, atol=1e-4)


@FORMS
def test_padding_holds_nothing_but_what_the_chunk_had(chunks, unroll):
    hidden, x, is_first, valid = chunks
    nowhere = jnp.full(valid.shape[1], len(x))
    garbage = np.where(valid[..., None], x, np.nan)
    clean = unroll(recur, hidden, x, is_first, valid, nowhere, hidden)
    dirty = unroll(recur, hidden, garbage, is_first, valid, nowhere, hidden)
    np.testing.assert_array_equal(np.asarray(clean)[valid], np.asarray(dirty)[valid])


@pytest.mark.parametrize(
    ("kind", "computed_in", "tolerance"),
    [
        (LSTMCore, {}, 1e-5),
        (GRUCore, {}, 1e-5),
        (LSTMCore, {"matmul_precision": "bfloat16"}, 1e-5),
        # A sum of gradients in bfloat16 depends on when it is rounded.
        (GRUCore, {"dtype": "bfloat16"}, 5e-2),
    ],
)
def test_the_gradient_of_an_unrolled_core_is_that_of_its_steps(kind, computed_in, tolerance):
    """Of two members at once, with lives that begin, end and resume anywhere."""
    length, num, size, members = 5, 12, 3, 2
    core = kind(size, **computed_in)
    rng = np.random.default_rng(1)
    leaves, structure = jax.tree.flatten(kind.initial_hidden(size, (num,)))

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    hidden, elsewhere = (
        jax.tree.unflatten(structure, [normal(*h.shape) for h in leaves]) for _ in range(2)
    )
    x, weights = normal(members, length, num, 4), normal(members, length, num, size)
    is_first = jnp.asarray(rng.random((length, num)) < 0.2)
    valid = jnp.asarray(rng.random((length, num)) < 0.8)
    lives = is_first, valid, 1 + jnp.arange(num) % length, elsewhere
    step = lambda core, hidden, x: core(hidden, core.project(x))  # noqa: E731
    params = jax.vmap(lambda key: nn.init(step, core)(key, hidden, x[0, 0])["params"])(
        jax.random.split(jax.random.key(0), members)
    )

    def at_once(core, x):
        return core.unroll(hidden, core.project(x), lives)

    def by_step(core, x):
        return unroll(core, hidden, core.project(x), *lives)

    def outputs_and_gradients(form):
        def loss(params, x, weights):
            y = nn.apply(form, core)({"params": params}, x)
            return (jnp.where(valid[..., None], y, 0.0) * weights).sum(), y

        return quick_jit(jax.vmap(jax.grad(loss, (0, 1), has_aux=True)))(params, x, weights)

    chex.assert_trees_all_close(
        *map(outputs_and_gradients, (at_once, by_step)), rtol=tolerance, atol=tolerance
    )


def test_where_rows_broadcasts_over_trailing_axes():
    mask = jnp.array([True, False])
    chosen = where_rows(
        mask, {"a": jnp.ones((2, 3)), "b": jnp.ones(2)}, {"a": jnp.zeros((2, 3)), "b": jnp.zeros(2)}
    )
    np.testing.assert_array_equal(chosen["a"][:, 0], [1, 0])
    np.testing.assert_array_equal(chosen["b"], [1, 0])


@pytest.mark.parametrize(
    ("kind", "separate_critic"),
    [(LSTM, False), (LSTM, True), (GRU, True), (MinGRU, False), (MinGRU, True)],
)
def test_staged_network_is_its_plain_call(kind, separate_critic):
    network = kind(num_outputs=3, hidden_sizes=(5,), separate_critic=separate_critic)
    key_init, key_x, key_h = jax.random.split(jax.random.key(0), 3)
    hidden = network.initial_hidden((6,))
    hidden = jax.tree.map(lambda h: jax.random.normal(key_h, h.shape), hidden)
    x = jax.random.normal(key_x, (5, 6, 2))
    variables = network.init(key_init, hidden, x[0])
    encoded = network.apply(variables, x, method="encode")
    plain_hidden, staged_hidden = hidden, hidden
    for t in range(5):
        plain_hidden, outputs, value = network.apply(variables, plain_hidden, x[t])
        step = jax.tree.map(lambda y, t=t: y[t], encoded)
        staged_hidden, y = network.apply(variables, staged_hidden, step, method="recur")
        staged = network.apply(variables, y, method="decode")
        np.testing.assert_allclose(outputs, staged[0], atol=1e-6)
        np.testing.assert_allclose(value, staged[1], atol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain_hidden, staged_hidden
    )
    per_tower = 2 if kind is LSTM else 1
    assert len(jax.tree.leaves(hidden)) == per_tower * (2 if separate_critic else 1)
