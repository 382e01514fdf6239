"""Everything that can hold an agent slot, behind one index: networks, snapshots, scripts.

Players are numbered bank by bank, within a bank row by row, scripted ones last. So the static table
from player to bank and row is a subtraction. Policies are what mappings and logs name; a pool of
snapshots is one policy and several players.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.config.mapping import Draw
from jaxmarl_ppo.config.policies import ScriptFn
from jaxmarl_ppo.policies.agent_interface import AgentInputs
from jaxmarl_ppo.policies.bank import PolicyBank
from jaxmarl_ppo.policies.mapping import PolicyMapping
from jaxmarl_ppo.policies.snapshot_pools import PoolSeats, draw_entries
from jaxmarl_ppo.types import League, PyTree, Slots


@dataclass(frozen=True, eq=False)
class BankSeats:
    """A bank, the slots that it can play and its place among the players."""

    bank: PolicyBank
    encoder: AgentInputs
    first_player: int
    num_trainable: int  # of the bank's rows, which stand first
    num_lanes: int  # M: how many of the slots can act at once
    # [S]: the row that plays each slot in every life, where there is one.
    fixed_rows: tuple[int, ...] | None = None

    @property
    def fixed_lanes(self) -> tuple[int, ...] | None:
        """`[M]`: the row that plays whatever slot is in each lane, where there is one."""
        if self.fixed_rows is None or self.num_lanes == len(self.fixed_rows):
            return self.fixed_rows
        return self.fixed_rows[: self.num_lanes] if len(set(self.fixed_rows)) == 1 else None

    def rows(self, player: jax.Array) -> tuple[jax.Array, jax.Array]:
        """From who holds the slots `[..., A]` to the bank's rows and where it plays `[..., S]`."""
        own = player[..., np.array(self.encoder.slots)]
        row = own - self.first_player
        plays = (row >= 0) & (row < self.bank.num_policies)
        return jnp.where(plays, row, 0), plays


