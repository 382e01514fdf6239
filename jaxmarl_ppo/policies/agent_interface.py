"""From observations to network inputs, and from sampled actions to the environment's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete, Space
from jaxmarl_ppo.networks.distributions import (
    ActionDistribution,
    BoundedGaussian,
    MaskedCategorical,
    squash,
)
from jaxmarl_ppo.ops.lanes import put, take
from jaxmarl_ppo.types import PyTree, Slots


@dataclass(frozen=True, eq=False)
class AgentInputs:
    """What the networks of one bank are given of an observation, and how their actions leave.

    A bank covers some of the agent slots and is as wide as the widest agent among them.
    """

    slots: tuple[int, ...]  # S of the A slots, ascending
    feature_shape: tuple[int, ...]  # D, or rows, cols, channels
    action_width: int  # N
    num_agents: int  # A
    action_low: np.ndarray | None  # [S, N]; None for discrete actions
    action_high: np.ndarray | None  # [S, N]
    prev_action: bool = False
    prev_reward: bool = False
    agent_id: bool = False
    joint_width: int = 0  # of what the critic alone sees; 0 for nothing

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
    def actor_width(self) -> int:
        """How many of the inputs the actor sees; the critic sees all."""
        extras = self.action_width * self.prev_action + self.prev_reward
        return math.prod(self.feature_shape) + extras + self.num_agents * self.agent_id

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row of network inputs."""
        if len(self.feature_shape) > 1:
            return self.feature_shape
        return (self.actor_width + self.joint_width,)

    def own(self, x: jax.Array) -> jax.Array:
        """The bank's slots: `[E, A, ...]` to `[E, S, ...]`."""
        return x if len(self.slots) == self.num_agents else x[:, np.array(self.slots)]

    def spread(
        self,
        x: jax.Array,
        others: jax.Array,
        where: jax.Array,
        lanes: jax.Array | None = None,
    ) -> jax.Array:
        """The inverse: `x [E, M, ...]` where `where [E, M]`, `others [E, A, ...]` elsewhere.

        The last axis of `x` may be narrower than that of `others`. `lanes` are those of `x`; None
        where it has all slots.
        """
        if x.ndim > 2:
            x = jnp.pad(x, ((0, 0), (0, 0), (0, others.shape[-1] - x.shape[-1])))
        own = self.own(others)
        mine = put(x, lanes, own, where)
        if len(self.slots) == self.num_agents:
            return mine
        return others.at[:, np.array(self.slots)].set(mine)

    def __call__(self, obs: Observation, slots: Slots, lanes: jax.Array | None = None) -> jax.Array:
        """Network inputs `[E, M, D]`: features, what the policy asked for, what the critic sees.

        The previous action is one-hot (or squashed to [-1, 1]) and the previous reward is all that
        was earned since; both are zero until a life's first decision. Without `lanes`, all slots.
        """

        def own(x: jax.Array) -> jax.Array:
            return take(self.own(x), lanes)

        features = own(obs.features)
        if len(self.feature_shape) > 1:
            return features
        fresh = own(slots.fresh)[..., None]
        features = features[..., : math.prod(self.feature_shape)]
        prev_action = prev_reward = agent_id = joint = None
        if self.prev_action:
            action = own(slots.last_action)
            if self.continuous:
                action = jnp.tanh(action[..., : self.action_width])
            else:
                action = jax.nn.one_hot(action, self.action_width)
            prev_action = jnp.where(fresh, 0.0, action)
        if self.prev_reward:
            prev_reward = jnp.where(fresh, 0.0, own(slots.last_reward)[..., None])
        if self.agent_id:
            one_hot = np.eye(self.num_agents, dtype=np.float32)[np.array(self.slots)]
            every = jnp.broadcast_to(one_hot, (features.shape[0], *one_hot.shape))
            agent_id = take(every, lanes)
        if self.joint_width:
            joint = joint_features(obs)[:, None]
            joint = jnp.broadcast_to(joint, (*features.shape[:2], self.joint_width))
        return self.join(features, prev_action, prev_reward, agent_id, joint)

    def join(
        self,
        features: jax.Array,
        prev_action: jax.Array | None,
        prev_reward: jax.Array | None,
        agent_id: jax.Array | None,
        joint: jax.Array | None,
    ) -> jax.Array:
        """Network inputs `[..., D]` from their parts; None for those that are not given."""
        every = (features, prev_action, prev_reward, agent_id, joint)
        parts = [part for part in every if part is not None]
        return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]

    def action_mask(self, obs: Observation, lanes: jax.Array | None = None) -> jax.Array:
        """Legal actions of the bank's slots, `[E, S, N]`, or of those in lanes, `[E, M, N]`."""
        return take(self.own(obs.action_mask), lanes)[..., : self.action_width]

    def env_action(self, action: jax.Array, lanes: jax.Array | None = None) -> jax.Array:
        """The bank's sampled actions `[E, M]` or `[E, M, N]` as the environment takes them."""
        if self.action_low is None or self.action_high is None:
            return action
        low, high = jnp.asarray(self.action_low), jnp.asarray(self.action_high)
        if lanes is not None:
            low, high = low[lanes], high[lanes]
        return squash(action, low, high)


