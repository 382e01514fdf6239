"""One agent of an environment in plain Python: its observations and actions as arrays, and back."""

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.gymnasium_actions import Actions, join_masks, read_actions
from jaxmarl_envs.spaces import Box, Space

MASK = "action_mask"
# What the rest of a dictionary with a mask is called by PettingZoo, and by RLlib.
OBSERVATION = {"observation", "observations"}


@dataclass(frozen=True)
class AgentSpaces:
    """Encoding of an agent's own observations and actions as arrays.

    * An observation is a Box as it is; bytes of an image (uint8 from 0 to 255, at least two axes)
      become numbers from 0 to 1; anything else that Gymnasium can flatten becomes a vector. The
      `action_mask` in a dictionary is not part of it. Where agents differ in the number of axes,
      all see vectors.
    * An action is a Discrete, counted from 0, or a Box with finite bounds, as a vector. Several at
      once (MultiDiscrete, MultiBinary, Tuple, Dict) are one: the combinations of finite choices are
      counted in the order of `numpy.ndindex`, Boxes are put side by side.
    """

    agent: str
    observation: Box
    action: Space
    own_observation: Any  # Gymnasium's space, without the mask
    own_action: Any  # Gymnasium's space
    masked: bool  # observations are dictionaries with a mask in them

    @functools.cached_property
    def num_actions(self) -> int:
        """Count the actions, `N`."""
        return self.action.size if isinstance(self.action, Box) else self.action.n

    @functools.cached_property
    def _is_box(self) -> bool:
        return _is_box(self.own_observation)

    @functools.cached_property
    def _is_image(self) -> bool:
        return _is_image(self.own_observation)

    @functools.cached_property
    def _all_legal(self) -> np.ndarray:
        return np.ones(self.num_actions, bool)

    def features(self, seen: Any) -> np.ndarray:
        """Write an observation as float32 of the shape of `self.observation`.

        Raises:
            ValueError: If it is not of the agent's own observation space.
        """
        space = self.own_observation
        if self.masked:
            if not isinstance(seen, Mapping) or MASK not in seen:
                raise self._wrong(seen, f"expected a dictionary with {MASK!r}")
            seen = _without_mask(seen)
        if not self._is_box:
            return self._flat(space, seen)
        if np.shape(seen) != space.shape:
            raise self._wrong(
                seen, f"an array of shape {np.shape(seen)}, but its observation space is {space}"
            )
        values = np.asarray(seen, np.float32).reshape(self.observation.shape)
        return values / np.float32(255) if self._is_image else values

    def _flat(self, space: Any, seen: Any) -> np.ndarray:
        try:
            flat = np.asarray(_spaces().flatten(space, seen), np.float32)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise self._wrong(seen, f"its observation space is {space} ({reason})") from error
        if flat.shape != self.observation.shape:
            raise self._wrong(seen, f"but its observation space is {space}")
        return flat

    def _wrong(self, seen: Any, why: str) -> ValueError:
        text = " ".join(repr(seen).split())
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        return ValueError(f"agent {self.agent!r} observes {shown}: {why}")

    @functools.cached_property
    def _actions(self) -> Actions:
        return read_actions(self.own_action)

    def legal(self, seen: Any, info: Mapping[str, Any] | None) -> np.ndarray:
        """Return which of the agent's own actions are legal, `[N]` bool; without a mask all.

        Of several choices at once a mask may be of the combinations, or of each, one after another.
        """
        source = seen if self.masked else info
        mask = source.get(MASK) if isinstance(source, Mapping) else None
        if mask is None or isinstance(self.action, Box):
            return self._all_legal
        mask = np.asarray(mask, bool)
        counts = self._actions.counts
        if len(counts) > 1 and mask.shape == (sum(counts),):
            mask = join_masks(np.split(mask, np.cumsum(counts)[:-1]))
        if mask.shape != (self.num_actions,):
            raise ValueError(
                f"agent {self.agent!r} has an {MASK} of shape {mask.shape}, but its action space "
                f"is {self.own_action}"
            )
        return mask

    def own(self, action: np.ndarray) -> Any:
        """Turn an action, a number or `[N]` float, into what the environment takes."""
        return self._actions.own(action)


def read_spaces(
    own: Mapping[Any, tuple[Any, Any]], flatten: bool = False
) -> tuple[AgentSpaces, ...]:
    """Read the spaces of all agents, in their order.

    Args:
        own: by agent, its observation space and its action space.
        flatten: write all observations as vectors.

    Raises:
        ValueError: If spaces cannot be written as arrays.
    """
    whole = {agent: as_gymnasium(agent, pair[0]) for agent, pair in own.items()}
    inner = {agent: _inner(space) for agent, space in whole.items()}
    ranks = {len(space.shape) if _is_box(space) else 1 for space in inner.values()}
    actions = {agent: as_gymnasium(agent, pair[1]) for agent, pair in own.items()}
    return tuple(
        AgentSpaces(
            str(agent),
            observation=_observation_box(agent, inner[agent], flat=flatten or len(ranks) > 1),
            action=_action_space(agent, actions[agent]),
            own_observation=inner[agent],
            own_action=actions[agent],
            masked=_has_mask(whole[agent]),
        )
        for agent in own
    )


def as_gymnasium(agent: Hashable, space: Any) -> Any:
    """Turn a space of OpenAI's Gym, whose classes have the same names, into one of Gymnasium."""
    spaces = _spaces()
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__ if type(space).__module__.split(".")[0] == "gym" else None
    if kind == "Box":
        return spaces.Box(space.low, space.high, space.shape, space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Tuple":
        return spaces.Tuple([as_gymnasium(agent, part) for part in space.spaces])
    if kind == "Dict":
        parts = {key: as_gymnasium(agent, part) for key, part in space.spaces.items()}
        return spaces.Dict(parts)
    raise ValueError(f"agent {agent!r}: {space!r} is no space of Gymnasium")


def _observation_box(agent: Hashable, space: Any, flat: bool) -> Box:
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


def _action_space(agent: Hashable, space: Any) -> Space:
    try:
        return read_actions(space).space
    except ValueError as error:
        raise ValueError(f"agent {agent!r} has the action space {space}: {error}") from error


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
    return next(iter(rest.values())) if len(rest) == 1 and set(rest) <= OBSERVATION else rest


def _is_box(space: Any) -> bool:
    return isinstance(space, _spaces().Box)


def _is_image(space: Any) -> bool:
    if not _is_box(space) or space.dtype != np.uint8 or len(space.shape) < 2:
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


@functools.cache
def _spaces() -> Any:
    return import_extra("gymnasium.spaces", "gymnasium")
