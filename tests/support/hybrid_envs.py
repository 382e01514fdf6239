"""Agents with action spaces of every kind in one environment, and random actions for them."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple

SPACES = {
    "picks": Discrete(4),
    "moves": Box(np.array([-1.0, 0.0], np.float32), 2.0, (2,)),
    "both": Tuple((Discrete(3), Box(-2.0, 1.0, (2,)))),
    "pair": MultiDiscrete([2, 3]),
    "nest": Tuple((MultiDiscrete([3, 2]), Tuple((Box(0.0, 4.0, (2, 1)), Discrete(5))))),
}
CHOICES_ONLY = {name: SPACES[name] for name in ("picks", "pair")}


@struct.dataclass
class HybridState:
    time: jax.Array  # [] int32
    alive: jax.Array  # [A] bool
    acts: jax.Array  # [A] bool


class Hybrid(MultiAgentEnv[HybridState, tuple]):
    """Rewards tell every factor of every action apart; agents wait, die, and have random masks.

    What an agent that waits sends counts for nothing. Illegal options are taken like legal ones.
    Of `moves`, which has numbers alone, and of the first choice of `nest` everything is legal.
    """

    name = "hybrid"
    max_steps = 8

    def __init__(self, spaces=SPACES):
        self.spaces, self.agents = dict(spaces), tuple(spaces)

    @property
    def default_params(self):
        return ()

    def horizon(self, params):
        return self.max_steps

    def observation_space(self, agent, params):
        self.agent_index(agent)
        return Box(-1000.0, 1000.0, (3,))

    def action_space(self, agent, params):
        return self.spaces[agent]

    def _observe(self, key, state, said):
        """What an agent did (its own `said [A]`), and noise; who acts and what is legal."""
        layout = self.action_layout(())
        mask = jnp.asarray(layout.exists)
        mask = mask & (jax.random.uniform(key, mask.shape) < 0.6)
        for start in layout.starts[:-1]:  # of every choice something stays legal
            mask = mask.at[:, start].set(True)
        mask = mask.at[:, layout.starts[-1] :].set(layout.exists[:, layout.starts[-1] :])
        if "nest" in self.agents:
            row, end = self.agents.index("nest"), layout.counts[0]
            mask = mask.at[row, :end].set(layout.exists[row, :end])
        noise = jax.random.uniform(jax.random.fold_in(key, 1), (self.num_agents, 2))
        features = jnp.column_stack([said, noise])
        return Observation(features, mask, state.alive, state.alive & state.acts)

    def _acts(self, key):
        return jax.random.uniform(key, (self.num_agents,)) < 0.7

    def reset_env(self, key, params):
        alive = jnp.ones(self.num_agents, bool)
        state = HybridState(jnp.zeros((), jnp.int32), alive, self._acts(key))
        return self._observe(key, state, jnp.zeros(self.num_agents)), state

    def step_env(self, key, state, action, params):
        layout = self.action_layout(())
        said = jnp.zeros(self.num_agents)
        for part, scale in zip(layout.split(action), (1.0, 0.37), strict=True):
            weights = scale * 6.0 ** jnp.arange(part.shape[-1])
            said = said + (part * weights).sum(-1)
        said = jnp.where(state.alive & state.acts, said, 0.0)
        ends = jax.random.uniform(jax.random.fold_in(key, 2), said.shape) < 0.1
        time = state.time + 1
        terminated = state.alive & ends
        truncated = state.alive & ~ends & (time >= self.max_steps)
        after = HybridState(time, state.alive & ~terminated & ~truncated, self._acts(key))
        reward = jnp.where(state.alive, said + 0.1 * said.sum(), 0.0)
        return self._observe(key, after, said), after, reward, terminated, truncated, {}


def random_own(space, legal, rng):
    """A random element of a space; `legal` is an iterator over the legal options of its choices."""
    if isinstance(space, Tuple):
        return tuple(random_own(part, legal, rng) for part in space.spaces)
    if isinstance(space, Discrete):
        return int(rng.choice(np.flatnonzero(next(legal))))
    if isinstance(space, MultiDiscrete):
        return np.array([rng.choice(np.flatnonzero(next(legal))) for _ in space.nvec])
    return rng.uniform(space.low, space.high, space.shape).astype(np.float32)


def chooser(spaces):
    """`choose(name, count, mask)`: a random legal action, the same one for the same arguments."""

    def choose(name, count, mask):
        space = spaces[name.split("#")[0]]
        rng = np.random.default_rng([count, *map(ord, name)])
        return random_own(space, iter([mask] if isinstance(space, Discrete) else mask), rng)

    return choose
