"""Episodes that begin at different phases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.experimental import io_callback
from probe_envs import quick_jit, tiny_learner

from jaxmarl_envs import Box, Discrete, MultiAgentEnv, Observation
from jaxmarl_ppo.rollout.start import ENOUGH_EPISODES, spread_phases


@pytest.mark.parametrize(
    ("horizon", "num_envs"),
    [(1_000_000, 4096), (2_000_000_000, 5), (7, 4096), (25, 16), (3, 1), (999_999, 200_000)],
)
def test_phases_are_even_however_long_the_horizon(horizon, num_envs):
    expected = np.arange(num_envs) * horizon // num_envs  # in 64 bits
    np.testing.assert_array_equal(spread_phases(horizon, num_envs), expected)
    traced = quick_jit(spread_phases, static_argnums=1)(jax.numpy.int32(horizon), num_envs)
    np.testing.assert_array_equal(traced, expected)


@struct.dataclass
class Clock:
    age: jax.Array  # () int32
    length: jax.Array  # () int32, of this episode


class Clocks(MultiAgentEnv):
    """Episodes of one to `longest` steps, under a limit that none reaches; counts steps."""

    name = "clocks"
    agents = ("a",)

    def __init__(self, shortest, longest, limit):
        self.shortest, self.longest, self.limit = shortest, longest, limit
        self.steps = 0

    @property
    def default_params(self):
        return ()

    def horizon(self, params):
        return self.limit

    def observation_space(self, agent, params):
        return Box(0.0, np.inf, (1,))

    def action_space(self, agent, params):
        return Discrete(2)

    def reset_env(self, key, params):
        length = jax.random.randint(key, (), self.shortest, self.longest + 1)
        return self.observe(jnp.array(True)), Clock(jnp.int32(0), length)

    def step_env(self, key, state, action, params):
        def count(_):
            self.steps += 1

        io_callback(count, None, state.age)
        state = state.replace(age=state.age + 1)
        over = state.age >= state.length
        none = jnp.zeros(1, bool)
        return self.observe(~over), state, jnp.ones(1), over[None], none, {}

    def observe(self, alive):
        return Observation(jnp.ones((1, 1)), jnp.ones((1, 2), bool), alive[None], alive[None])


def ages(env, num_envs):
    """Begin a run; the ages of its first episodes, and the steps that were played for them."""
    config = {"stagger_starts": True}
    learner = tiny_learner(env, env.default_params, num_envs=num_envs, config=config)
    ages = np.asarray(quick_jit(learner.init)(jax.random.key(0)).per_env.rollout.env_state.age)
    jax.effects_barrier()
    return ages, env.steps // num_envs


def test_episodes_of_one_length_begin_at_all_of_its_phases():
    found, steps = ages(Clocks(12, 12, 12), num_envs=4)
    np.testing.assert_array_equal(found, [0, 3, 6, 9])
    assert steps == 9


def test_episodes_far_below_the_limit_are_soon_out_of_step():
    longest = 20
    found, steps = ages(Clocks(1, longest, 5_000), num_envs=16)
    assert steps <= ENOUGH_EPISODES * longest
    assert len(np.unique(found)) > 4
