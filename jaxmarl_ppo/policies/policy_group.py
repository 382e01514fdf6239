"""Policies of one architecture, computed together.

Policies whose networks, inputs and updates have the same form are members of one group: their
parameters are stacked, and one compiled program plays and trains them all.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.config.policies import ScriptFn
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.policies.agent_interface import AgentInterface
from jaxmarl_ppo.policies.stacked_network import StackedNetwork


@dataclass(frozen=True, eq=False)
class PolicyGroup:
    """Policies of one architecture: their computation, inputs and players."""

    network: StackedNetwork
    interface: AgentInterface
    first_player: int  # members are numbered from here on among the players
    num_trainable: int  # of the members, which stand first
    num_active_rows: int  # M: how many of the slots can act at once
    # [S]: the member that plays each slot in every life, where there is one.
    fixed_members: tuple[int, ...] | None = None
    # [S]: the members that may play each slot, maybe none; None where any may.
    candidates: tuple[tuple[int, ...], ...] | None = None
    imitated: tuple[ScriptFn, ...] = ()  # that trained members imitate, each once
    imitated_by: tuple[int, ...] = ()  # [K]: which of these each trained member imitates

    @property
    def fixed_rows(self) -> tuple[int, ...] | None:
        """Member that plays the slot in each active row, `[M]`; None where not fixed."""
        if self.fixed_members is None or self.num_active_rows == len(self.fixed_members):
            return self.fixed_members
        # Rows hold different slots over time, so only a single member can be fixed for all.
        return (
            self.fixed_members[: self.num_active_rows]
            if len(set(self.fixed_members)) == 1
            else None
        )

    @property
    def row_candidates(self) -> tuple[tuple[int, ...], ...] | None:
        """Members that may play the slot in each active row, `[M]`; None where any may."""
        if self.candidates is None or self.num_active_rows == len(self.candidates):
            return self.candidates
        every = tuple(sorted({policy_index for slot in self.candidates for policy_index in slot}))
        return (every,) * self.num_active_rows

    def computed_members(self, in_active_rows: bool) -> tuple[tuple[int, ...], ...] | None:
        """Members that each compute a row, whichever plays it; None where rows are sorted.

        Args:
            in_active_rows: whether rows are the active rows, `[M]`, or those of all slots, `[S]`.
        """
        # Where not all can act, few slots are asked, and sorting is cheaper than computing all.
        # This does not hold if sorted rows have a place for every row.
        all_at_once = (
            self.num_active_rows == len(self.interface.slots) or tuning().fixed_trip_counts
        )
        fixed = self.fixed_rows if in_active_rows else self.fixed_members if all_at_once else None
        if fixed is not None:
            return tuple((policy_index,) for policy_index in fixed)
        if not in_active_rows and not tuning().rows_last:
            # Values of many steps at once: sorting costs a few launches but saves much computation.
            return None
        found = self.row_candidates if in_active_rows else self.candidates
        few = found is not None and max(map(len, found)) <= tuning().max_candidates
        return found if few else None

    @property
    def own_rows(self) -> tuple[tuple[int, ...], ...] | None:
        """Active rows of each trained member, `[K, n]`; None where not fixed, or not as many."""
        fixed = self.fixed_rows
        if fixed is None:
            return None
        members = range(self.num_trainable)
        active_rows = tuple(
            tuple(i for i, k in enumerate(fixed) if k == policy_index) for policy_index in members
        )
        return active_rows if len(set(map(len, active_rows))) == 1 else None

    @property
    def most_trained_in_row(self) -> int:
        """Return how many trained members at most have decisions in one and the same active row."""
        if self.row_candidates is None:
            return self.num_trainable
        trained = [
            sum(k < self.num_trainable for k in active_row) for active_row in self.row_candidates
        ]
        return max(1, *trained)

    @property
    def players(self) -> range:
        """Player numbers of the members of the policy group."""
        return range(self.first_player, self.first_player + self.network.num_members)

    def members(self, player: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return which member plays each of the policy group's slots.

        Args:
            player: `[..., A]` int, who holds the slots.

        Returns:
            Members `[..., S]` int, 0 where none plays, and whether one plays, bool.
        """
        own = player[..., np.array(self.interface.slots)]
        policy_index = own - self.first_player
        plays = (policy_index >= 0) & (policy_index < self.network.num_members)
        return jnp.where(plays, policy_index, 0), plays
