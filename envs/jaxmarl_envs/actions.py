"""Actions and masks of all slots as arrays: the layout that environment and trainer agree on.

An action is a product of factors. A factor is a choice of one of finitely many options, or a number
between bounds. Choices and numbers of an agent are counted in the order of its action space:
`Tuple((Discrete(3), Box(-1, 1, (2,)), MultiDiscrete([4, 4])))` has three choices, of 3, 4 and 4
options, and two numbers. Letters: `A` agent slots, `C` choices and `N` numbers of the agent that
has most of them, `W` width of a mask.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space, Tuple, from_uniform, is_known

_NOTHING = np.zeros(0, np.float32)


@struct.dataclass
class Action:
    """Actions as choices and numbers, unless all agents have one choice or all have numbers only.

    Entries that an agent does not have are 0. A part that no agent has is None.
    """

    choices: Any = None  # [..., C] int32: the chosen options, counted from 0
    numbers: Any = None  # [..., N] float32: within their bounds


class Factors(NamedTuple):
    """The factors of one agent's action space."""

    counts: tuple[int, ...]  # options of each choice
    low: Any  # [numbers] float32; an array of JAX's where it depends on parameters being traced
    high: Any  # [numbers] float32


def factors_of(space: Space) -> Factors:
    """List the factors of an action space in order."""
    if isinstance(space, Tuple):
        counts, *ends = zip(*map(factors_of, space.spaces), strict=True)
        ends = (_xp(*parts).concatenate(parts) for parts in ends)
        return Factors(tuple(count for own in counts for count in own), *ends)
    if isinstance(space, Discrete):
        return Factors((space.n,), _NOTHING, _NOTHING)
    if isinstance(space, MultiDiscrete):
        return Factors(tuple(space.nvec), _NOTHING, _NOTHING)
    ends = (_xp(end).broadcast_to(end, space.shape).ravel() for end in (space.low, space.high))
    return Factors((), *(end.astype(np.float32) for end in ends))