def joint_features(obs: Observation) -> jax.Array:
    """What a centralised critic sees: the state that the environment offers, else all features.

    `[E, G]`. Rows of slots that hold nobody are zero.
    """
    if obs.state is not None:
        return obs.state
    alive = obs.alive.reshape(obs.alive.shape + (1,) * (obs.features.ndim - 2))
    features = jnp.where(alive, obs.features, 0.0)
    return features.reshape(features.shape[0], -1)


def make_agent_inputs(
    env: MultiAgentEnv,
    env_params: PyTree,
    slots: tuple[int, ...],
    prev_action: bool = False,
    prev_reward: bool = False,
    agent_id: bool = False,
    central_critic: bool = False,
) -> AgentInputs:
    """Read the sizes of some agents off an environment.

    Args:
        env: the environment.
        env_params: its parameters.
        slots: the agents, ascending.
        prev_action: give the agent's previous action.
        prev_reward: give what was earned since.
        agent_id: give the slot's one-hot.
        central_critic: give the critic what `joint_features` says.

    Raises:
        ValueError: mixed or unbounded action spaces, or extra inputs beside planes.
    """
    obs = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), env_params)[0])
    feature_shape = obs.features.shape[1:]
    if len(feature_shape) == 1:
        spaces = [env.observation_space(env.agents[slot], env_params) for slot in slots]
        feature_shape = (max(space.size for space in spaces),)
    elif prev_action or prev_reward or agent_id or central_critic:
        raise ValueError(
            "prev_action, prev_reward, append_agent_id and central_critic need flat features, but "
            f"{env.name!r} has features of shape {feature_shape}; make it with flat features or "
            "drop the option"
        )
    all_spaces = env.action_spaces(env_params)
    actions = {env.agents[slot]: all_spaces[env.agents[slot]] for slot in slots}
    low, high = _action_bounds(env, actions) if env.is_continuous(env_params) else (None, None)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), obs)
    return AgentInputs(
        slots=slots,
        feature_shape=feature_shape,
        action_width=max(space_width(space) for space in actions.values()),
        num_agents=env.num_agents,
        action_low=low,
        action_high=high,
        prev_action=prev_action,
        prev_reward=prev_reward,
        agent_id=agent_id,
        joint_width=jax.eval_shape(joint_features, batch).shape[-1] if central_critic else 0,
    )


def space_width(space: Space) -> int:
    """Number of actions, or of action dimensions."""
    return space.n if isinstance(space, Discrete) else space.size


def _action_bounds(
    env: MultiAgentEnv, spaces: Mapping[str, Space]
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds `[S, N]`; dimensions that an agent does not have are fixed at 0."""
    shape = (len(spaces), max(space_width(space) for space in spaces.values()))
    low, high = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for row, (agent, space) in enumerate(spaces.items()):
        assert isinstance(space, Box)  # action_spaces refuses mixtures
        low[row, : space.size] = np.broadcast_to(space.low, space.shape).ravel()
        high[row, : space.size] = np.broadcast_to(space.high, space.shape).ravel()
        if not (np.isfinite(low[row]).all() and np.isfinite(high[row]).all()):
            raise ValueError(
                f"the action space of agent {agent!r} in {env.name!r} is unbounded "
                f"(low {space.low}, high {space.high}); give finite bounds"
            )
    return low, high
