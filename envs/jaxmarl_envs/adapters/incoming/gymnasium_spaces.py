"""One agent of an environment in plain Python: its observations and actions as arrays, and back."""

import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.gymnasium_actions import Actions, read_actions
from jaxmarl_envs.adapters.incoming.gymnasium_masks import Legal, legal_options
from jaxmarl_envs.adapters.incoming.returned import shown
from jaxmarl_envs.observations import Part, is_image
from jaxmarl_envs.spaces import Box, Space, from_uniform

MASK = "action_mask"
# What the rest of a dictionary with a mask is called by PettingZoo, and by RLlib.
OBSERVATION = {"observation", "observations"}
# A one-hot vector for more categories is some 40 MB for each observation.
_MOST_CATEGORIES = 10_000_000


@dataclass(frozen=True)
class AgentSpaces:
    """Encoding of an agent's own observations and actions as arrays.

    * An observation is a Box as it is; anything else that Gymnasium can flatten becomes a vector.
      Bytes of an image (uint8 from 0 to 255, at least two axes) become numbers from 0 to 1, also
      within a Dict or Tuple. The `action_mask` in a dictionary is not part of it. Where agents
      differ in the number of axes, all see vectors.
    * An action is a product of choices, counted from 0, and numbers, in the order of its space:
      Discrete, MultiDiscrete, MultiBinary, Box, and Tuple and Dict of these.
      Each choice has its own distribution; with `joint` all choices of an agent are one, over their
      combinations.
    """

    agent: str
    observation: Box
    action: Space
    own_observation: Any  # Gymnasium's space, without the mask
    own_action: Any  # Gymnasium's space
    masked: bool  # observations are dictionaries with a mask in them
    joint: bool | None = None  # what the user said of masks, see `gymnasium_masks`
    path: tuple[str, ...] = ()  # to the observation in a dictionary with a mask

    @functools.cached_property
    def _is_box(self) -> bool:
        return _is_box(self.own_observation)

    @functools.cached_property
    def _own_shape(self) -> tuple[int, ...] | None:
        return self.own_observation.shape

    @functools.cached_property
    def _scale(self) -> np.ndarray | None:
        return _scale(self.own_observation)

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
        try:
            found = np.asarray(seen)
            if found.dtype.kind not in "fiubO":
                raise TypeError(f"its dtype is {found.dtype}")
            values = found.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise self._wrong(
                seen, f"no array of numbers, but its observation space is {space}"
            ) from error
        if found.shape != self._own_shape:
            raise self._wrong(
                seen, f"an array of shape {found.shape}, but its observation space is {space}"
            )
        if self._scale is not None:
            values = values.ravel() / self._scale
        return values.reshape(self.observation.shape)

    @property
    def observation_parts(self) -> tuple[Part, ...]:
        """Describe what `features` does, part by part."""
        return tuple(_parts(self.own_observation, self.path))

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether a Box is observed as it is, and the action is a Discrete."""
        return self._is_box and self._scale is None and self.first_option is not None

    @functools.cached_property
    def first_option(self) -> int | None:
        """What the environment calls the first option of a Discrete; None for other spaces."""
        is_discrete = isinstance(self.own_action, _spaces().Discrete)
        return int(self.own_action.start) if is_discrete else None

    @functools.cached_property
    def num_options(self) -> int | None:
        """Options of a Discrete; None for other spaces."""
        return None if self.first_option is None else int(self.own_action.n)

    @functools.cached_property
    def _in_range(self) -> Callable[[Any], bool] | None:
        return _range_check(self.own_observation)

    def _flat(self, space: Any, seen: Any) -> np.ndarray:
        flat = None
        try:
            if self._in_range is None or self._in_range(seen):
                flat = np.asarray(_spaces().flatten(space, seen), np.float32)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise self._wrong(seen, f"its observation space is {space} ({reason})") from error
        if flat is None:
            raise self._wrong(seen, f"outside its observation space {space}")
        if flat.shape != self.observation.shape:
            raise self._wrong(seen, f"but its observation space is {space}")
        return flat if self._scale is None else flat / self._scale

    def _wrong(self, seen: Any, why: str) -> ValueError:
        return ValueError(f"agent {self.agent!r} observes {shown(seen)}: {why}")

    @functools.cached_property
    def _actions(self) -> Actions:
        return _read_actions(self.agent, self.own_action, bool(self.joint))

    def legal(self, seen: Any, info: Mapping[str, Any] | None) -> Legal | None:
        """Return which options of each choice are legal, `[options]` bool each; None for all.

        A mask in the observation comes before one in the info, as in PettingZoo. See
        `gymnasium_masks` for the forms of a mask.

        Raises:
            ValueError: If the mask does not fit the action space.
        """
        mask = _mask_in(seen) if self.masked else None
        return self._read_mask(_mask_in(info) if mask is None else mask)

    def masks_differ(self, seen: Any, info: Mapping[str, Any] | None) -> bool:
        """Return whether an observation and its info have masks that do not say the same."""
        mask, other = _mask_in(seen) if self.masked else None, _mask_in(info)
        if mask is None or other is None:
            return False
        try:
            others = self._options(self._read_mask(other))
        except ValueError:
            return True
        return not all(map(np.array_equal, self._options(self._read_mask(mask)), others))

    def _read_mask(self, mask: Any) -> Legal | None:
        if mask is None:
            return None
        try:
            return legal_options(self.own_action, self._actions, mask, self.joint)
        except ValueError as error:
            raise ValueError(
                f"agent {self.agent!r} has the {MASK} {shown(mask)}, which {error}; its action "
                f"space is {self.own_action}"
            ) from error

    def _options(self, legal: Legal | None) -> list[np.ndarray]:
        """Write out which options of each choice are legal, `[options]` bool each."""
        counts = self._actions.learned_counts
        each = zip(counts, legal or [None] * len(counts), strict=True)
        return [np.ones(count, bool) if own is None else own for count, own in each]

    def own(self, choices: np.ndarray, numbers: np.ndarray) -> Any:
        """Turn choices `[C]` and numbers `[N]` into what the environment takes."""
        return self._actions.own(choices, numbers)

    def draw(self, rng: np.random.Generator, seen: Any, info: Mapping[str, Any] | None) -> Any:
        """Draw an action that is legal uniformly, as the environment takes it."""
        actions = self._actions
        options = self._options(self.legal(seen, info))
        choices = [rng.choice(np.flatnonzero(own if own.any() else ~own)) for own in options]
        numbers = from_uniform(rng.random(actions.low.shape), actions.low, actions.high)
        return actions.own(np.array(choices, int), numbers.astype(np.float32))


def read_spaces(
    own: Mapping[Any, tuple[Any, Any]], flatten: bool = False, joint: bool | None = None
) -> tuple[AgentSpaces, ...]:
    """Read the spaces of all agents, in their order.

    Args:
        own: by agent, its observation space and its action space.
        flatten: write all observations as vectors.
        joint: learn several choices of an agent as one, over their combinations; None for no, where
            a mask that may be over combinations is an error.

    Raises:
        ValueError: If spaces cannot be written as arrays, or `joint` has no effect.
    """
    whole = {agent: as_gymnasium(agent, pair[0]) for agent, pair in own.items()}
    inner = {agent: _inner(space) for agent, space in whole.items()}
    ranks = {len(space.shape) if _is_box(space) else 1 for space in inner.values()}
    actions = {agent: as_gymnasium(agent, pair[1]) for agent, pair in own.items()}
    if joint is not None and not any(_choices_of(*pair) > 1 for pair in actions.items()):
        raise ValueError(
            f"joint={joint} has no effect: no agent has an action space with several choices"
        )
    return tuple(
        AgentSpaces(
            str(agent),
            observation=_observation_box(agent, inner[agent], flat=flatten or len(ranks) > 1),
            action=_read_actions(agent, actions[agent], bool(joint)).space,
            own_observation=inner[agent],
            own_action=actions[agent],
            masked=_has_mask(whole[agent]),
            joint=joint,
            path=_path(whole[agent]),
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
    for part in _leaves(space):
        if isinstance(part, _spaces().Text | _spaces().OneOf):
            raise ValueError(
                f"agent {agent!r}: the observation space {space} has a {type(part).__name__}, "
                "which cannot be observed; give a Box, Discrete, MultiDiscrete, MultiBinary, or a "
                "Tuple or Dict of these"
            )
        if (categories := _num_categories(part)) > _MOST_CATEGORIES:
            raise ValueError(
                f"agent {agent!r}: the observation space {space} has {categories:,} categories, "
                f"which become a one-hot vector of that size, at most {_MOST_CATEGORIES:,}; if it "
                "is a number, give a Box, and divide it so that it is small: 32-bit floats hold "
                "every whole number only up to 2^24"
            )
    if not sum(1 if part.shape is None else math.prod(part.shape) for part in _leaves(space)):
        raise ValueError(
            f"agent {agent!r}: the observation space {space} is empty; let an agent that observes "
            "nothing observe a constant, such as Box(0, 1, (1,))"
        )
    given = space
    if not _is_box(space):
        space = _spaces().flatten_space(space)
        if not _is_box(space):
            raise ValueError(
                f"agent {agent!r}: the observation space {given} has no fixed size; an observation "
                "is a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"
            )
    shape = (int(np.prod(space.shape)),) if flat or not space.shape else space.shape
    scale = _scale(given)
    with np.errstate(over="ignore"):  # the greatest number of a float64 is infinite here
        low, high = (x.astype(np.float32).ravel() for x in (space.low, space.high))
    low, high = (x if scale is None else x / scale for x in (low, high))
    return Box(low.reshape(shape), high.reshape(shape), shape)


def _read_actions(agent: Hashable, space: Any, joint: bool) -> Actions:
    try:
        return read_actions(space, joint)
    except ValueError as error:
        raise ValueError(f"agent {agent!r} has the action space {space}: {error}") from error


def _choices_of(agent: Hashable, space: Any) -> int:
    return len(_read_actions(agent, space, joint=False).counts)


def _mask_in(source: Any) -> Any:
    # Most are dictionaries, which are told apart sooner than by the abstract class.
    return source.get(MASK) if isinstance(source, (dict, Mapping)) else None


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


def _path(space: Any) -> tuple[str, ...]:
    """Return the key of the observation that alone is left in a dictionary without its mask."""
    rest = set(space.spaces) - {MASK} if _has_mask(space) else set()
    return tuple(rest) if len(rest) == 1 and rest <= OBSERVATION else ()


def _parts(space: Any, path: tuple[Any, ...]) -> Iterator[Part]:
    """List the parts of a space in the order in which Gymnasium flattens them."""
    spaces = _spaces()
    if isinstance(space, spaces.Tuple | spaces.Dict):
        inner = space.spaces
        for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
            yield from _parts(part, (*path, key))
    elif isinstance(space, spaces.Discrete):
        yield Part(path, options=(int(space.n),), first=(int(space.start),))
    elif isinstance(space, spaces.MultiDiscrete):
        start = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape)
        options, first = (tuple(x.ravel().tolist()) for x in (space.nvec, start))
        yield Part(path, tuple(space.shape), options=options, first=first)
    else:
        yield Part(path, tuple(space.shape), divisor=255 if is_image(space) else 1)


def _leaves(space: Any) -> list[Any]:
    """List the parts of a space that have none themselves."""
    if not isinstance(space, _spaces().Tuple | _spaces().Dict):
        return [space]
    parts = space.spaces
    parts = parts.values() if isinstance(parts, Mapping) else parts
    return [leaf for part in parts for leaf in _leaves(part)]


def _num_categories(space: Any) -> int:
    """Count the options of a Discrete or MultiDiscrete, as Python's integer; 0 for others."""
    spaces = _spaces()
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return sum(np.ravel(space.nvec).tolist()) if isinstance(space, spaces.MultiDiscrete) else 0


