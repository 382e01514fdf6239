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
      become numbers from 0 to 1; anything else that Gymnasium can flatten becomes a vector. The
      `action_mask` in a dictionary is not part of it. Where agents differ in the number of axes,
      all see vectors.
    * An action is a Discrete, counted from 0, or a Box with finite bounds, as a vector.
    """

    agent: str
    observation: Box
    action: Space
    own_observation: Any  # Gymnasium's space, without the mask
    own_action: Any  # Gymnasium's space
    masked: bool  # observations are dictionaries with a mask in them

    @property
    def num_actions(self) -> int:
        """Count the actions, `N`."""
        return self.action.size if isinstance(self.action, Box) else self.action.n

    def features(self, seen: Any) -> np.ndarray:
        """Write an observation as float32 of the shape of `self.observation`."""
        space = self.own_observation
        seen = _without_mask(seen) if self.masked else seen
        if not _is_box(space):
            return _spaces().flatten(space, seen).astype(np.float32)
        if np.shape(seen) != space.shape:
            raise ValueError(
                f"agent {self.agent!r} observes an array of shape {np.shape(seen)}, but its "
                f"observation space is {space}"
            )
        values = np.asarray(seen, np.float32).reshape(self.observation.shape)
        return values / np.float32(255) if _is_image(space) else values

    def legal(self, seen: Any, info: Mapping[str, Any] | None) -> np.ndarray:
        """Tell which of the agent's own actions are legal, `[N]` bool; without a mask all."""
        mask = seen[MASK] if self.masked else (info or {}).get(MASK)
        if mask is None or isinstance(self.action, Box):
            return np.ones(self.num_actions, bool)
        mask = np.asarray(mask, bool)
        if mask.shape != (self.num_actions,):
            raise ValueError(
                f"agent {self.agent!r} has an {MASK} of shape {mask.shape}, but its action space "
                f"is {self.own_action}"
            )
        return mask

    def own(self, action: np.ndarray) -> Any:
        """Turn an action, a number or `[N]` float, into what the environment takes."""
        if isinstance(self.action, Discrete):
            return int(action) + int(self.own_action.start)
        space = self.own_action
        values = action[: self.action.size].reshape(space.shape).astype(space.dtype)
        return np.clip(values, space.low, space.high)


def read_spaces(env: Any, flatten: bool = False) -> tuple[AgentSpaces, ...]:
    """Read the spaces of all possible agents, in their order.

    Args:
        env: a PettingZoo environment.
        flatten: write all observations as vectors.

    Raises:
        ValueError: spaces that cannot be written as arrays.
    """
    own = {agent: env.observation_space(agent) for agent in env.possible_agents}
    inner = {agent: _inner(space) for agent, space in own.items()}
    ranks = {len(space.shape) if _is_box(space) else 1 for space in inner.values()}
    actions = {agent: env.action_space(agent) for agent in own}
    return tuple(
        AgentSpaces(
            agent,
            observation=_observation_box(agent, inner[agent], flat=flatten or len(ranks) > 1),
            action=_action_space(agent, actions[agent]),
            own_observation=inner[agent],
            own_action=actions[agent],
            masked=_has_mask(own[agent]),
        )
        for agent in own
    )


def _observation_box(agent: str, space: Any, flat: bool) -> Box:
    if not _is_box(space):
        given, space = space, _spaces().flatten_space(space)
        if not _is_box(space):
            raise ValueError(f"agent {agent!r}: the observation space {given} has no fixed size")
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
    return isinstance(space, _spaces().Dict) and MASK in space.spaces


def _inner(space: Any) -> Any:
    """Remove the mask from an observation space."""
    if not _has_mask(space):
        return space
    rest = _without_mask(space.spaces)
    return _spaces().Dict(rest) if isinstance(rest, dict) else rest


def _without_mask(parts: Mapping[str, Any]) -> Any:
    """Remove the mask from a dictionary; an `observation` that alone is left stands by itself."""
    rest = {key: part for key, part in parts.items() if key != MASK}
    return rest[OBSERVATION] if set(rest) == {OBSERVATION} else rest


def _is_box(space: Any) -> bool:
    return isinstance(space, _spaces().Box)


def _is_image(space: Any) -> bool:
    if not _is_box(space) or space.dtype != np.uint8 or len(space.shape) < 2:
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


def _spaces() -> Any:
    return import_extra("gymnasium.spaces", "pettingzoo")
