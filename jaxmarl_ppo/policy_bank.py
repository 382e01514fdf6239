"""`K` policies of one architecture, stacked `[K, ...]`. Only this module indexes that axis to act.

A bank initialises, acts, values and re-evaluates; who plays which slot is the mapping's business,
and what the rows mean is the rollout's.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_ppo import normalise, recurrence
from jaxmarl_ppo.distributions import ActionDistribution
from jaxmarl_ppo.mapping import PolicyMapping
from jaxmarl_ppo.types import Decisions, Policies, PyTree


@dataclass(frozen=True, eq=False)
class PolicyBank:
    """Static description of the stacked policies; parameters are passed in."""

    mapping: PolicyMapping
    network: nn.Module
    distribution: ActionDistribution
    input_shape: tuple[int, ...]  # D, or rows, cols, channels
    normalise_observations: bool = False
    normalise_rewards: bool = False

    @property
    def num_policies(self) -> int:
        """`K`."""
        return len(self.mapping.names)

    def init(self, key: jax.Array) -> Policies:
        """Independent initial parameters for every policy."""
        inputs = jnp.zeros((1, *self.input_shape))
        hidden = self.initial_hidden((1,))
        keys = jax.random.split(key, self.num_policies)
        params = jax.vmap(lambda key: self.network.init(key, hidden, inputs)["params"])(keys)
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
        hidden: PyTree,
        inputs: jax.Array,
        fresh: jax.Array,
        acting: jax.Array,
    ) -> tuple[PyTree, PyTree, jax.Array, jax.Array]:
        """One decision of every slot by the policy that plays it.

        Args:
            policies: `[K, ...]`.
            hidden: `[E, A, H]` leaves, held.
            inputs: `[E, A, D]`. With one policy, any leading axes will do.
            fresh: `[E, A]` bool: no decision yet in this life.
            acting: `[E, A]` bool.

        Returns:
            `(hidden, start, outputs [E, A, ...], value [E, A])`, where `start` is the state that
            each row started from and `hidden` what to hold.
        """

        def one_policy(policy: Policies, hidden, inputs, fresh, acting):
            inputs = self._standardise(policy, inputs)

            def recur(hidden: PyTree, inputs: jax.Array) -> tuple[PyTree, tuple]:
                hidden, *outputs = self._apply(policy, hidden, inputs)
                return hidden, tuple(outputs)

            hidden, start, outputs = recurrence.advance(recur, hidden, inputs, fresh, acting)
            return hidden, start, *outputs

        rows = (hidden, inputs, fresh, acting)
        if self.num_policies == 1:
            return one_policy(self.select(policies, 0), *rows)
        slot_policies = jax.tree.map(lambda x: x[jnp.array(self.mapping.slot_policy)], policies)
        axes = (0, 1, 1, 1, 1)
        return jax.vmap(one_policy, in_axes=axes, out_axes=1)(slot_policies, *rows)

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

    def select(self, policies: Policies, k: int | jax.Array) -> Policies:
        """One policy of the stack."""
        return jax.tree.map(lambda x: x[k], policies)

    def _apply(self, policy: Policies, *args: Any, method: str | None = None) -> Any:
        return self.network.apply({"params": policy.params}, *args, method=method)

    def _standardise(self, policy: Policies, inputs: jax.Array) -> jax.Array:
        if policy.obs_moments is None:
            return inputs
        return normalise.standardise(policy.obs_moments, inputs)
