"""Shared rewards: a wrapper in which the agents of a group share their rewards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.observations import Part
from jaxmarl_envs.registry import make
from jaxmarl_envs.spaces import Box, Space
from jaxmarl_envs.wrappers.wrapper import Wrapper

REWARDS = ("sum", "mean")
OWN_REWARD = "own_reward"


def grouped(
    env: str,
    groups: Mapping[str, Sequence[str]],
    reward: str = "sum",
    env_kwargs: Mapping[str, Any] | None = None,
) -> "Grouped":
    """Make an environment by name and put `Grouped` around it.

    Args:
        env: a registered name.
        groups: the names of each group's agents.
        reward: "sum" or "mean".
        env_kwargs: keyword arguments for `make(env, ...)`.
    """
    return Grouped(make(env, **(env_kwargs or {}))[0], groups, reward)


@struct.dataclass
class GroupedState:
    """The wrapped environment's state, and who lives in it."""

    inner: Any
    alive: jax.Array  # [A] bool


class Grouped(Wrapper[GroupedState]):
    r"""A wrapper in which the agents of a group share their rewards.

    With `r` the wrapped environment's rewards, `L` the slots that held an agent before the step and
    `G(i)` the group of agent `i`, which is `i` alone for an agent outside every group,

    .. math:: r'_i = \sum_{j \in G(i) \cap L} r_j \text{ ("sum")}, \qquad
              r'_i = \frac{1}{|G(i) \cap L|} \sum_{j \in G(i) \cap L} r_j \text{ ("mean")}

    for `i` in `L`, and 0 for all others. So the living alone earn and are paid: nobody is paid the
    share of a dead or unborn member. Under "sum" that share does not exist, because everyone is
    paid the whole; under "mean" it goes to the living members in equal parts, so a group is paid
    exactly what it earned. A member that has died takes no part in what its group earns later.

    All else is the wrapped environment's own: agents, spaces, parameters, horizon, lives, scripted
    policies, the final observation and metrics. Metric `own_reward` `[A]` is `r`, what each agent
    earned itself.

    Args:
        env: the environment to wrap.
        groups: the names of each group's agents; a group has at least one, and nobody is in two.
        reward: "sum" or "mean".

    Raises:
        ValueError: an unknown agent or reward, an empty group, an agent that is named twice, no
            group at all, or an environment that has a metric `own_reward` already.
    """

    def __init__(
        self, env: MultiAgentEnv, groups: Mapping[str, Sequence[str]], reward: str = "sum"
    ) -> None:
        if reward not in REWARDS:
            raise ValueError(f"reward={reward!r}: valid choices are {', '.join(REWARDS)}")
        super().__init__(env)
        self.reward = reward
        self.groups = check_groups(env, groups)
        self.name, self.agents = f"{env.name}_grouped", env.agents
        if env.made_as is not None:
            name, kwargs = env.made_as
            options = {"groups": self.groups, "reward": reward, "env_kwargs": kwargs}
            self.made_as = ("grouped", {"env": name, **options})
        self._together = np.eye(env.num_agents, dtype=bool)  # [A, A]: i and j earn together
        for members in self.groups.values():
            slots = [env.agent_index(agent) for agent in members]
            self._together[np.ix_(slots, slots)] = True

    @property
    def max_actors(self) -> int:
        """Bound who can act at one step as the wrapped environment does."""
        return self.env.max_actors

    @property
    def baselines(self) -> Mapping[str, Callable[..., Any]]:
        """Return the wrapped environment's scripted policies, which see its state."""

        def unwrap(script: Callable[..., Any]) -> Callable[..., Any]:
            return lambda state, *args: script(state.inner, *args)

        return {name: unwrap(script) for name, script in self.env.baselines.items()}

    def observation_space(self, agent: str, params: Any) -> Box:
        """Return the agent's observation space in the wrapped environment."""
        return self.env.observation_space(agent, params)

    def observation_parts(self, agent: str, params: Any) -> tuple[Part, ...]:
        """Return how the agent's features are made in the wrapped environment."""
        return self.env.observation_parts(agent, params)

    def own_action(self, agent: str, action: Any) -> Any:
        """Turn an action into what the wrapped environment itself takes."""
        return self.env.own_action(agent, action)

    def action_space(self, agent: str, params: Any) -> Space:
        """Return the agent's action space in the wrapped environment."""
        return self.env.action_space(agent, params)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Observation, GroupedState]:
        """Begin an episode of the wrapped environment."""
        obs, inner = self.env.reset_env(key, params)
        return obs, GroupedState(inner, obs.alive)

    def step_env(
        self, key: jax.Array, state: GroupedState, action: jax.Array, params: Any
    ) -> StepResult[GroupedState]:
        """Step the wrapped environment and share out its rewards."""
        obs, inner, own, terminated, truncated, info = self.env.step_env(
            key, state.inner, action, params
        )
        metrics = info.get("metrics", {})
        if OWN_REWARD in metrics:
            raise ValueError(
                f"environment {self.env.name!r} reports a metric {OWN_REWARD!r} already (is it "
                f"grouped?), its metrics are {', '.join(metrics)}"
            )
        info = {**info, "metrics": {**metrics, OWN_REWARD: own}}
        reward = self._share(own, state.alive)
        return obs, GroupedState(inner, obs.alive), reward, terminated, truncated, info

    @property
    def action_names(self) -> Sequence[str] | None:
        """Return the wrapped environment's own names."""
        return self.env.action_names

    def render(
        self, state: GroupedState, params: Any = None, last_action: Any = None
    ) -> str | None:
        """Draw what the wrapped environment draws."""
        return self.env.render(state.inner, params, last_action)

    def sign(self, agent: str) -> str:
        """Return the wrapped environment's sign."""
        return self.env.sign(agent)

    def _share(self, own: jax.Array, alive: jax.Array) -> jax.Array:
        """Compute what everyone is paid, `[A]`, from rewards `own [A]` and `alive [A]` bool."""
        members = self._together & alive
        paid = jnp.where(members, own, 0.0).sum(axis=1)
        if self.reward == "mean":
            paid = paid / jnp.maximum(members.sum(axis=1), 1)
        return jnp.where(alive, paid, 0.0)


def check_groups(
    env: MultiAgentEnv, groups: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return groups in their stored form.

    Raises:
        ValueError: For an unknown agent, an empty group, an agent that is named twice, or no group.
    """
    if not groups:
        raise ValueError(
            f"groups={groups!r}: name at least one group of the agents {', '.join(env.agents)}"
        )
    group_of: dict[str, str] = {}
    for group, members in groups.items():
        if isinstance(members, str) or not members:
            raise ValueError(
                f"group {group!r} is {members!r}: give a list of at least one of the agents "
                f"{', '.join(env.agents)}"
            )
        for agent in members:
            if agent not in env.agents:
                raise ValueError(
                    f"unknown agent {agent!r} in group {group!r}: "
                    f"the agents are {', '.join(env.agents)}"
                )
            if agent in group_of:
                raise ValueError(
                    f"agent {agent!r} is in group {group_of[agent]!r} and again in {group!r}: "
                    "everyone is in one group at most"
                )
            group_of[agent] = group
    return {group: tuple(members) for group, members in groups.items()}