def _range_check(space: Any) -> Callable[[Any], bool] | None:
    """Make a function that returns whether all symbols of an observation are of its space.

    What is no symbol is not looked at. None for a space without symbols: Gymnasium flattens a
    symbol of no space to that of another one.
    """
    spaces = _spaces()
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n)
        return lambda seen: bool(low <= seen < high)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        low = getattr(space, "start", 0)
        high = low + getattr(space, "nvec", 2)
        return lambda seen: bool(((low <= np.asarray(seen)) & (np.asarray(seen) < high)).all())
    parts = getattr(space, "spaces", ())
    items = parts.items() if isinstance(parts, Mapping) else enumerate(parts)
    checks = [(key, check) for key, part in items if (check := _range_check(part)) is not None]
    return (lambda seen: all(check(seen[key]) for key, check in checks)) if checks else None


def _is_box(space: Any) -> bool:
    return isinstance(space, _spaces().Box)


def _scale(space: Any) -> np.ndarray | None:
    """Return by what the flattened numbers of a space are divided, `[D]`; None for nothing."""
    leaves = _leaves(space)
    if not any(map(is_image, leaves)):
        return None
    scales = [np.full(_spaces().flatdim(x), 255 if is_image(x) else 1) for x in leaves]
    return np.concatenate(scales).astype(np.float32)


@functools.cache
def _spaces() -> Any:
    return import_extra("gymnasium.spaces", "gymnasium")
