"""`K` policies of one architecture, stacked `[K, ...]`. Only this module indexes that axis to act.

A bank initialises, acts, values and re-evaluates; who plays which slot is the mapping's business,
and what the rows mean is the rollout's.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxmarl_envs.threefry import split
from jaxmarl_ppo.networks import recurrence
from jaxmarl_ppo.networks.distributions import ActionDistribution
from jaxmarl_ppo.ops import running_moments as normalise
from jaxmarl_ppo.ops.grouping import group_at, invert, rank_in_group
from jaxmarl_ppo.types import Decisions, Policies, PyTree


@dataclass(frozen=True, eq=False)
class PolicyBank:
    """Static description of the stacked policies; parameters are passed in."""

    network: nn.Module
    distribution: ActionDistribution
    input_shape: tuple[int, ...]  # D, or rows, cols, channels
    num_policies: int = 1  # K
    normalise_observations: bool = False
    normalise_rewards: bool = False
    tile_rows: int = 256  # rows of one policy in a tile of `forward`
    tiles_at_once: int = 1

    def init(self, key: jax.Array) -> Policies:
        """Independent initial parameters for every policy."""
        inputs = jnp.zeros((1, *self.input_shape))
        hidden = self.initial_hidden((1,))
        keys = split(key, self.num_policies)
        # One by one, since batches of matrix decompositions can hang; see `networks.orthogonal`.
        params = jax.lax.map(lambda key: self.network.init(key, hidden, inputs)["params"], keys)
        return Policies(
            params=params,
            obs_moments=(
                normalise.init_moments(self.num_policies, self.input_shape)
                if self.normalise_observations
                else None
            ),
            return_moments=(
                normalise.init_moments(self.num_policies, ()) if self.normalise_rewards else None
            ),
        )

    def initial_hidden(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The memory of new lives; `()` for a network without memory."""
        initial = getattr(self.network, "initial_hidden", None)
        return () if initial is None else initial(batch_shape)

    @property
    def is_recurrent(self) -> bool:
        """Whether the network has memory."""
        return bool(jax.tree.leaves(jax.eval_shape(lambda: self.initial_hidden((1,)))))

    def forward(
        self,
        policies: Policies,
        policy: jax.Array,
        hidden: PyTree,
        inputs: jax.Array,
        fresh: jax.Array,
        wanted: jax.Array,
        fixed: tuple[int, ...] | None = None,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """One decision of every wanted row by the policy that plays it.

        Wanted rows are sorted by policy into tiles, and the tiles computed one after the other: the
        cost is that of the wanted rows, whoever plays them, and not of `K` times all rows. With
        `fixed` nothing is sorted, and the cost is that of all rows.

        Args:
            policies: `[K, ...]`.
            policy: `[E, S]` int.
            hidden: `[E, S, H]` leaves, held.
            inputs: `[E, S, D]`.
            fresh: `[E, S]` bool: no decision yet in this life.
            wanted: `[E, S]` bool.
            fixed: `[S]`, the policy that plays each slot; None where that differs.

        Returns:
            `(hidden, start, outputs [..., N], value [...])`: what to hold, the state that each row
            started from, and what the network says; 0 for rows that are not wanted.
        """
        if fixed is not None:
            return self._forward_slots(policies, fixed, (hidden, inputs, fresh), wanted)
        rows = jax.tree.map(_flatten, (hidden, inputs, fresh))
        results = self._forward_rows(policies, policy.ravel(), rows, wanted.ravel())
        return jax.tree.map(lambda x: x.reshape(*policy.shape, *x.shape[1:]), results)

    def _forward_slots(
        self,
        policies: Policies,
        fixed: tuple[int, ...],
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """The same for `[E, S]` rows `(hidden, inputs, fresh)` whose policies are known by slot.

        Policies that play equally many slots are computed in one batch.
        """
        order = np.argsort(fixed, kind="stable")  # slots, policy by policy
        played, counts = np.unique(fixed, return_counts=True)
        parts, ordered = [], []
        for count in np.unique(counts):
            ids = played[counts == count]
            slots, num = order[np.isin(np.array(fixed)[order], ids)], len(ids)
            own = policies if num == self.num_policies else self.select(policies, ids)
            taken = jax.tree.map(
                lambda x, slots=slots, num=num: _by_policy(_take_slots(x, slots), num),
                (rows, wanted),
            )
            results = jax.vmap(self._forward_one)(own, *taken)
            parts.append(jax.tree.map(lambda x: _by_env(x, wanted.shape[0]), results))
            ordered.append(slots)
        back = np.argsort(np.concatenate(ordered))
        hidden, start, outputs, value = jax.tree.map(
            lambda *x: _take_slots(jnp.concatenate(x, axis=1), back), *parts
        )
        outputs, value = recurrence.where_rows(
            wanted, (outputs, value), (jnp.zeros_like(outputs), jnp.zeros_like(value))
        )
        return hidden, start, outputs, value

    def _forward_rows(
        self,
        policies: Policies,
        policy: jax.Array,
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """The same for a flat axis of rows `(hidden, inputs, fresh)`."""
        num_rows, size = policy.shape[0], min(self.tile_rows, policy.shape[0])
        rank, counts = rank_in_group(policy, wanted, self.num_policies)
        last = jnp.cumsum(-(-counts // size))  # [K]: tiles up to the end of each policy's
        first = last + -counts // size
        position = first[jnp.minimum(policy, self.num_policies - 1)] * size + rank
        capacity = -(-num_rows // size) + self.num_policies - 1
        together = min(self.tiles_at_once, capacity)
        capacity = -(-capacity // together) * together
        order = invert(position, wanted, capacity * size)

        def some_tiles(index: jax.Array, results: tuple[Any, ...]) -> tuple[Any, ...]:
            ids = jax.lax.dynamic_slice(order, (index * together * size,), (together * size,))
            ids = ids.reshape(together, size)
            taken = jax.tree.map(lambda x: x[ids], rows)
            tile = index * together + jnp.arange(together)
            k = jnp.minimum(group_at(tile, last), self.num_policies - 1)
            new = jax.vmap(self._forward_one)(self.select(policies, k), taken, ids < num_rows)
            return jax.tree.map(lambda y, x: y.at[ids].set(x, mode="drop"), results, new)

        outputs = jnp.zeros((num_rows, self.distribution.num_outputs))
        results = (rows[0], rows[0], outputs, jnp.zeros(num_rows))
        return jax.lax.fori_loop(0, -(-last[-1] // together), some_tiles, results)

    def _forward_one(
        self,
        policy: Policies,
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """The same for rows `(hidden, inputs, fresh)` of one policy."""
        hidden, inputs, fresh = rows
        inputs = self._standardise(policy, inputs)

        def recur(hidden: PyTree, inputs: jax.Array) -> tuple[PyTree, tuple]:
            hidden, *outputs = self._apply(policy, hidden, inputs)
            return hidden, tuple(outputs)

        hidden, start, outputs = recurrence.advance(recur, hidden, inputs, fresh, wanted)
        return hidden, start, *outputs

    def evaluate(
        self, policy: Policies, rows: Decisions, resume: jax.Array, resume_hidden: PyTree
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Log-probability, entropy and value of one policy's recorded decisions.

        Args:
            policy: one policy, from `select`.
            rows: `[C, L]` chunks of consecutive decisions (for a network without memory, any rows);
                `hidden` is `[C, H]`, where each chunk starts.
            resume: `[C]` bool, see `recurrence.unroll`.
            resume_hidden: `[C, H]` leaves.

        Returns:
            Three arrays `[C, L]`.
        """
        inputs = self._standardise(policy, rows.inputs)
        if self.is_recurrent:
            outputs, value = self._replay(policy, rows, inputs, resume, resume_hidden)
        else:
            _, outputs, value = self._apply(policy, (), inputs)
        log_prob = self.distribution.log_prob(outputs, rows.action_mask, rows.action)
        return log_prob, self.distribution.entropy(outputs, rows.action_mask), value

    def _replay(
        self,
        policy: Policies,
        rows: Decisions,
        inputs: jax.Array,
        resume: jax.Array,
        resume_hidden: PyTree,
    ) -> tuple[jax.Array, jax.Array]:
        staged = all(hasattr(self.network, name) for name in ("encode", "recur", "decode"))

        def recur(hidden: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
            if staged:
                return self._apply(policy, hidden, x, method="recur")
            hidden, *outputs = self._apply(policy, hidden, x)
            return hidden, tuple(outputs)

        x = jnp.moveaxis(inputs, 1, 0)
        if staged:
            x = self._apply(policy, x, method="encode")
        life_start, acted = rows.life_start.T, rows.acted.T
        y = recurrence.unroll(recur, rows.hidden, x, life_start, acted, resume, resume_hidden)
        outputs, value = self._apply(policy, y, method="decode") if staged else y
        return jnp.moveaxis(outputs, 0, 1), value.T

    def select(self, policies: Policies, k: int | jax.Array | np.ndarray) -> Policies:
        """One policy of the stack, or several."""
        return jax.tree.map(lambda x: x[k], policies)

    def _apply(self, policy: Policies, *args: Any, method: str | None = None) -> Any:
        return self.network.apply({"params": policy.params}, *args, method=method)

    def _standardise(self, policy: Policies, inputs: jax.Array) -> jax.Array:
        if policy.obs_moments is None:
            return inputs
        return normalise.standardise(policy.obs_moments, inputs)


def _take_slots(x: jax.Array, slots: np.ndarray) -> jax.Array:
    """`x [E, S, ...]` at some of the `S`."""
    return x if np.array_equal(slots, np.arange(x.shape[1])) else x[:, slots]


def _by_policy(x: jax.Array, num_policies: int) -> jax.Array:
    """`[E, K * n, ...]`, of which each policy has `n` in turn, to `[K, E * n, ...]`."""
    x = jnp.moveaxis(x.reshape(x.shape[0], num_policies, -1, *x.shape[2:]), 1, 0)
    return x.reshape(num_policies, -1, *x.shape[3:])


def _by_env(x: jax.Array, num_envs: int) -> jax.Array:
    """The inverse of `_by_policy`."""
    x = jnp.moveaxis(x.reshape(x.shape[0], num_envs, -1, *x.shape[2:]), 0, 1)
    return x.reshape(num_envs, -1, *x.shape[3:])


def _flatten(x: jax.Array) -> jax.Array:
    """`[E, S, ...]` to `[E * S, ...]`."""
    return x.reshape(-1, *x.shape[2:])
