"""Everything that can hold an agent slot, behind one index: networks, snapshots, scripts.

Players are numbered group by group, then member by member, scripted ones last; so a subtraction
gives a player's group and member. Mappings and logs name policies: a pool of snapshots is one
policy but several players.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.backend import skip_unless
from jaxmarl_envs.core import Observation
from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.config.mapping import Draw
from jaxmarl_ppo.config.policies import ScriptFn
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.mapping import PolicyMapping
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.policies.snapshot_pools import SnapshotPool, draw_entries, snapshot_name
from jaxmarl_ppo.types import League, PyTree, RolloutState


@dataclass(frozen=True, eq=False)
class Players:
    """All players that can hold a slot, and how they are drawn; static."""

    mapping: PolicyMapping
    policy_groups: tuple[PolicyGroup, ...]
    pools: tuple[SnapshotPool, ...]
    scripts: tuple[ScriptFn, ...]
    names: tuple[str, ...]  # [Q]
    policy_of: tuple[int, ...]  # [Q]: the policy that each player belongs to
    first_player_of: tuple[int, ...]  # [P]
    layout: ActionLayout  # of the environment's actions

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the `P` policies."""
        return self.mapping.names

    @property
    def num_players(self) -> int:
        """Number of players, `Q`."""
        return len(self.names)

    def names_now(self, league: League) -> tuple[str, ...]:
        """Name the present players: `past@it150` for a snapshot, `past@2` for a place without one.

        `names` has the names of places alone, which stay the same during a run.
        """
        names = list(self.names)
        for place, pool in zip(self.pools, league.pools, strict=True):
            taken = pool.added_at.tolist()[: int(pool.count)]
            for player, iteration in enumerate(taken, place.first_player):
                names[player] = snapshot_name(self.policies[place.policy], iteration)
        return tuple(names)

    def find_now(self, name: str, league: League) -> int | None:
        """Find a player by its present name, or a snapshot by its place; None for other names."""
        for names in (self.names_now(league), self.names):
            if name in names:
                return names.index(name)
        return None

    @property
    def first_script(self) -> int:
        """Number of the first scripted player."""
        return self.num_players - len(self.scripts)

    @property
    def imitates(self) -> bool:
        """Return whether some policy imitates a scripted policy."""
        return any(group.imitated for group in self.policy_groups)

    @property
    def is_fixed(self) -> bool:
        """Return whether every slot has the same player in every life."""
        return self.mapping.is_fixed and not self.pools

    def policies_at(self, player: jax.Array) -> jax.Array:
        """Look up the policies that players `[..., A]` belong to; -1 for none."""
        return jnp.array(self.policy_of)[player]

    def seen(self, obs: Observation) -> Observation:
        """Drop the state from an observation if no critic reads it."""
        central = any(group.interface.joint_width for group in self.policy_groups)
        return obs if central else dataclasses.replace(obs, state=None)

    def able(self, slot: int) -> list[int]:
        """List the players that can hold a slot: networks that cover it, and all scripts."""
        networks = [
            player
            for group in self.policy_groups
            if slot in group.interface.slots
            for player in group.players
        ]
        return [*networks, *range(self.first_script, self.num_players)]

    def learners(self, slot: int) -> list[int]:
        """List the trainable players that mappings give a slot; all networks if none is trainable.

        Snapshots are left out.
        """
        pools = [pool.policy for pool in self.pools]
        policies = [policy for policy in self.mapping.candidates[slot] if policy not in pools]
        drawn = [self.first_player_of[policy] for policy in policies]
        networks = [player for player in drawn if player < self.first_script]
        return [player for player in networks if self.is_trainable(player)] or networks

    def drawn(self, slot: int, league: League) -> list[int]:
        """List the players that mappings give a slot now: policies, and the snapshots so far."""
        found = []
        for policy in self.mapping.candidates[slot]:
            pools = [index for index, pool in enumerate(self.pools) if pool.policy == policy]
            count = int(league.pools[pools[0]].count) if pools else 1
            first = self.first_player_of[policy]
            found += range(first, first + count)
        return found

    def is_trainable(self, player: int) -> bool:
        """Return whether a player is a network that is trained."""
        return any(
            0 <= player - group.first_player < group.num_trainable for group in self.policy_groups
        )

    def with_scripts(self, scripts: Mapping[str, ScriptFn]) -> "Players":
        """Copy these with more scripted players, which no mapping draws.

        Raises:
            ValueError: For a name that another player has.
        """
        for name in scripts:
            if name in self.names:
                raise ValueError(f"there is a player {name!r} already")
        # Behind all others, so that the numbers of those stay what they are.
        return dataclasses.replace(
            self,
            scripts=(*self.scripts, *scripts.values()),
            names=(*self.names, *scripts),
            policy_of=(*self.policy_of, *[-1] * len(scripts)),
        )

    def without_fixed_members(self) -> "Players":
        """Copy these for play in which slots are held by others than the mapping gives them."""
        groups = tuple(
            dataclasses.replace(group, fixed_members=None, candidates=None)
            for group in self.policy_groups
        )
        return dataclasses.replace(self, policy_groups=groups)

    def initial_hidden(self, num_envs: int) -> tuple[PyTree, ...]:
        """Make every policy group's memory of new lives, `[E, S, H]` leaves."""
        return tuple(
            group.network.initial_hidden((num_envs, len(group.interface.slots)))
            for group in self.policy_groups
        )

    def draw(self, key: jax.Array, league: League, draw: Draw) -> jax.Array:
        """Draw players for the slots that need one, `[E, A]`; the others keep `draw.held`.

        Args:
            key: of the draw.
            league: pools and results for drawing opponents.
            draw: `[E]` and `[E, A]`; `held` are players.
        """
        if self.is_fixed:
            only = [self.first_player_of[slot[0]] for slot in self.mapping.candidates]
            return jnp.broadcast_to(jnp.array(only, jnp.int32), draw.held.shape)

        def one(key: jax.Array, draw: Draw) -> jax.Array:
            key_policy, key_entry = split(key)
            # Mappings name policies, and a policy may be several players.
            held = jnp.array(self.policy_of)[draw.held]
            policy = self.mapping.draw_fn(key_policy, draw.replace(held=held))
            policy = jnp.where(draw.needed, policy, held)
            # A slot of a pool holds its first entry, until one is drawn below.
            player = jnp.array(self.first_player_of)[policy]
            player = jnp.where(draw.needed, player, draw.held)
            keys = split(key_entry, max(len(self.pools), 1))
            # Pools last, since their draw can depend on the opponents.
            for index, (key, pool) in enumerate(zip(keys, self.pools, strict=False)):
                entry = draw_entries(key, league, pool, index, player, draw.occupied)
                chosen = draw.needed & (policy == pool.policy)
                player = jnp.where(chosen, pool.first_player + entry, player)
            return player.astype(jnp.int32)

        return jax.vmap(one)(split(key, draw.held.shape[0]), draw)

    def scripted_actions(
        self, state: RolloutState, env_params: PyTree, key: jax.Array | None, action: Any
    ) -> Any:
        """Put the actions of scripted players over `action`, `[E, A, ...]`.

        `key` may be None where there are none.
        """
        if key is None:
            return action
        num_envs = state.player.shape[0]
        for index, script in enumerate(self.scripts):
            keys = split(fold_in(key, index), num_envs)
            run = jax.vmap(script, in_axes=(0, 0, None, 0))
            mine = state.player == self.first_script + index

            def put(run=run, keys=keys, mine=mine, action=action) -> Any:
                scripted = run(state.env_state, state.obs, env_params, keys)
                scripted = jax.tree.map(lambda x, y: x.astype(y.dtype), scripted, action)
                return where_rows(mine, scripted, action)

            acts = (mine & state.obs.agent_mask).any()
            action = skip_unless(acts, put, lambda action=action: action)
        return action
