"""`K` policies of one architecture, stacked `[K, ...]`, computed together.

Initialisation, acting, values, and re-evaluation in the update. Mappings decide which policy plays
which slot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxmarl_envs.threefry import split
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.networks import recurrence
from jaxmarl_ppo.networks.distributions import ActionDistribution
from jaxmarl_ppo.networks.precision import at_precision
from jaxmarl_ppo.ops import running_moments
from jaxmarl_ppo.ops.grouping import group_at, invert, rank_in_group
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.types import Decisions, PolicyStack, PyTree


@dataclass(frozen=True, eq=False)
class StackedNetwork:
    """The computation of stacked policies; their parameters, a `PolicyStack`, are passed in."""

    module: nn.Module
    distribution: ActionDistribution
    input_shape: tuple[int, ...]  # D, or rows, cols, channels
    num_members: int = 1  # K
    normalise_observations: bool = False
    normalise_rewards: bool = False
    tile_rows: int = 256  # rows of one policy in a tile of `forward`
    tiles_at_once: int = 1
    matmul_precision: str = "float32"
    # Computes all layers of a step in one kernel, `fused_network.forward`; None to compute each.
    fused_forward: Callable[..., tuple[jax.Array, jax.Array]] | None = None

    def init(self, key: jax.Array) -> PolicyStack:
        """Draw independent initial parameters for every member, and begin their normalisers."""
        inputs = jnp.zeros((1, *self.input_shape))
        hidden = self.initial_hidden((1,))
        keys = split(key, self.num_members)
        # One by one, since batches of matrix decompositions can hang; see `layers.orthogonal`.
        params = jax.lax.map(lambda key: self.module.init(key, hidden, inputs)["params"], keys)
        return PolicyStack(
            params=params,
            obs_moments=(
                running_moments.init_moments(self.num_members, self.input_shape)
                if self.normalise_observations
                else None
            ),
            return_moments=(
                running_moments.init_moments(self.num_members, ())
                if self.normalise_rewards
                else None
            ),
        )

    def initial_hidden(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Return the memory of new lives, `[*batch_shape, H]` leaves; `()` without memory."""
        initial = getattr(self.module, "initial_hidden", None)
        return () if initial is None else initial(batch_shape)

    @property
    def is_recurrent(self) -> bool:
        """Return whether the network has memory."""
        return bool(jax.tree.leaves(jax.eval_shape(lambda: self.initial_hidden((1,)))))

    @property
    def is_linear(self) -> bool:
        """Return whether its memory steps are linear, so that the update needs no loop."""
        return self.is_recurrent and self._offers("encode", "coefficients", "read", "decode")

    def forward(
        self,
        stack: PolicyStack,
        policy_index: jax.Array,
        hidden: PyTree,
        inputs: jax.Array,
        is_first: jax.Array,
        wanted: jax.Array,
        candidates: tuple[tuple[int, ...], ...] | None = None,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """Compute one decision of every wanted row by the policy that plays it.

        Rows are a policy group's active rows `[E, M]`, or all slots, where `M` is `S`. Wanted rows
        are sorted by policy into tiles, which are computed one after the other. The cost is that of
        the wanted rows, whichever policies play them, not of `K` times all rows. With `candidates`
        nothing is sorted: each of them computes all rows of a slot.

        Args:
            stack: `[K, ...]`.
            policy_index: `[E, M]` int, which of them plays each row.
            hidden: `[E, M, H]` leaves, held.
            inputs: `[E, M, D]`.
            is_first: `[E, M]` bool: no decision yet in this life.
            wanted: `[E, M]` bool.
            candidates: `[M]`, for each slot the policies that may play it, each to compute all its
                rows; None to sort.

        Returns:
            `(hidden, start, outputs [...], value [...])`: the memory to hold, the state that
            each row started from, and the network's outputs; 0 for rows that are not wanted.
        """
        if candidates is not None:
            rows = (hidden, inputs, is_first)
            return self._forward_candidates(stack, candidates, policy_index, rows, wanted)
        rows = jax.tree.map(_flatten, (hidden, inputs, is_first))
        results = self._forward_rows(stack, policy_index.ravel(), rows, wanted.ravel())
        return jax.tree.map(lambda x: x.reshape(*policy_index.shape, *x.shape[1:]), results)

    def _forward_candidates(
        self,
        stack: PolicyStack,
        candidates: tuple[tuple[int, ...], ...],
        policy_index: jax.Array,
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """Compute `[E, S]` rows, `(hidden, inputs, is_first)`, with all their candidate policies.

        A row's results are those of its `policy_index`.
        """
        most = max(map(len, candidates))
        if most == 1 and all(candidates):
            return self._forward_slots(stack, tuple(k for (k,) in candidates), rows, wanted)
        # Equally many for every slot: one is repeated, or the first policy fills in where there is
        # none.
        every = np.array([(own + (*own, 0)[:1] * most)[:most] for own in candidates])  # [S, N]
        mine = wanted[..., None] & (policy_index[..., None] == every)  # [E, S, N]
        rows = jax.tree.map(lambda x: jnp.repeat(x, most, axis=1), rows)
        results = self._forward_slots(
            stack, tuple(every.ravel().tolist()), rows, mine.reshape(mine.shape[0], -1)
        )

        def of_player(x: jax.Array) -> jax.Array:
            x = x.reshape(*mine.shape, *x.shape[2:])
            found = x[:, :, 0]  # also for unwanted rows, on which all agree
            for index in range(1, most):
                found = where_rows(mine[:, :, index], x[:, :, index], found)
            return found

        return jax.tree.map(of_player, results)

    def _forward_slots(
        self,
        stack: PolicyStack,
        fixed: tuple[int, ...],
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """Compute one decision of `[E, S]` rows whose policies are known by slot.

        The rows are `(hidden, inputs, is_first)`. All policies that play equally many slots are
        computed in one batch.
        """
        order = np.argsort(fixed, kind="stable")  # slots, policy by policy
        played, counts = np.unique(fixed, return_counts=True)
        parts, ordered = [], []
        # In a batch instead of one by one: fewer kernels, and less compilation.
        for count in np.unique(counts):
            ids = played[counts == count]
            slots, num = order[np.isin(np.array(fixed)[order], ids)], len(ids)
            own = stack if num == self.num_members else self.select(stack, ids)
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
        # As `_forward_rows` leaves them: it computes wanted rows only.
        outputs, value = recurrence.where_rows(
            wanted, (outputs, value), (jnp.zeros_like(outputs), jnp.zeros_like(value))
        )
        return hidden, start, outputs, value

    def _forward_rows(
        self,
        stack: PolicyStack,
        policy_index: jax.Array,
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """Compute one decision of every wanted row on a flat axis, in tiles of one policy each.

        The rows `(hidden, inputs, is_first)` are `[R, ...]`, as are `policy_index` and `wanted`.
        """
        num_rows, size = policy_index.shape[0], min(self.tile_rows, policy_index.shape[0])
        rank, counts = rank_in_group(policy_index, wanted, self.num_members)
        last = jnp.cumsum(-(-counts // size))  # [K]: tiles up to the end of each policy's
        first = last + -counts // size  # [K]: the tile that each policy begins with
        position = first[jnp.minimum(policy_index, self.num_members - 1)] * size + rank
        # Each policy can leave one tile partly empty, so there are never more of them than these.
        capacity = -(-num_rows // size) + self.num_members - 1
        together = min(self.tiles_at_once, capacity)
        capacity = -(-capacity // together) * together
        order = invert(position, wanted, capacity * size)

        def some_tiles(index: jax.Array, results: tuple[Any, ...]) -> tuple[Any, ...]:
            ids = jax.lax.dynamic_slice(order, (index * together * size,), (together * size,))
            ids = ids.reshape(together, size)
            # Empty places have the index `num_rows`: clipped in reading, dropped in writing.
            taken = jax.tree.map(lambda x: x[ids], rows)
            tile = index * together + jnp.arange(together)
            k = jnp.minimum(group_at(tile, last), self.num_members - 1)
            new = jax.vmap(self._forward_one)(self.select(stack, k), taken, ids < num_rows)
            return jax.tree.map(lambda y, x: y.at[ids].set(x, mode="drop"), results, new)

        outputs = jnp.zeros((num_rows, self.distribution.num_outputs))
        # Rows that are not wanted hold their memory.
        results = (rows[0], rows[0], outputs, jnp.zeros(num_rows))
        # Otherwise the loop length is known only at run time, which rules out gradients; acting
        # needs none.
        num_tiles = capacity if tuning().fixed_trip_counts else last[-1]
        return jax.lax.fori_loop(0, -(-num_tiles // together), some_tiles, results)

    def _forward_one(
        self,
        policy: PolicyStack,
        rows: tuple[PyTree, jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """Compute one decision of rows `[R, ...]`, `(hidden, inputs, is_first)`, by one policy."""
        hidden, inputs, is_first = rows
        inputs = self._standardise(policy, inputs)
        if self.fused_forward is not None:
            return hidden, hidden, *self.fused_forward(self, policy.params, inputs)

        def recur(hidden: PyTree, inputs: jax.Array) -> tuple[PyTree, tuple]:
            hidden, *outputs = self._apply(policy, hidden, inputs)
            return hidden, tuple(outputs)

        hidden, start, outputs = recurrence.advance(recur, hidden, inputs, is_first, wanted)
        return hidden, start, *outputs

    def evaluate(
        self, policy: PolicyStack, rows: Decisions, resume: jax.Array, resume_hidden: PyTree
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Compute log-probability, entropy and value of one policy's recorded decisions.

        Args:
            policy: one policy, from `select`.
            rows: `[C, L]` chunks of consecutive decisions (for a network without memory, any rows);
                `hidden` is `[C, H]`, where each chunk starts.
            resume: `[C]` int, see `recurrence.unroll`.
            resume_hidden: `[C, H]` leaves.

        Returns:
            Three arrays `[C, L]`.
        """
        outputs, value = self.replay(policy, rows, resume, resume_hidden)
        log_prob = self.distribution.log_prob(outputs, rows.action_mask, rows.action)
        return log_prob, self.distribution.entropy(outputs, rows.action_mask), value

    def replay(
        self, policy: PolicyStack, rows: Decisions, resume: jax.Array, resume_hidden: PyTree
    ) -> tuple[jax.Array, jax.Array]:
        """Compute one policy's answers to recorded decisions, with the arguments of `evaluate`.

        Returns:
            `(outputs [C, L, ...], value [C, L])`.
        """
        inputs = self._standardise(policy, rows.inputs)
        if self.is_recurrent:
            return self._replay(policy, rows, inputs, resume, resume_hidden)
        _, outputs, value = self._apply(policy, (), inputs)
        return outputs, value

    def _replay(
        self,
        policy: PolicyStack,
        rows: Decisions,
        inputs: jax.Array,
        resume: jax.Array,
        resume_hidden: PyTree,
    ) -> tuple[jax.Array, jax.Array]:
        staged = self.is_linear or self._offers("encode", "recur", "decode")

        def recur(hidden: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
            if staged:
                return self._apply(policy, hidden, x, method="recur")
            hidden, *outputs = self._apply(policy, hidden, x)
            return hidden, tuple(outputs)

        x = jnp.moveaxis(inputs, 1, 0)  # [B, C, D]: time first, for the scan
        if staged:
            # For all decisions at once: only memory has to be computed along time.
            x = self._apply(policy, x, method="encode")
        when = (rows.is_first.T, rows.acted.T, resume, resume_hidden)
        if self.is_linear:
            coefficients = self._apply(policy, x, method="coefficients")
            hidden = recurrence.unroll_linear(coefficients, rows.hidden, *when)
            y = self._apply(policy, hidden, x, method="read")
        elif staged and self._unrolls_itself:
            y = self._apply(policy, rows.hidden, x, when, method="unroll")
        else:
            y = recurrence.unroll(recur, rows.hidden, x, *when)
        outputs, value = self._apply(policy, y, method="decode") if staged else y
        return jnp.moveaxis(outputs, 0, 1), value.T

    @property
    def _unrolls_itself(self) -> bool:
        """Return whether the module has an `unroll` that no subclass's `recur` has overtaken."""
        methods = ("unroll", "recur")
        classes = type(self.module).__mro__
        return next((n for c in classes for n in methods if n in vars(c)), "") == "unroll"

    def _offers(self, *names: str) -> bool:
        """Return whether the module has all of some methods.

        All of them: a custom module may have an unrelated `encode`.
        """
        return all(hasattr(self.module, name) for name in names)

    def select(self, stack: PolicyStack, k: int | jax.Array | np.ndarray) -> PolicyStack:
        """Return one policy of the stack, or a stack of several, by number."""
        return jax.tree.map(lambda x: x[k], stack)

    def _apply(self, policy: PolicyStack, *args: Any, method: str | None = None) -> Any:
        with at_precision(self.matmul_precision):
            return self.module.apply({"params": policy.params}, *args, method=method)

    def _standardise(self, policy: PolicyStack, inputs: jax.Array) -> jax.Array:
        if policy.obs_moments is None:
            return inputs
        return running_moments.standardise(policy.obs_moments, inputs)


def _take_slots(x: jax.Array, slots: np.ndarray) -> jax.Array:
    """Take some slots of `x [E, S, ...]`."""
    return x if np.array_equal(slots, np.arange(x.shape[1])) else x[:, slots]


def _by_policy(x: jax.Array, num_members: int) -> jax.Array:
    """Convert `[E, K * n, ...]`, in which each policy has `n` in turn, to `[K, E * n, ...]`."""
    x = jnp.moveaxis(x.reshape(x.shape[0], num_members, -1, *x.shape[2:]), 1, 0)
    return x.reshape(num_members, -1, *x.shape[3:])


def _by_env(x: jax.Array, num_envs: int) -> jax.Array:
    """Undo `_by_policy`: convert `[K, E * n, ...]` to `[E, K * n, ...]`."""
    x = jnp.moveaxis(x.reshape(x.shape[0], num_envs, -1, *x.shape[2:]), 0, 1)
    return x.reshape(num_envs, -1, *x.shape[3:])


def _flatten(x: jax.Array) -> jax.Array:
    """Join the first two axes: `[E, S, ...]` to `[E * S, ...]`."""
    return x.reshape(-1, *x.shape[2:])
