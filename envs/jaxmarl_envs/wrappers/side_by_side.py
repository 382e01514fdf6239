"""Groups whose action is their members' factors side by side: choices first to last, and numbers.

Letters: `S` slots of the groups, `A` agents beneath; `actions.py` has the others.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space, Tuple, is_known


def flat(spaces: Sequence[Any]) -> Box:
    """Put Boxes side by side, flattened."""

    def side_by_side(ends: Sequence[Any]) -> Any:
        xp = np if is_known(*ends) else jnp
        pairs = zip(ends, spaces, strict=True)
        rows = [xp.broadcast_to(end, space.shape).ravel() for end, space in pairs]
        return xp.concatenate(rows).astype(np.float32)

    low = side_by_side([space.low for space in spaces])
    return Box(low, side_by_side([space.high for space in spaces]), low.shape)


def product(spaces: Sequence[Space]) -> Space:
    """Return the space of one element of each space: their own where it is only one.

    A flat Box where there are only numbers, `MultiDiscrete` where there are only choices.
    """
    if all(isinstance(space, Box) for space in spaces):
        return flat(spaces)
    if len(spaces) == 1:
        return spaces[0]
    if all(isinstance(space, Discrete | MultiDiscrete) for space in spaces):
        return MultiDiscrete([n for space in spaces for n in _options(space)])
    return Tuple(spaces)


def _options(space: Any) -> Sequence[int]:
    return [space.n] if isinstance(space, Discrete) else space.nvec


class SideBySide:
    """Where each factor of the agents' actions stands in the actions of their slots.

    Args:
        own: the layout of the agents' actions.
        joint: the layout of the slots' actions, whose spaces are `product` of the members'.
        members: the agents in each slot, `[S]` tuples of indices.
        grouped: which slots are groups, `[S]` bool.
    """

    def __init__(
        self,
        own: ActionLayout,
        joint: ActionLayout,
        members: Sequence[Sequence[int]],
        grouped: np.ndarray,
    ) -> None:
        self._own, self._joint, self._grouped = own, joint, grouped
        # Of each joint choice and number, the agent and its own choice or number; -1 for none.
        self._choices = _sources(members, [len(x.counts) for x in own.factors], len(joint.counts))
        self._numbers = _sources(members, [x.low.size for x in own.factors], joint.num_numbers)

    def mask(self, own_mask: jax.Array, acts: jax.Array) -> jax.Array:
        """Make the slots' mask `[S, W]` of that of the agents `[A, W]`.

        Of members of groups that do not act, option 0 of every choice alone is legal.
        """
        agents, choices = self._choices
        waits = jnp.asarray(self._grouped)[:, None] & ~acts[agents]  # [S, C]
        parts = []
        for choice, count in enumerate(self._joint.counts):
            agent, source = agents[:, choice], choices[:, choice]
            columns = np.array(self._own.starts)[np.maximum(source, 0)]  # [S]
            options = columns[:, None] + np.arange(count)  # [S, options]
            legal = own_mask[agent[:, None], np.minimum(options, self._own.width - 1)]
            first = jnp.arange(count) == 0
            alone = waits[:, choice] | (source < 0)
            parts.append(jnp.where(alone[:, None], first, legal))
        numbers = jnp.ones((len(self._grouped), self._joint.num_numbers), bool)
        # Beyond an agent's own options there are another choice's.
        return jnp.concatenate([*parts, numbers], axis=1) & self._joint.exists

    def part(self, action: Any) -> Any:
        """Make the agents' actions of those of the slots."""
        parts = []
        sizes = (len(self._own.counts), self._own.num_numbers)
        sources = (self._choices, self._numbers)
        for joint, (agents, own), size in zip(
            self._joint.split(action), sources, sizes, strict=True
        ):
            slots, columns = np.nonzero(own >= 0)
            found = jnp.zeros((len(self._own.factors), size), joint.dtype)
            to = agents[slots, columns], own[slots, columns]
            parts.append(found.at[to].set(joint[slots, columns]))
        return self._own.join(*parts)

    def join(self, own_action: Any, acts: jax.Array) -> Any:
        """Make the slots' actions of those of the agents; choices of who does not act are 0."""
        choices, numbers = self._own.split(own_action)
        choices = jnp.where(acts[:, None], choices, 0)
        return self._joint.join(
            *(
                jnp.where(own >= 0, part[agents, own], 0)
                for part, (agents, own) in zip(
                    (choices, numbers), (self._choices, self._numbers), strict=True
                )
            )
        )


def _sources(
    members: Sequence[Sequence[int]], sizes: Sequence[int], width: int
) -> tuple[np.ndarray, np.ndarray]:
    """List which agent, and which of its own factors, stands in each place of each slot.

    Args:
        members: the agents in each slot.
        sizes: the factors of each agent.
        width: the places of a slot.

    Returns:
        Two arrays `[S, width]`: the agents, 0 where there is none, and their factors, -1 there.
    """

    def places(slot: Sequence[int]) -> Iterator[tuple[int, int]]:
        yield from ((agent, own) for agent in slot for own in range(sizes[agent]))

    agents = np.zeros((len(members), width), int)
    own = np.full((len(members), width), -1)
    for row, slot in enumerate(members):
        for column, (agent, factor) in enumerate(places(slot)):
            agents[row, column], own[row, column] = agent, factor
    return agents, own
