"""Six shuttles that see and earn noise, in JAX: `noise_twin.NoiseTwin`."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs import Box, Discrete, MultiAgentEnv, Observation
from jaxmarl_envs.core import StepResult
from ray_baseline.noise_twin import MAX_STEPS, NUM_ACTIONS, NUM_AGENTS, NUM_FEATURES


@struct.dataclass
class NoiseState:
    """Nothing but the time."""

    time: jax.Array  # [] int32


class Noise(MultiAgentEnv[NoiseState, tuple[()]]):
    """Features are uniform on [-1, 1], rewards on [0, 1]; each agent is idle half of the time."""

    name = "noise"
    agents = tuple(str(i) for i in range(NUM_AGENTS))

    @property
    def default_params(self) -> tuple[()]:
        """None."""
        return ()

    def observation_space(self, agent: str, params: tuple[()]) -> Box:
        """The same for all."""
        return Box(-1.0, 1.0, (NUM_FEATURES,))

    def action_space(self, agent: str, params: tuple[()]) -> Discrete:
        """The same for all."""
        return Discrete(NUM_ACTIONS)

    def horizon(self, params: tuple[()]) -> int:
        """Every episode lasts exactly this long."""
        return MAX_STEPS

    def reset_env(self, key: jax.Array, params: tuple[()]) -> tuple[Observation, NoiseState]:
        """Everybody begins idle."""
        state = NoiseState(jnp.int32(0))
        return _observe(key, state, jnp.ones(NUM_AGENTS, bool)), state

    def step_env(
        self, key: jax.Array, state: NoiseState, action: jax.Array, params: tuple[()]
    ) -> StepResult[NoiseState]:
        """Draw everything anew, whatever is done; all end together."""
        key_features, key_idle, key_reward = jax.random.split(key, 3)
        state = NoiseState(state.time + 1)
        idle = jax.random.bernoulli(key_idle, 0.5, (NUM_AGENTS,))
        reward = jax.random.uniform(key_reward, (NUM_AGENTS,))
        obs = _observe(key_features, state, idle)
        terminated = ~obs.alive
        return obs, state, reward, terminated, jnp.zeros_like(terminated), {}


def _observe(key: jax.Array, state: NoiseState, idle: jax.Array) -> Observation:
    alive = jnp.broadcast_to(state.time < MAX_STEPS, (NUM_AGENTS,))
    return Observation(
        features=jax.random.uniform(key, (NUM_AGENTS, NUM_FEATURES), minval=-1.0, maxval=1.0),
        action_mask=jnp.ones((NUM_AGENTS, NUM_ACTIONS), bool),
        alive=alive,
        agent_mask=alive & idle,
    )
