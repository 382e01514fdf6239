"""Agent encoding of a policy group: observations and actions in the group's widths."""

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
    unsquash,
)
from jaxmarl_ppo.ops.active_rows import put, take
from jaxmarl_ppo.types import PyTree, RolloutState


@dataclass(frozen=True, eq=False)
class AgentInterface:
    """The interface between a policy group and the environment: observations in, actions out.

    A policy group covers some of the agent slots, with the width of the widest agent among them.
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
    joint_width: int = 0  # of inputs for the critic alone; 0 for none

    @property
    def continuous(self) -> bool:
        """Return whether actions are real vectors."""
        return self.action_low is not None

    @property
    def distribution(self) -> ActionDistribution:
        """Distribution of actions whose parameters are the network outputs."""
        if self.continuous:
            return BoundedGaussian(self.action_width)
        return MaskedCategorical(self.action_width)

    @property
    def actor_width(self) -> int:
        """Return the number of the actor's inputs; the critic sees all."""
        extras = self.action_width * self.prev_action + self.prev_reward
        return math.prod(self.feature_shape) + extras + self.num_agents * self.agent_id

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row of network inputs."""
        if len(self.feature_shape) > 1:
            return self.feature_shape
        return (self.actor_width + self.joint_width,)

    def own(self, x: jax.Array) -> jax.Array:
        """Take the policy group's slots: `[E, A, ...]` to `[E, S, ...]`."""
        return x if len(self.slots) == self.num_agents else x[:, np.array(self.slots)]

    def spread(
        self,
        x: jax.Array,
        others: jax.Array,
        where: jax.Array,
        active_rows: jax.Array | None = None,
    ) -> jax.Array:
        """Put `x [E, M, ...]` where `where [E, M]` into `others [E, A, ...]`, the inverse of `own`.

        The last axis of `x` may be narrower than that of `others`. `active_rows` are those of `x`;
        None where it has all slots.
        """
        if x.ndim > 2:
            x = jnp.pad(x, ((0, 0), (0, 0), (0, others.shape[-1] - x.shape[-1])))
        own = self.own(others)
        mine = put(x, active_rows, own, where)
        if len(self.slots) == self.num_agents:
            return mine
        return others.at[:, np.array(self.slots)].set(mine)

    def __call__(
        self, obs: Observation, state: RolloutState, active_rows: jax.Array | None = None
    ) -> jax.Array:
        """Build the network inputs `[E, M, D]` in active rows, or of all slots."""

        def own(x: jax.Array) -> jax.Array:
            return take(self.own(x), active_rows)

        features = own(obs.features)
        if len(self.feature_shape) > 1:
            return features  # `make_agent_interface` rejects further inputs beside planes
        # The environment pads them to its widest agent, which may be outside this policy group.
        features = features[..., : math.prod(self.feature_shape)]
        last_action = own(state.last_action)
        if self.continuous:
            # It is kept unbounded, as drawn, so the network gets its tanh.
            last_action = jnp.tanh(last_action[..., : self.action_width])
        slot = np.array(self.slots) if active_rows is None else jnp.array(self.slots)[active_rows]
        joint = joint_features(obs)[:, None] if self.joint_width else None
        return self.encode(
            features, own(state.is_first), last_action, own(state.last_reward), slot, joint
        )

    def encode(
        self,
        features: jax.Array,
        is_first: jax.Array,
        last_action: jax.Array | None,
        last_reward: jax.Array | None,
        slot: jax.Array | np.ndarray,
        joint: jax.Array | None,
    ) -> jax.Array:
        """Join flat features with the policy's optional inputs and those for the critic alone.

        The last action enters as one-hot, or from -1 to 1 if it is continuous. The last reward is
        the sum since then. Both are zero until a life's first decision. Inputs that the policy does
        not use may be None.

        Args:
            features: `[..., D']`.
            is_first: `[...]` bool, the next decision is the first of a life.
            last_action: `[...]` int, or `[..., N]` float from -1 to 1.
            last_reward: `[...]`.
            slot: `[...]` int, of the agent.
            joint: `[..., G]`, further inputs of the critic.

        Returns:
            `[..., D]`.
        """
        batch_shape = features.shape[:-1]
        # Until a life's first decision, the slot's last action and reward are of the previous life.
        first, parts = is_first[..., None], [features]
        if self.prev_action and last_action is not None:
            if not self.continuous:
                last_action = jax.nn.one_hot(last_action, self.action_width)
            parts.append(jnp.where(first, 0.0, last_action))
        if self.prev_reward and last_reward is not None:
            parts.append(jnp.where(first, 0.0, last_reward[..., None]))
        if self.agent_id:
            one_hot = jax.nn.one_hot(slot, self.num_agents)
            parts.append(jnp.broadcast_to(one_hot, (*batch_shape, self.num_agents)))
        # Last, since an actor sees only the first `actor_width` inputs.
        if self.joint_width and joint is not None:
            parts.append(jnp.broadcast_to(joint, (*batch_shape, self.joint_width)))
        return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else features

    def action_mask(self, obs: Observation, active_rows: jax.Array | None = None) -> jax.Array:
        """Take the legal actions of all slots, `[E, S, N]`, or of active rows, `[E, M, N]`."""
        return take(self.own(obs.action_mask), active_rows)[..., : self.action_width]

    def env_action(self, action: jax.Array, active_rows: jax.Array | None = None) -> jax.Array:
        """Convert sampled actions `[E, M]` or `[E, M, N]` to those of the environment."""
        if self.action_low is None or self.action_high is None:
            return action
        low, high = jnp.asarray(self.action_low), jnp.asarray(self.action_high)
        if active_rows is not None:
            low, high = low[active_rows], high[active_rows]
        return squash(action, low, high)

    def own_action(
        self, env_action: jax.Array, mask: jax.Array, active_rows: jax.Array | None = None
    ) -> jax.Array:
        """Convert the environment's actions to sampled ones, the inverse of `env_action`.

        Args:
            env_action: of all slots, `[E, A]` or `[E, A, N]`.
            mask: `[E, M, N]`, as from `action_mask`.
            active_rows: the wanted ones; None for all slots of the policy group.

        Returns:
            `[E, M]` int, -1 for an illegal action; or `[E, M, N]` float, see `unsquash`.
        """
        action = take(self.own(env_action), active_rows)
        if self.action_low is None or self.action_high is None:
            legal = (action[..., None] == jnp.arange(self.action_width)) & mask
            return jnp.where(legal.any(-1), action, -1).astype(jnp.int32)
        low, high = jnp.asarray(self.action_low), jnp.asarray(self.action_high)
        if active_rows is not None:
            low, high = low[active_rows], high[active_rows]
        # A dimension that an agent lacks has no width.
        return jnp.where(mask, unsquash(action[..., : self.action_width], low, high), 0.0)