@dataclass(frozen=True, eq=False)
class ActionLayout:
    """Layout of the actions and masks of all slots as arrays.

    If every agent has one choice and no numbers, an action is `[A]` int32. If every agent has only
    numbers, it is `[A, N]` float32. In all other cases it is an `Action`.

    A mask is `[A, W]`: the options of every choice, one choice after the other, each as wide as for
    the agent that has most options, then the numbers. Every choice has a legal option. For a choice
    that an agent does not have, only option 0 is legal. A number is True for an agent that has it,
    and False for all others.

    Attributes:
        spaces: every agent's action space by name, in the order of the slots.
    """

    spaces: Mapping[Any, Space]

    @functools.cached_property
    def factors(self) -> tuple[Factors, ...]:
        """Return the factors of every agent, `[A]`."""
        return tuple(factors_of(space) for space in self.spaces.values())

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """Return the options of each choice, `[C]`: those of the agent that has most."""
        return widest_counts(own.counts for own in self.factors)

    @functools.cached_property
    def num_numbers(self) -> int:
        """Count the numbers of the agent that has most, `N`."""
        return max(own.low.size for own in self.factors)

    @property
    def width(self) -> int:
        """Return the width of a mask, `W`."""
        return sum(self.counts) + self.num_numbers

    @functools.cached_property
    def is_choice(self) -> bool:
        """Return whether every agent has one choice and no numbers."""
        return all(len(own.counts) == 1 and not own.low.size for own in self.factors)

    @functools.cached_property
    def is_numbers(self) -> bool:
        """Return whether no agent has a choice."""
        return not self.counts

    @functools.cached_property
    def starts(self) -> tuple[int, ...]:
        """Return where each choice's options begin in a mask, then where the numbers begin."""
        return tuple(np.cumsum([0, *self.counts]).tolist())

    @functools.cached_property
    def bounds(self) -> tuple[Any, Any]:
        """Return the lowest and highest numbers, `[A, N]` float32; 0 where an agent has none."""
        ends = [own.low for own in self.factors], [own.high for own in self.factors]
        low, high = (
            _xp(*rows).stack([_xp(*rows).pad(x, (0, self.num_numbers - x.size)) for x in rows])
            for rows in ends
        )
        return low, high

    @functools.cached_property
    def exists(self) -> np.ndarray:
        """Return the mask in which all is legal that an agent has, `[A, W]` bool."""
        mask = np.zeros((len(self.factors), self.width), bool)
        for row, own in enumerate(self.factors):
            for choice, start in enumerate(self.starts[:-1]):
                # A choice that the agent lacks has its first option.
                count = own.counts[choice] if choice < len(own.counts) else 1
                mask[row, start : start + count] = True
            mask[row, self.starts[-1] : self.starts[-1] + own.low.size] = True
        return mask

    def all_legal(self, mask: Any) -> Any:
        """Return whether every choice has a legal option, `[...]` of masks `[..., W]`.

        Where no agent has a choice, whether a slot has a number.
        """
        if self.is_numbers or self.is_choice:
            return mask.any(-1)
        legal = [mask[..., start:end].any(-1) for start, end in self._ranges]
        return functools.reduce(lambda x, y: x & y, legal)

    @property
    def _ranges(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.starts[:-1], self.starts[1:], strict=True))

    def mask(self, legal: Mapping[str, Sequence[Any]]) -> jax.Array:
        """Make a mask `[A, W]` of what is legal for agents by name.

        Args:
            legal: of an agent, which options of each of its choices are legal, `[options]` bool
                each, or None where all are. For agents that are not named everything is legal.
        """
        mask = jnp.asarray(self.exists)
        for agent, choices in legal.items():
            row = list(self.spaces).index(agent)
            for start, options in zip(self.starts[:-1], choices, strict=False):
                if options is not None:
                    options = jnp.asarray(options, bool)
                    mask = mask.at[row, start : start + options.size].set(options)
        return mask

    def zeros(self, *batch_shape: int) -> Any:
        """Make actions of zeros, with leading axes `batch_shape`."""
        shape = (*batch_shape, len(self.factors))
        choices = jnp.zeros((*shape, len(self.counts)), jnp.int32)
        return self.join(choices, jnp.zeros((*shape, self.num_numbers)))

    def join(self, choices: Any, numbers: Any) -> Any:
        """Make actions from choices `[..., A, C]` and numbers `[..., A, N]`."""
        if self.is_choice:
            return choices[..., 0]
        if self.is_numbers:
            return numbers
        return Action(choices, numbers if self.num_numbers else None)

    def split(self, action: Any) -> tuple[Any, Any]:
        """Split actions into choices `[..., A, C]` and numbers `[..., A, N]`, undoing `join`."""
        if self.is_choice:
            choices = action[..., None]
            return choices, np.zeros((*choices.shape[:-1], 0), np.float32)
        if self.is_numbers:
            return np.zeros((*action.shape[:-1], 0), np.int32), action
        if action.numbers is None:
            return action.choices, np.zeros((*action.choices.shape[:-1], 0), np.float32)
        return action.choices, action.numbers

    def pack(self, action: Any) -> Any:
        """Write actions as one array: an `Action` as `[..., A, C + N]` float32, others as is."""
        if not isinstance(action, Action):
            return action
        # Counts of options are whole numbers that a float32 holds.
        choices, numbers = self.split(action)
        xp = np if isinstance(choices, np.ndarray) else jnp
        return xp.concatenate([choices.astype(np.float32), numbers], axis=-1)

    def unpack(self, packed: Any) -> tuple[Any, Any]:
        """Split one slot's packed action into choices `[C]` int32 and numbers `[N]`."""
        if self.is_choice:
            return packed[..., None], _NOTHING
        num_choices = len(self.counts)
        return packed[..., :num_choices].astype(np.int32), packed[..., num_choices:]

    def pick(self, noise: Any, mask: Any) -> Any:
        """Turn uniform noise on [0, 1), `[..., A, W]`, into legal actions, uniformly distributed.

        Numbers are distributed as `spaces.from_uniform` says.

        Args:
            noise: NumPy's or JAX's; the result is of the same library.
            mask: `[..., A, W]` bool.
        """
        xp = jnp if isinstance(noise, jax.Array) else np
        # Among identically distributed numbers every legal option is equally likely to be greatest.
        ranked = xp.where(mask, noise, -1.0)
        if self.is_choice:
            return ranked.argmax(-1).astype(np.int32)
        choices = [ranked[..., start:end].argmax(-1) for start, end in self._ranges]
        low, high = self.bounds
        numbers = from_uniform(noise[..., self.starts[-1] :], low, high).astype(np.float32)
        if self.is_numbers:
            return numbers
        return self.join(xp.stack(choices, axis=-1).astype(np.int32), numbers)

    def own(self, action: Any, slot: int) -> Any:
        """Return one slot's action in the form of its own space, as NumPy arrays.

        Args:
            action: of all slots.
            slot: the agent's.

        Returns:
            An int for `Discrete`, `[C]` int32 for `MultiDiscrete`, an array of the shape of a
            `Box`, a tuple of these for `Tuple`.
        """
        choices, numbers = (np.asarray(part)[slot] for part in self.split(action))
        own, used = _build(list(self.spaces.values())[slot], choices, numbers, (0, 0))
        del used
        return own

    def from_own(self, own: Mapping[str, Any]) -> Any:
        """Make an action of all slots, as NumPy arrays, of agents' own ones by name.

        Zeros where an agent is not named.

        Raises:
            ValueError: If an action is not in its agent's space.
        """
        num_agents = len(self.factors)
        choices = np.zeros((num_agents, len(self.counts)), np.int32)
        numbers = np.zeros((num_agents, self.num_numbers), np.float32)
        for slot, (agent, space) in enumerate(self.spaces.items()):
            if agent in own:
                chosen, vector = take_apart(space, own[agent])
                choices[slot, : chosen.size], numbers[slot, : vector.size] = chosen, vector
        return self.join(choices, numbers)