@dataclass(frozen=True, eq=False)
class Players:
    """Static description of all players."""

    mapping: PolicyMapping
    banks: tuple[BankSeats, ...]
    pools: tuple[PoolSeats, ...]
    scripts: tuple[ScriptFn, ...]
    names: tuple[str, ...]  # [Q]
    policy_of: tuple[int, ...]  # [Q]: the policy that each player belongs to
    first_player_of: tuple[int, ...]  # [P]
    action_dims: int | None  # N of continuous actions; None for discrete ones

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the `P` policies."""
        return self.mapping.names

    @property
    def num_players(self) -> int:
        """`Q`."""
        return len(self.names)

    @property
    def first_script(self) -> int:
        """The first scripted player."""
        return self.num_players - len(self.scripts)

    @property
    def is_fixed(self) -> bool:
        """Whether every slot has the same player in every life."""
        return self.mapping.is_fixed and not self.pools

    def policies_at(self, player: jax.Array) -> jax.Array:
        """The policies that the players `[..., A]` of all slots belong to; -1 for none."""
        return jnp.array(self.policy_of)[player]

    def able(self, slot: int) -> list[int]:
        """The players that can hold a slot: those whose network covers it, and all scripts."""
        networks = [
            player
            for seats in self.banks
            if slot in seats.encoder.slots
            for player in range(seats.first_player, seats.first_player + seats.bank.num_policies)
        ]
        return [*networks, *range(self.first_script, self.num_players)]

    def learners(self, slot: int) -> list[int]:
        """The trainable players that mappings give a slot; all networks if none is trainable.

        Snapshots are left out.
        """
        pools = [pool.policy for pool in self.pools]
        policies = [policy for policy in self.mapping.candidates[slot] if policy not in pools]
        drawn = [self.first_player_of[policy] for policy in policies]
        networks = [player for player in drawn if player < self.first_script]
        return [player for player in networks if self.is_trainable(player)] or networks

    def drawn(self, slot: int, league: League) -> list[int]:
        """The players that mappings give a slot now: policies, and snapshots that there are."""
        found = []
        for policy in self.mapping.candidates[slot]:
            pools = [index for index, pool in enumerate(self.pools) if pool.policy == policy]
            count = int(league.pools[pools[0]].count) if pools else 1
            first = self.first_player_of[policy]
            found += range(first, first + count)
        return found

    def is_trainable(self, player: int) -> bool:
        """Whether a player is a network that is trained."""
        return any(0 <= player - seats.first_player < seats.num_trainable for seats in self.banks)

    def with_scripts(self, scripts: Mapping[str, ScriptFn]) -> "Players":
        """The same with more scripted players, which no mapping draws.

        Raises:
            ValueError: a name that another player has.
        """
        for name in scripts:
            if name in self.names:
                raise ValueError(f"there is a player {name!r} already")
        return dataclasses.replace(
            self,
            scripts=(*self.scripts, *scripts.values()),
            names=(*self.names, *scripts),
            policy_of=(*self.policy_of, *[-1] * len(scripts)),
        )

    def no_action(self, num_envs: int) -> jax.Array:
        """Placeholder actions for slots that have not acted, `[E, A]` or `[E, A, N]`."""
        shape = (num_envs, len(self.mapping.candidates))
        if self.action_dims is None:
            return jnp.zeros(shape, jnp.int32)
        return jnp.zeros((*shape, self.action_dims))

    def initial_hidden(self, num_envs: int) -> tuple[PyTree, ...]:
        """Every bank's memory of new lives, `[E, S, H]` leaves."""
        return tuple(
            seats.bank.initial_hidden((num_envs, len(seats.encoder.slots))) for seats in self.banks
        )

    def draw(self, key: jax.Array, league: League, draw: Draw) -> jax.Array:
        """Who plays the slots that need somebody, `[E, A]`; the others keep `draw.held`.

        Args:
            key: of the draw.
            league: pools and results that opponents are drawn by.
            draw: `[E]` and `[E, A]`; `held` are players.
        """
        if self.is_fixed:
            only = [self.first_player_of[slot[0]] for slot in self.mapping.candidates]
            return jnp.broadcast_to(jnp.array(only, jnp.int32), draw.held.shape)

        def one(key: jax.Array, draw: Draw) -> jax.Array:
            key_policy, key_entry = split(key)
            held = jnp.array(self.policy_of)[draw.held]
            policy = self.mapping.draw_fn(key_policy, draw.replace(held=held))
            policy = jnp.where(draw.needed, policy, held)
            player = jnp.array(self.first_player_of)[policy]
            player = jnp.where(draw.needed, player, draw.held)
            keys = split(key_entry, max(len(self.pools), 1))
            # Pools last, since whom they draw can depend on who the opponents are.
            for index, (key, pool) in enumerate(zip(keys, self.pools, strict=False)):
                entry = draw_entries(key, league, pool, index, player, draw.occupied)
                chosen = draw.needed & (policy == pool.policy)
                player = jnp.where(chosen, pool.first_player + entry, player)
            return player.astype(jnp.int32)

        return jax.vmap(one)(split(key, draw.held.shape[0]), draw)

    def scripted_actions(
        self, slots: Slots, env_params: PyTree, key: jax.Array | None, action: jax.Array
    ) -> jax.Array:
        """Put the actions of scripted players over `action`, `[E, A]` or `[E, A, N]`.

        `key` may be None where there are none.
        """
        if key is None:
            return action
        num_envs = slots.player.shape[0]
        for index, script in enumerate(self.scripts):
            keys = split(fold_in(key, index), num_envs)
            run = jax.vmap(script, in_axes=(0, 0, None, 0))
            mine = slots.player == self.first_script + index

            def put(run=run, keys=keys, mine=mine, action=action) -> jax.Array:
                scripted = run(slots.env_state, slots.obs, env_params, keys)
                where = mine.reshape(mine.shape + (1,) * (action.ndim - mine.ndim))
                return jnp.where(where, scripted.astype(action.dtype), action)

            acts = (mine & slots.obs.agent_mask).any()
            action = jax.lax.cond(acts, put, lambda action=action: action)
        return action
