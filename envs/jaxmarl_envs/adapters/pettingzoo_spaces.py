"""One agent of a PettingZoo environment: its observations and actions as arrays, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.spaces import Box, Discrete, Space

MASK = "action_mask"
OBSERVATION = "observation"


@dataclass(frozen=True)
class AgentSpaces:
    """How an agent's own observations and actions are written as arrays.

    * An observation is a Box as it is; bytes of an image (uint8 from 0 to 255, at least two axes)
      become numbers from 0 to 1; anything else that Gymnasium can flatten becomes a vector. Of a
      dictionary of an `observation` and an `action_mask` the observation counts.
    * An action is a Discrete, counted from 0, or a Box with finite bounds, as a vector.
    """

    agent: str
    observation: Box
    action: Space
    flat: bool  # write observations as vectors
    own_observation: Any  # Gymnasium's space
    own_action: Any  # Gymnasium's space
    masked: bool  # observations are dictionaries

    def features(self, seen: Any) -> np.ndarray:
        """An observation, of the shape of `self.observation`, float32."""
        seen = seen[OBSERVATION] if self.masked else seen
        if not _is_box(self.own_observation):
            seen = _spaces().flatten(self.own_observation, seen)
        seen = np.asarray(seen)
        own = self.own_observation.shape if _is_box(self.own_observation) else seen.shape
        if seen.shape != own or (seen.size != self.observation.size):
            raise ValueError(
                f"agent {self.agent!r} observes an array of shape {seen.shape}, "
                f"but its observation space is {self.own_observation}"
            )
        seen = seen.astype(np.float32)
        if _is_image(self.own_observation):
            seen /= 255
        return seen.reshape(self.observation.shape)

    def legal(self, seen: Any, info: Mapping[str, Any] | None) -> np.ndarray:
        """What may be played, `[N]` bool of the agent's own `N`; without a mask all."""
        mask = seen.get(MASK) if self.masked else None
        mask = (info or {}).get(MASK) if mask is None else mask
        if isinstance(self.action, Box):
            return np.ones(self.action.size, bool)
        if mask is None:
            return np.ones(self.action.n, bool)
        mask = np.asarray(mask, bool)
        if mask.shape != (self.action.n,):
            raise ValueError(
                f"agent {self.agent!r} has an {MASK} of shape {mask.shape}, but its action space "
                f"is {self.own_action}"
            )
        return mask

    def own(self, action: np.ndarray) -> Any:
        """An action as the environment takes it, from a number or `[N]`."""
        if isinstance(self.action, Discrete):
            return int(action) + int(self.own_action.start)
        space = self.own_action
        values = action[: self.action.size].reshape(space.shape).astype(space.dtype)
        return np.clip(values, space.low, space.high)


def read_spaces(env: Any) -> tuple[AgentSpaces, ...]:
    """The spaces of all possible agents, in their order.

    Raises:
        ValueError: spaces that cannot be written as arrays.
    """
    own = {agent: env.observation_space(agent) for agent in env.possible_agents}
    inner = {agent: space[OBSERVATION] if _has_mask(space) else space for agent, space in own.items()}
    ranks = {len(space.shape) if _is_box(space) else 1 for space in inner.values()}
    flat = len(ranks) > 1
    found = []
    for agent, space in inner.items():
        action = env.action_space(agent)
        found.append(
            AgentSpaces(
                agent,
                observation=_observation_box(agent, space, flat),
                action=_action_space(agent, action),
                flat=flat,
                own_observation=space,
                own_action=action,
                masked=_has_mask(own[agent]),
            )
        )
    return tuple(found)


def _observation_box(agent: str, space: Any, flat: bool) -> Box:
    if not _is_box(space):
        try:
            space = _spaces().flatten_space(space)
        except NotImplementedError:
            space = None
        if not _is_box(space):
            raise ValueError(f"agent {agent!r}: an observation space without a fixed size")
    shape = (int(np.prod(space.shape)),) if flat or not space.shape else space.shape
    if _is_image(space):
        return Box(0.0, 1.0, shape)
    with np.errstate(over="ignore"):  # the greatest number of a float64 is infinite here
        low, high = (x.astype(np.float32).reshape(shape) for x in (space.low, space.high))
    return Box(low, high, shape)


def _action_space(agent: str, space: Any) -> Space:
    spaces = _spaces()
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if not _is_box(space):
        raise ValueError(
            f"agent {agent!r} has the action space {space}; what can be played is a Discrete, or a "
            "Box with finite bounds"
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"agent {agent!r}: the action space {space} must hold floats")
    low, high = (np.ravel(x).astype(np.float32) for x in (space.low, space.high))
    if not np.isfinite([low, high]).all():
        raise ValueError(f"agent {agent!r}: the action space {space} must have finite bounds")
    return Box(low, high, low.shape)


def _has_mask(space: Any) -> bool:
    return isinstance(space, _spaces().Dict) and set(space) == {OBSERVATION, MASK}


def _is_box(space: Any) -> bool:
    return isinstance(space, _spaces().Box)


def _is_image(space: Any) -> bool:
    if not _is_box(space) or space.dtype != np.uint8 or len(space.shape) < 2:
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


def _spaces() -> Any:
    return import_extra("gymnasium.spaces", "pettingzoo")
