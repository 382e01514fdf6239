"""Episodes of the small environments played as told, and tables to compare them with."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from probe_envs import quick_jit


@dataclass
class Played:
    """Episodes of `E` environments; observations have one row more than steps."""

    features: np.ndarray  # [T + 1, E, A, D]
    alive: np.ndarray  # [T + 1, E, A]
    acts: np.ndarray  # [T + 1, E, A]
    reward: np.ndarray  # [T, E, A]
    terminated: np.ndarray  # [T, E, A]
    truncated: np.ndarray  # [T, E, A]


@functools.cache
def compiled(env):
    """`reset_env` and `step_env` over keys, states and actions of `E` environments."""
    reset = jax.vmap(env.reset_env, in_axes=(0, None))
    step = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))
    return quick_jit(reset), quick_jit(step)


def play(env, policy, num_envs=1, params=None, seed=0):
    """As many steps as the horizon has, without auto-reset.

    `policy(features [E, A, D], time_step) -> actions [E, A]` also answers for those who wait.
    """
    params = env.default_params if params is None else params
    reset, step = compiled(env)
    rng = np.random.default_rng(seed)

    def keys():
        return jax.random.wrap_key_data(rng.integers(0, 2**32, (num_envs, 2), np.uint32))

    obs, state = reset(keys(), params)
    seen, happened = [obs], []
    for time_step in range(int(env.horizon(params))):
        action = jnp.asarray(policy(np.asarray(obs.features), time_step), jnp.int32)
        obs, state, *rest, _ = step(keys(), state, action, params)
        seen.append(obs)
        happened.append(rest)
    columns = [[getattr(obs, name) for obs in seen] for name in ("features", "alive", "agent_mask")]
    return Played(*(np.array(x) for x in [*columns, *zip(*happened, strict=True)]))


def naming(num_symbols, offset=0):
    """Names the one-hot in the first features, or another symbol with an offset."""
    return lambda features, time_step: (
        (features[..., :num_symbols].argmax(-1) + offset) % num_symbols
    )


def table(*rows):
    """Rows such as "10 01" as `[steps, A]`, one word for each step."""
    return np.array([[int(digit) for digit in word] for row in rows for word in row.split()])


def assert_uniform(values, num_values):
    """Counts of integers within five standard errors of uniform."""
    counts = np.bincount(np.asarray(values).ravel(), minlength=num_values)
    assert len(counts) == num_values
    expected, share = counts.sum() / num_values, 1 / num_values
    assert np.abs(counts - expected).max() < 5 * np.sqrt(counts.sum() * share * (1 - share))
