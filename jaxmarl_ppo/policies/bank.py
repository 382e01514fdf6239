"""Policies of one architecture, which are computed together.

Policies whose networks, inputs and updates have the same form are members of one bank: their
parameters are stacked, and one compiled program plays and trains them all.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.policies.agent_interface import AgentInterface
from jaxmarl_ppo.policies.stacked_network import StackedNetwork


@dataclass(frozen=True, eq=False)
class Bank:
    """Policies of one architecture: how they compute, what they see, and which players they are."""

    network: StackedNetwork
    interface: AgentInterface
    first_player: int  # members are numbered from here on among the players
    num_trainable: int  # of the members, which stand first
    num_lanes: int  # M: how many of the slots can act at once
    # [S]: the member that plays each slot in every life, where there is one.
    fixed_members: tuple[int, ...] | None = None

    @property
    def fixed_lanes(self) -> tuple[int, ...] | None:
        """Member that plays whatever slot is in each lane, `[M]`; None where that is not fixed."""
        if self.fixed_members is None or self.num_lanes == len(self.fixed_members):
            return self.fixed_members
        # A lane holds now one slot and now another, so only a single member is fixed for all.
        return self.fixed_members[: self.num_lanes] if len(set(self.fixed_members)) == 1 else None

    @property
    def own_lanes(self) -> tuple[tuple[int, ...], ...] | None:
        """Lanes of each trained member, `[K, n]`; None where they are not fixed, or not as many."""
        fixed = self.fixed_lanes
        if fixed is None:
            return None
        members = range(self.num_trainable)
        lanes = tuple(tuple(i for i, k in enumerate(fixed) if k == member) for member in members)
        return lanes if len(set(map(len, lanes))) == 1 else None

    @property
    def players(self) -> range:
        """Numbers of the players that the members of the bank are."""
        return range(self.first_player, self.first_player + self.network.num_members)

    def members(self, player: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Tell which member plays each of the bank's slots.

        Args:
            player: `[..., A]` int, who holds the slots.

        Returns:
            Members `[..., S]` int, 0 where somebody else plays, and whether one plays, bool.
        """
        own = player[..., np.array(self.interface.slots)]
        member = own - self.first_player
        plays = (member >= 0) & (member < self.network.num_members)
        return jnp.where(plays, member, 0), plays
