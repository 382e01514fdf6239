"""Scans over steps whose results are stored side by side, and several steps to an iteration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.ops.steps import MAX_WIDTH, scan_steps

NUM_STEPS, NUM_ENVS = 12, 5


def body(carry, entry):
    keys, offset = entry
    drawn = jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)
    total = carry["total"] * 0.5 + drawn + offset[:, None]
    results = {
        "total": total,
        "is_high": total[:, 0] > 0,
        "count": carry["count"],
        "wide": jnp.broadcast_to(total[:, :1], (NUM_ENVS, MAX_WIDTH + 1)),
    }
    return {"total": total, "count": carry["count"] + 1}, results


@pytest.mark.parametrize("choices", [tuning.CPU, tuning.GPU, tuning.TPU], ids=["cpu", "gpu", "tpu"])
@pytest.mark.parametrize("reverse", [False, True])
def test_steps_of_an_iteration_do_not_change_the_results(monkeypatch, choices, reverse):
    monkeypatch.setattr(tuning, "CPU", choices)
    carry = {"total": jnp.ones((NUM_ENVS, 3)), "count": jnp.arange(NUM_ENVS)}
    keys = jax.random.split(jax.random.key(0), (NUM_STEPS, NUM_ENVS))
    entries = keys, jnp.arange(NUM_STEPS * NUM_ENVS).reshape(NUM_STEPS, NUM_ENVS)
    wanted = jax.lax.scan(body, carry, entries, reverse=reverse)
    for unroll in (1, 3, NUM_STEPS):
        found = scan_steps(body, carry, entries, reverse, unroll)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-6)