def _xp(*values: Any) -> Any:
    return np if is_known(*values) else jnp


def widest_counts(counts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return, of each choice, the options of the agent that has most."""
    counts = list(counts)
    most = max(map(len, counts))
    return tuple(max(own[i] for own in counts if i < len(own)) for i in range(most))


def take_apart(
    space: Space, action: Any, batch_shape: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Take actions apart into choices `[..., C]` int32 and numbers `[..., N]` float32.

    Args:
        space: the agent's own.
        action: an element of it, in arrays with leading axes `batch_shape`; of a `Tuple` a sequence
            of one for each part.
        batch_shape: `...`.

    Raises:
        ValueError: If it is not of the space.
    """
    if isinstance(space, Tuple):
        if not isinstance(action, Sequence) or len(action) != len(space.spaces):
            raise _not_of(space, action)
        pairs = zip(space.spaces, action, strict=True)
        choices, numbers = zip(*(take_apart(*pair, batch_shape) for pair in pairs), strict=True)
        return np.concatenate(choices, axis=-1), np.concatenate(numbers, axis=-1)
    array = np.asarray(action)
    if array.shape != (*batch_shape, *space.shape):
        raise _not_of(space, action)
    flat = array.reshape(*batch_shape, math.prod(space.shape))
    if isinstance(space, Box):
        return np.zeros((*batch_shape, 0), np.int32), flat.astype(np.float32)
    most = space.n if isinstance(space, Discrete) else np.array(space.nvec)
    if array.dtype.kind not in "iub" or ((flat < 0) | (flat >= most)).any():
        raise _not_of(space, action)
    return flat.astype(np.int32), np.zeros((*batch_shape, 0), np.float32)


def _not_of(space: Space, action: Any) -> ValueError:
    return ValueError(f"action {action!r} is not of {space}")


def _build(
    space: Space, choices: np.ndarray, numbers: np.ndarray, used: tuple[int, int]
) -> tuple[Any, tuple[int, int]]:
    """Build an element of a space of the choices and numbers that are not `used` yet."""
    chosen, taken = used
    if isinstance(space, Tuple):
        parts = []
        for part in space.spaces:
            own, used = _build(part, choices, numbers, used)
            parts.append(own)
        return tuple(parts), used
    if isinstance(space, Discrete):
        return int(choices[chosen]), (chosen + 1, taken)
    if isinstance(space, MultiDiscrete):
        return choices[chosen : chosen + len(space.nvec)], (chosen + len(space.nvec), taken)
    return numbers[taken : taken + space.size].reshape(space.shape), (chosen, taken + space.size)
