"""From observations to network inputs, and from sampled actions to the environment's."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.spaces import Box
from jaxmarl_ppo.distributions import ActionDistribution, BoundedGaussian, MaskedCategorical, squash
from jaxmarl_ppo.types import PyTree, Slots


@dataclass(frozen=True, eq=False)
class AgentInputs:
    """What an agent's network is given beside its features, and how its actions leave."""

    feature_shape: tuple[int, ...]  # D, or rows, cols, channels
    action_width: int  # N
    num_agents: int  # A
    max_actors: int
    action_low: np.ndarray | None  # [A, N]; None for discrete actions
    action_high: np.ndarray | None  # [A, N]
    prev_action: bool = False
    prev_reward: bool = False
    agent_id: bool = False

    @property
    def continuous(self) -> bool:
        """Whether actions are real vectors."""
        return self.action_low is not None

    @property
    def distribution(self) -> ActionDistribution:
        """How network outputs become actions."""
        if self.continuous:
            return BoundedGaussian(self.action_width)
        return MaskedCategorical(self.action_width)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row of network inputs."""
        extras = self.action_width * self.prev_action + self.prev_reward
        extras += self.num_agents * self.agent_id
        return (self.feature_shape[0] + extras,) if extras else self.feature_shape

    def __call__(self, features: jax.Array, slots: Slots) -> jax.Array:
        """Append what the policy asked for: `[E, A, ...]` features to `[E, A, D]` inputs.

        The previous action is one-hot (or squashed to [-1, 1]) and the previous reward is all that
        was earned since; both are zero until a life's first decision.
        """
        parts = [features]
        if self.prev_action:
            if self.continuous:
                action = jnp.tanh(slots.last_action)
            else:
                action = jax.nn.one_hot(slots.last_action, self.action_width)
            parts.append(jnp.where(slots.fresh[..., None], 0.0, action))
        if self.prev_reward:
            parts.append(jnp.where(slots.fresh, 0.0, slots.last_reward)[..., None])
        if self.agent_id:
            agent_id = jnp.eye(self.num_agents)
            parts.append(jnp.broadcast_to(agent_id, (*features.shape[:-1], self.num_agents)))
        return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else features

    def no_action(self, shape: tuple[int, ...]) -> jax.Array:
        """Placeholder actions for slots that have not acted."""
        if self.continuous:
            return jnp.zeros((*shape, self.action_width))
        return jnp.zeros(shape, jnp.int32)

    def env_action(self, action: jax.Array) -> jax.Array:
        """Sampled actions as the environment takes them, `[..., A]` or `[..., A, N]`."""
        if self.action_low is None or self.action_high is None:
            return action
        return squash(action, jnp.asarray(self.action_low), jnp.asarray(self.action_high))


def make_agent_inputs(
    env: MultiAgentEnv,
    env_params: PyTree,
    prev_action: bool = False,
    prev_reward: bool = False,
    agent_id: bool = False,
) -> AgentInputs:
    """Read the sizes off an environment.

    Raises:
        ValueError: mixed or unbounded action spaces, or extra inputs beside planes.
    """
    obs = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), env_params)[0])
    feature_shape = obs.features.shape[1:]
    if len(feature_shape) > 1 and (prev_action or prev_reward or agent_id):
        raise ValueError(
            f"prev_action, prev_reward and append_agent_id need flat features, but {env.name!r} "
            f"has features of shape {feature_shape}; make it with flat features or drop the option"
        )
    low, high = _action_bounds(env, env_params) if env.is_continuous(env_params) else (None, None)
    return AgentInputs(
        feature_shape=feature_shape,
        action_width=env.action_width(env_params),
        num_agents=env.num_agents,
        max_actors=env.max_actors,
        action_low=low,
        action_high=high,
        prev_action=prev_action,
        prev_reward=prev_reward,
        agent_id=agent_id,
    )


def _action_bounds(env: MultiAgentEnv, env_params: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """Bounds `[A, N]`; dimensions that an agent does not have are fixed at 0."""
    shape = (env.num_agents, env.action_width(env_params))
    low, high = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for row, (agent, space) in enumerate(env.action_spaces(env_params).items()):
        assert isinstance(space, Box)  # action_spaces refuses mixtures
        low[row, : space.size] = np.broadcast_to(space.low, space.shape).ravel()
        high[row, : space.size] = np.broadcast_to(space.high, space.shape).ravel()
        if not (np.isfinite(low[row]).all() and np.isfinite(high[row]).all()):
            raise ValueError(
                f"the action space of agent {agent!r} in {env.name!r} is unbounded "
                f"(low {space.low}, high {space.high}); give finite bounds"
            )
    return low, high
