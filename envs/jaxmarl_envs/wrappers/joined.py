"""Joint agents: a wrapper that merges each group of agents into one agent."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.registry import make
from jaxmarl_envs.spaces import MAX_CHOICES, Box, Discrete, Space
from jaxmarl_envs.wrappers.groups import check_groups
from jaxmarl_envs.wrappers.side_by_side import SideBySide, flat, product
from jaxmarl_envs.wrappers.wrapper import Wrapper


def joined(
    env: str,
    groups: Mapping[str, Sequence[str]],
    env_kwargs: Mapping[str, Any] | None = None,
    joint: bool = True,
) -> "Joined":
    """Make an environment by name and put `Joined` around it.

    Args:
        env: a registered name.
        groups: the names of each group's agents.
        env_kwargs: keyword arguments for `make(env, ...)`.
        joint: as `Joined` takes it.
    """
    return Joined(make(env, **(env_kwargs or {}))[0], groups, joint)


@struct.dataclass
class JoinedState:
    """The wrapped environment's state, and what its own agents see."""

    inner: Any
    seen: Observation


class Joined(Wrapper[JoinedState]):
    """A wrapper that merges each group of agents into one agent, which acts for all of them.

    Each group has a slot with the group's name, in place of its first member:

    * It observes its members' observations, flattened to their own sizes and concatenated, and for
      each member whether it lives and whether it acts.
    * If every agent has one choice, an action is a combination of the members' actions, in the
      order of `numpy.ndindex` over their numbers of options; members that do not act have 0. So the
      policy learns the joint distribution. With `joint=False` the action is a `MultiDiscrete` of
      the members' choices: one distribution for each member, without a limit on combinations.
    * In all other environments the members' factors are concatenated: to a `Box` if there are only
      numbers, to a `MultiDiscrete` if there are only choices, or to a `Tuple` of the members' own
      spaces. For members that do not act, only option 0 of every choice is legal, and any numbers.
    * It lives while a member lives, acts when a member acts, and receives the sum of its members'
      rewards. Its life is truncated if a member's life was at its last step, else terminated.

    Agents in no group keep their observations, flattened, and actions. Metrics are summed over
    members. Scripted policies of the wrapped environment act for every member.

    Args:
        env: the environment to wrap.
        groups: the names of each group's agents; a group has at least one, and nobody is in two.
        joint: whether a group's action is a single choice among all combinations.

    Raises:
        ValueError: an unknown agent, an empty group, an agent that is named twice, no group at all,
            a group that is called as an agent outside it, or `joint=False` where it has no effect.
    """

    def __init__(
        self, env: MultiAgentEnv, groups: Mapping[str, Sequence[str]], joint: bool = True
    ) -> None:
        super().__init__(env)
        self.groups = check_groups(env, groups)
        self.joint = joint
        self._check_joint()
        group_of = {agent: group for group, members in self.groups.items() for agent in members}
        alone = [agent for agent in env.agents if agent not in group_of]
        for group in self.groups:
            if group in alone:
                raise ValueError(
                    f"group {group!r} is called as an agent that is not in it; "
                    f"agents in no group are {', '.join(alone)}"
                )
        self.name = f"{env.name}_joined"
        self.agents = tuple(dict.fromkeys(group_of.get(agent, agent) for agent in env.agents))
        # Of every slot, the slots of its members in the wrapped environment.
        self._members = tuple(
            tuple(env.agent_index(agent) for agent in self.groups.get(name, (name,)))
            for name in self.agents
        )
        self._is_member = np.zeros((len(self.agents), env.num_agents), bool)
        for slot, members in enumerate(self._members):
            self._is_member[slot, list(members)] = True
        if env.made_as is not None:
            name, kwargs = env.made_as
            options = {"env": name, "groups": self.groups, "env_kwargs": kwargs}
            self.made_as = ("joined", options if joint else {**options, "joint": False})

    def _check_joint(self) -> None:
        """Check that the option is a bool, and that False has an effect."""
        if not isinstance(self.joint, bool):
            raise ValueError(f"joint={self.joint!r}: joint must be True or False")
        if self.joint:
            return
        if not self.env.action_layout(self.env.default_params).is_choice:
            raise ValueError(
                f"joint=False has no effect: not every agent of {self.env.name!r} has one choice "
                "alone, so that actions are side by side anyway; leave it out"
            )
        if all(len(members) == 1 for members in self.groups.values()):
            raise ValueError(
                "joint=False has no effect: no group has two members; leave it out, or join more"
            )

    @property
    def max_actors(self) -> int:
        """Bound who can act at one step, as the wrapped environment does."""
        return min(self.env.max_actors, self.num_agents)

    @property
    def baselines(self) -> Mapping[str, Callable[..., Any]]:
        """Return the wrapped environment's scripted policies, which see its state."""

        def join(script: Callable[..., Any]) -> Callable[..., Any]:
            def decide(state: JoinedState, obs: Observation, params: Any, key: jax.Array) -> Any:
                del obs  # of the groups
                own = script(state.inner, state.seen, params, key)
                return self._join_actions(own, state.seen.agent_mask, params)

            return decide

        return {name: join(script) for name, script in self.env.baselines.items()}

    def observation_space(self, agent: str, params: Any) -> Box:
        """Return the space of the members' observations, and for each whether it lives and acts."""
        members = self._members[self.agent_index(agent)]
        spaces = [self.env.observation_space(self.env.agents[i], params) for i in members]
        flags = [Box(0.0, 1.0, (2 * len(members),))] if agent in self.groups else []
        return flat([*spaces, *flags])

    def action_space(self, agent: str, params: Any) -> Space:
        """Return the space of the members' actions: of combinations, or side by side.

        Raises:
            ValueError: If there are too many combinations.
        """
        slot = self.agent_index(agent)
        if not self._combines(params):
            return product([self._own_space(i, params) for i in self._members[slot]])
        size = math.prod(self._counts(slot, params))
        if size > MAX_CHOICES:
            raise ValueError(
                f"group {agent!r} has {size:,} combinations of actions, more than the "
                f"{MAX_CHOICES:,} that can be; join fewer agents, or give joint=False, with which "
                "every member has a choice of its own"
            )
        return Discrete(size)

    def own_action(self, agent: str, action: Any) -> Any:
        """Turn a group's action into its members' own actions by name, as they take them.

        An agent in no group gets its own action.
        """
        params = self.default_params
        joint = self.action_layout(params).from_own({agent: action})
        parts = self._part_actions(jax.tree.map(jnp.asarray, joint), params)
        layout, own = self.env.action_layout(params), {}
        for slot in self._members[self.agent_index(agent)]:
            name = self.env.agents[slot]
            own[name] = self.env.own_action(name, layout.own(parts, slot))
        return own if agent in self.groups else own[agent]

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Observation, JoinedState]:
        """Begin an episode of the wrapped environment."""
        seen, inner = self.env.reset_env(key, params)
        return self._join(seen, params), JoinedState(inner, seen)

    def step_env(
        self, key: jax.Array, state: JoinedState, action: jax.Array, params: Any
    ) -> StepResult[JoinedState]:
        """Let every member do its part; `action` is of the groups."""
        before = state.seen.alive
        own = self._part_actions(action, params)
        seen, inner, reward, terminated, truncated, info = self.env.step_env(
            key, state.inner, own, params
        )
        info = dict(info)
        if "final_observation" in info:
            info["final_observation"] = self._join(info["final_observation"], params)
        if "metrics" in info:
            info["metrics"] = {name: self._add(x) for name, x in info["metrics"].items()}
        ended = self._any(before) & ~self._any(seen.alive)
        # A member whose value continues makes the group's continue, as far as it is known.
        cut = ended & self._any(truncated & ~terminated)
        obs = self._join(seen, params)
        return obs, JoinedState(inner, seen), self._add(reward), ended & ~cut, cut, info

    def render(self, state: JoinedState, params: Any = None, last_action: Any = None) -> str | None:
        """Draw what the wrapped environment draws."""
        params = self.default_params if params is None else params
        own = None
        if last_action is not None:
            own = self._part_actions(jax.tree.map(jnp.asarray, last_action), params)
        return self.env.render(state.inner, params, own)

    def _own_space(self, member: int, params: Any) -> Any:
        return self.env.action_spaces(params)[self.env.agents[member]]

    def _combines(self, params: Any) -> bool:
        """Return whether an action is a combination of what the members choose."""
        return self.joint and self.env.action_layout(params).is_choice

    def _side_by_side(self, params: Any) -> SideBySide:
        grouped = np.array([name in self.groups for name in self.agents])
        layouts = self.env.action_layout(params), self.action_layout(params)
        return SideBySide(*layouts, self._members, grouped)

    def _counts(self, slot: int, params: Any) -> tuple[int, ...]:
        return tuple(self._own_space(i, params).n for i in self._members[slot])

    def _any(self, flags: jax.Array) -> jax.Array:
        """Tell for every slot whether it is so of a member."""
        return jnp.any(self._is_member & flags, axis=1)

    def _add(self, x: jax.Array) -> jax.Array:
        """Add up `x [A]` over the members of every slot."""
        return jnp.where(self._is_member, x, 0.0).sum(axis=1)

    def _join(self, seen: Observation, params: Any) -> Observation:
        """Make what the groups see of what the agents do."""
        rows = [self._row(slot, seen, params) for slot in range(self.num_agents)]
        width = max(row.size for row in rows)
        return Observation(
            features=jnp.stack([jnp.pad(row, (0, width - row.size)) for row in rows]),
            action_mask=self._masks(seen, params),
            alive=self._any(seen.alive),
            agent_mask=self._any(seen.agent_mask),
            state=seen.state,
        )

    def _row(self, slot: int, seen: Observation, params: Any) -> jax.Array:
        members = self._members[slot]
        parts = []
        for i in members:
            with jax.ensure_compile_time_eval():
                shape = self.env.observation_space(self.env.agents[i], params).shape
            parts.append(seen.features[(i, *map(slice, shape))].ravel())
        if self.agents[slot] in self.groups:
            flags = jnp.stack([x[i] for i in members for x in (seen.alive, seen.agent_mask)])
            parts.append(flags.astype(jnp.float32))
        return jnp.concatenate(parts)

    def _masks(self, seen: Observation, params: Any) -> jax.Array:
        """Return what is legal for every slot, `[A, W]`."""
        if not self._combines(params):
            return self._side_by_side(params).mask(seen.action_mask, seen.agent_mask)
        masks = [self._mask(slot, seen, params) for slot in range(self.num_agents)]
        num_actions = max(mask.size for mask in masks)
        return jnp.stack([jnp.pad(x, (0, num_actions - x.size)) for x in masks])

    def _mask(self, slot: int, seen: Observation, params: Any) -> jax.Array:
        """Return which combinations are legal: of members that do not act, action 0 alone."""
        joint = jnp.ones(1, bool)
        for i, count in zip(self._members[slot], self._counts(slot, params), strict=True):
            own = seen.action_mask[i, :count]
            if self.agents[slot] in self.groups:
                own = jnp.where(seen.agent_mask[i], own, jnp.arange(count) == 0)
            joint = (joint[:, None] & own).ravel()
        return joint

    def _part_actions(self, action: Any, params: Any) -> Any:
        """Make the members' own actions of those of the groups."""
        if not self._combines(params):
            return self._side_by_side(params).part(action)
        own: dict[int, jax.Array] = {}
        for slot, members in enumerate(self._members):
            parts = jnp.unravel_index(action[slot], self._counts(slot, params))
            own |= dict(zip(members, parts, strict=True))
        return jnp.stack([own[i] for i in range(self.env.num_agents)])

    def _join_actions(self, own: Any, acts: jax.Array, params: Any) -> Any:
        """Make the groups' actions of the members' own."""
        if not self._combines(params):
            return self._side_by_side(params).join(own, acts)
        own = jnp.where(acts, own, 0)
        joint = [
            jnp.ravel_multi_index(
                tuple(own[i] for i in members), self._counts(slot, params), mode="clip"
            )
            for slot, members in enumerate(self._members)
        ]
        return jnp.stack(joint)
