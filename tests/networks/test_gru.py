"""The GRU cell and its gradient beside flax's."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import quick_jit

from jaxmarl_ppo.networks.gru import GRUCore

SIZE, WIDTH, ROWS = 3, 4, 5


@pytest.fixture(scope="module")
def core_and_params():
    """Our cell, and parameters none of which is zero."""
    core = GRUCore(SIZE)
    rows = jnp.ones((1, WIDTH)), jnp.ones((1, SIZE))
    step = lambda core, x, h: core(h, core.project(x))  # noqa: E731
    params = nn.init(step, core)(jax.random.key(0), *rows)["params"]
    keys = iter(jax.random.split(jax.random.key(1), 9))
    return core, jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(keys), x.shape), params)


def flax_params(params):
    """Ours under the names that `flax.linen.GRUCell` has for them."""
    inputs, recurrent = params["input_gates"], params["hidden_gates"]["kernel"]
    parts = zip(
        "rzn",
        jnp.split(inputs["kernel"], 3, -1),
        jnp.split(inputs["bias"], 3),
        jnp.split(recurrent, 3, -1),
        strict=True,
    )
    theirs = {}
    for gate, kernel, bias, from_h in parts:
        theirs[f"i{gate}"] = {"kernel": kernel, "bias": bias}
        theirs[f"h{gate}"] = {"kernel": from_h}
    theirs["hn"]["bias"] = params["candidate_bias"]
    return theirs


def test_a_step_and_its_gradient_equal_those_of_flax(core_and_params):
    core, params = core_and_params
    keys = jax.random.split(jax.random.key(2), 3)
    h, x = jax.random.normal(keys[0], (ROWS, SIZE)), 2.0 * jax.random.normal(keys[1], (ROWS, WIDTH))
    weights = jax.random.normal(keys[2], (ROWS, SIZE))

    def ours(params, h, x):
        gates = core.apply({"params": params}, x, method="project")
        return core.apply({"params": params}, h, gates)[1]

    def theirs(params, h, x):
        return nn.GRUCell(SIZE).apply({"params": flax_params(params)}, h, x)[1]

    np.testing.assert_allclose(ours(params, h, x), theirs(params, h, x), atol=1e-6)
    chex.assert_trees_all_close(
        *(
            quick_jit(jax.grad(lambda *args, f=f: (weights * f(*args)).sum(), (0, 1, 2)))(
                params, h, x
            )
            for f in (ours, theirs)
        ),
        atol=1e-5,
    )
