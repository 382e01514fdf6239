"""Agent encoding of a policy group: observations and actions in the group's widths."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.actions import Action, ActionLayout, widest_counts
from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import has_range
from jaxmarl_ppo.networks.distributions import ActionDistribution, MaskedCategorical
from jaxmarl_ppo.networks.factored import FactoredDistribution
from jaxmarl_ppo.networks.numbers import (
    DEFAULT_NUMBERS,
    NUMBERS,
    UNBOUNDED_NUMBERS,
    NumbersDistribution,
    scale,
    unscale,
)
from jaxmarl_ppo.ops.active_rows import put, take
from jaxmarl_ppo.types import PyTree, RolloutState


@dataclass(frozen=True, eq=False)
class AgentInterface:
    """The interface between a policy group and the environment: observations in, actions out.

    A policy group covers some of the agent slots, with the width of the widest agent among them.
    Its actions have the form of the environment's: `[...]` int, `[..., N]` float, or an `Action`.
    """

    slots: tuple[int, ...]  # S of the A slots, ascending
    feature_shape: tuple[int, ...]  # D, or rows, cols, channels
    layout: ActionLayout  # of the environment's actions
    counts: tuple[int, ...]  # options of each choice, C
    num_numbers: int  # N
    continuous: str = DEFAULT_NUMBERS  # which distribution numbers have, a key of `NUMBERS`
    prev_action: bool = False
    prev_reward: bool = False
    agent_id: bool = False
    joint_width: int = 0  # of inputs for the critic alone; 0 for none

    @property
    def num_agents(self) -> int:
        """Number of agent slots, `A`."""
        return len(self.layout.factors)

    @property
    def action_width(self) -> int:
        """Width of a mask: the options of all choices, and the numbers."""
        return sum(self.counts) + self.num_numbers

    @property
    def numbers(self) -> NumbersDistribution | None:
        """Distribution of the numbers; None without any."""
        return NUMBERS[self.continuous](self.num_numbers) if self.num_numbers else None

    @functools.cached_property
    def distribution(self) -> ActionDistribution:
        """Distribution of actions whose parameters are the network outputs."""
        if self.layout.is_choice:
            return MaskedCategorical(self.action_width)
        numbers = self.numbers
        if self.layout.is_numbers and numbers is not None:
            return numbers
        return FactoredDistribution(self.counts, numbers)

    @functools.cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest numbers of every slot, `[S, N]`; 0 where it has none."""
        low, high = (x[list(self.slots), : self.num_numbers] for x in self.layout.bounds)
        return low, high

    @functools.cached_property
    def _columns(self) -> np.ndarray | None:
        """Columns of the environment's masks that the group has; None for the first ones."""
        *starts, end = self.layout.starts
        options = [np.arange(n) + start for start, n in zip(starts, self.counts, strict=False)]
        columns = np.concatenate([*options, np.arange(self.num_numbers) + end]).astype(int)
        first = np.arange(self.action_width)
        return None if np.array_equal(columns, first) else columns

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

    def own(self, x: Any) -> Any:
        """Take the policy group's slots of every leaf: `[E, A, ...]` to `[E, S, ...]`."""
        if len(self.slots) == self.num_agents:
            return x
        return jax.tree.map(lambda x: x[:, np.array(self.slots)], x)

    def narrow(self, action: Any) -> Any:
        """Cut the environment's actions `[..., C]` and `[..., N]` to the group's own widths.

        A part that no agent of the group has becomes None.
        """
        if self.layout.is_choice:
            return action
        if self.layout.is_numbers:
            return action[..., : self.num_numbers]
        return Action(
            action.choices[..., : len(self.counts)] if self.counts else None,
            action.numbers[..., : self.num_numbers] if self.num_numbers else None,
        )

    def spread(
        self,
        x: Any,
        others: Any,
        where: jax.Array,
        active_rows: jax.Array | None = None,
    ) -> Any:
        """Put actions `x [E, M, ...]` where `where [E, M]` into `others [E, A, ...]`.

        The inverse of `own` and `narrow`. `active_rows` are those of `x`; None where it has all
        slots.
        """

        def part(x: jax.Array | None, others: jax.Array) -> jax.Array:
            return others if x is None else self._spread(x, others, where, active_rows)

        if not isinstance(x, Action):
            return part(x, others)
        return Action(part(x.choices, others.choices), part(x.numbers, others.numbers))

    def _spread(
        self, x: jax.Array, others: jax.Array, where: jax.Array, active_rows: jax.Array | None
    ) -> jax.Array:
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

        def own(x: Any) -> Any:
            return take(self.own(x), active_rows)

        features = own(obs.features)
        if len(self.feature_shape) > 1:
            return features  # `make_agent_interface` rejects further inputs beside planes
        # The environment pads them to its widest agent, which may be outside this policy group.
        features = features[..., : math.prod(self.feature_shape)]
        last_action = self.narrow(own(state.last_action))
        last_action = self.bounded(last_action, *self._bounds_of(active_rows))
        slot = np.array(self.slots) if active_rows is None else jnp.array(self.slots)[active_rows]
        joint = joint_features(obs)[:, None] if self.joint_width else None
        return self.encode(
            features, own(state.is_first), last_action, own(state.last_reward), slot, joint
        )

    def bounded(self, action: Any, low: jax.Array, high: jax.Array) -> Any:
        """Map the numbers of actions as drawn to [-1, 1], as networks see them.

        Those without a range stay as they are, but for a single bound.

        Args:
            action: `[...]` int, `[..., N]` float, or an `Action`.
            low: lowest numbers, `[..., N]`.
            high: highest numbers, `[..., N]`.
        """

        def change(numbers: jax.Array, own: NumbersDistribution) -> jax.Array:
            played = jnp.clip(numbers, low, high)
            return jnp.where(has_range(low, high), own.bounded(numbers), played)

        return self._with_numbers(action, change)

    def _with_numbers(
        self, action: Any, change: Callable[[jax.Array, NumbersDistribution], jax.Array]
    ) -> Any:
        """Replace the numbers of actions by what `change` makes of them and their distribution."""
        if self.numbers is None:
            return action
        if self.layout.is_numbers:
            return change(action, self.numbers)
        return action.replace(numbers=change(action.numbers, self.numbers))

    def encode(
        self,
        features: jax.Array,
        is_first: jax.Array,
        last_action: Any,
        last_reward: jax.Array | None,
        slot: jax.Array | np.ndarray,
        joint: jax.Array | None,
    ) -> jax.Array:
        """Join flat features with the policy's optional inputs and those for the critic alone.

        Of the last action, choices enter as one-hot and numbers as from `bounded`. The last reward
        is the sum since then. Both are zero until a life's first decision. Inputs that the policy
        does not use may be None.

        Args:
            features: `[..., D']`.
            is_first: `[...]` bool, the next decision is the first of a life.
            last_action: from `bounded`: `[...]` int, `[..., N]` float, or an `Action`.
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
            parts.append(jnp.where(first, 0.0, self._as_inputs(last_action)))
        if self.prev_reward and last_reward is not None:
            parts.append(jnp.where(first, 0.0, last_reward[..., None]))
        if self.agent_id:
            one_hot = jax.nn.one_hot(slot, self.num_agents)
            parts.append(jnp.broadcast_to(one_hot, (*batch_shape, self.num_agents)))
        # Last, since an actor sees only the first `actor_width` inputs.
        if self.joint_width and joint is not None:
            parts.append(jnp.broadcast_to(joint, (*batch_shape, self.joint_width)))
        return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else features

    def _as_inputs(self, action: Any) -> jax.Array:
        """Write actions from `bounded` as `[..., action_width]`."""
        if self.layout.is_numbers:
            return action
        if self.layout.is_choice:
            return jax.nn.one_hot(action, self.action_width)
        parts = [
            jax.nn.one_hot(action.choices[..., choice], count)
            for choice, count in enumerate(self.counts)
        ]
        parts += [] if action.numbers is None else [action.numbers]
        return jnp.concatenate(parts, axis=-1)

    def action_mask(self, obs: Observation, active_rows: jax.Array | None = None) -> jax.Array:
        """Take the masks of all slots, `[E, S, W]`, or of active rows, `[E, M, W]`."""
        mask = take(self.own(obs.action_mask), active_rows)
        columns = self._columns
        return mask[..., : self.action_width] if columns is None else mask[..., columns]

    def env_action(self, action: Any, active_rows: jax.Array | None = None) -> Any:
        """Convert actions `[E, M, ...]` as drawn to those of the environment."""
        low, high = self._bounds_of(active_rows)
        action = self.bounded(action, low, high)
        return self._with_numbers(action, lambda numbers, own: scale(numbers, low, high))

    def own_action(
        self, env_action: Any, mask: jax.Array, active_rows: jax.Array | None = None
    ) -> Any:
        """Convert the environment's actions to actions as drawn, the inverse of `env_action`.

        Args:
            env_action: of all slots, `[E, A, ...]`.
            mask: `[E, M, W]`, as from `action_mask`.
            active_rows: the wanted ones; None for all slots of the policy group.

        Returns:
            `[E, M, ...]`: choices -1 where they are illegal, numbers as `NumbersDistribution` keeps
            them.
        """
        action = self.narrow(take(self.own(env_action), active_rows))
        if self.layout.is_choice:
            return _legal_or_none(action, mask)
        if not self.layout.is_numbers:
            legal = self.split_mask(mask)
            choices = [_legal_or_none(action.choices[..., i], own) for i, own in enumerate(legal)]
            action = action.replace(choices=jnp.stack(choices, axis=-1) if choices else None)
        low, high = self._bounds_of(active_rows)
        exists = mask[..., sum(self.counts) :]
        return self._with_numbers(
            action,
            lambda numbers, own: jnp.where(exists, own.unbounded(unscale(numbers, low, high)), 0.0),
        )

    def split_mask(self, mask: jax.Array) -> list[jax.Array]:
        """Cut the options of each choice out of masks `[..., W]`, or out of logits."""
        starts = np.cumsum([0, *self.counts]).tolist()
        return [mask[..., start:end] for start, end in itertools.pairwise(starts)]

    def _bounds_of(self, active_rows: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        low, high = map(jnp.asarray, self.bounds)
        return (low, high) if active_rows is None else (low[active_rows], high[active_rows])


def _legal_or_none(action: jax.Array, mask: jax.Array) -> jax.Array:
    """Replace illegal options `[...]` by -1, by a mask `[..., options]`."""
    legal = (action[..., None] == jnp.arange(mask.shape[-1])) & mask
    return jnp.where(legal.any(-1), action, -1).astype(jnp.int32)


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
    continuous: str | None = None,
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
        continuous: the distribution of numbers, a key of `NUMBERS`; None for `DEFAULT_NUMBERS`, or
            for `UNBOUNDED_NUMBERS` where one of them lacks a bound.

    Raises:
        ValueError: For a distribution between bounds where there are none, or extra inputs beside
            planes.
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
    layout = env.action_layout(env_params)
    own = [layout.factors[slot] for slot in slots]
    # `joint_features` takes a batch of environments, here of one.
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), obs)
    return AgentInterface(
        slots=slots,
        feature_shape=feature_shape,
        layout=layout,
        counts=widest_counts(factors.counts for factors in own),
        num_numbers=max(factors.low.size for factors in own),
        continuous=_choose_numbers(env, layout, slots, continuous),
        prev_action=prev_action,
        prev_reward=prev_reward,
        agent_id=agent_id,
        joint_width=jax.eval_shape(joint_features, batch).shape[-1] if central_critic else 0,
    )


def _choose_numbers(
    env: MultiAgentEnv, layout: ActionLayout, slots: Sequence[int], continuous: str | None
) -> str:
    """Return the distribution that is asked for, or that suits the bounds of all slots."""
    for slot in slots:
        _, *bounds = layout.factors[slot]
        if has_range(*bounds).all():
            continue
        if continuous not in (None, UNBOUNDED_NUMBERS):
            low, high = (bound.tolist() for bound in bounds)
            raise ValueError(
                f"continuous={continuous!r} needs bounds, but the action space of agent "
                f"{env.agents[slot]!r} in {env.name!r} has low {low} and high {high}; valid: "
                f"{UNBOUNDED_NUMBERS!r}, or finite bounds in the environment"
            )
        return UNBOUNDED_NUMBERS
    return continuous or DEFAULT_NUMBERS
