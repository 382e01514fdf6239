"""Episodes that begin at different phases."""

import jax
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_ppo.rollout.start import spread_phases


@pytest.mark.parametrize(
    ("horizon", "num_envs"),
    [(1_000_000, 4096), (2_000_000_000, 5), (7, 4096), (25, 16), (3, 1), (999_999, 200_000)],
)
def test_phases_are_even_however_long_the_horizon(horizon, num_envs):
    expected = np.arange(num_envs) * horizon // num_envs  # in 64 bits
    np.testing.assert_array_equal(spread_phases(horizon, num_envs), expected)
    traced = quick_jit(spread_phases, static_argnums=1)(jax.numpy.int32(horizon), num_envs)
    np.testing.assert_array_equal(traced, expected)