def joint_features(obs: Observation) -> jax.Array:
    """Build a centralised critic's inputs: the environment's state if any, else all features.

    `[E, G]`. Rows of empty slots are zero.
    """
    if obs.state is not None:
        return obs.state
    alive = obs.alive.reshape(obs.alive.shape + (1,) * (obs.features.ndim - 2))
    features = jnp.where(alive, obs.features, 0.0)
    return features.reshape(features.shape[0], -1)


def make_agent_interface(
    env: MultiAgentEnv,
    env_params: PyTree,
    slots: tuple[int, ...],
    prev_action: bool = False,
    prev_reward: bool = False,
    agent_id: bool = False,
    central_critic: bool = False,
) -> AgentInterface:
    """Make the interface of some slots, with the sizes that the environment declares.

    Args:
        env: the environment.
        env_params: its parameters.
        slots: the agents, ascending.
        prev_action: add the agent's previous action.
        prev_reward: add the reward since then.
        agent_id: add the slot's one-hot.
        central_critic: add `joint_features` for the critic.

    Raises:
        ValueError: For mixed or unbounded action spaces, or extra inputs beside planes.
    """
    obs = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), env_params)[0])
    # Planes have one shape for all agents; flat features may be padded beyond these slots' widths.
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
    # `joint_features` takes a batch of environments, here of one.
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), obs)
    return AgentInterface(
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
    """Return how many actions a space has, or how many dimensions if they are continuous."""
    return space.n if isinstance(space, Discrete) else space.size


def _action_bounds(
    env: MultiAgentEnv, spaces: Mapping[str, Space]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bounds `[S, N]`; dimensions an agent lacks are fixed at 0."""
    shape = (len(spaces), max(space_width(space) for space in spaces.values()))
    low, high = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for row, (agent, space) in enumerate(spaces.items()):
        assert isinstance(space, Box)  # action_spaces rejects mixtures
        low[row, : space.size] = np.broadcast_to(space.low, space.shape).ravel()
        high[row, : space.size] = np.broadcast_to(space.high, space.shape).ravel()
        if not (np.isfinite(low[row]).all() and np.isfinite(high[row]).all()):
            raise ValueError(
                f"the action space of agent {agent!r} in {env.name!r} is unbounded "
                f"(low {space.low}, high {space.high}); give finite bounds"
            )
    return low, high
