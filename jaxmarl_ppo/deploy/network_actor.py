"""What a policy computes: from rows of inputs to actions, memory and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.observations import Part
from jaxmarl_ppo.credit.reward_scaling import return_deviation
from jaxmarl_ppo.deploy.calling import Actor, Rows, Signature, pad_rows
from jaxmarl_ppo.deploy.forms import Factors, widen_mask
from jaxmarl_ppo.networks.numbers import scale, unscale
from jaxmarl_ppo.policies.agent_interface import AgentInterface
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import PolicyStack


@dataclass(frozen=True, eq=False, repr=False)
class NetworkActor(Actor):
    """Acts by a network with its parameters; `Policy` describes the attributes."""

    signature: Signature
    network: StackedNetwork
    interface: AgentInterface
    bounds: tuple[np.ndarray, np.ndarray]  # [slots, N] each
    params: PolicyStack  # [1, ...]
    observation_parts: Mapping[str, tuple[Part, ...]]

    def decide(
        self, params: Any, inputs: Rows, hidden: list[jax.Array], key: jax.Array | None
    ) -> tuple[Any, list[jax.Array]]:
        """Decide for rows of full width; see `Actor.decide`."""
        moved, outputs, _ = self.forward(params, inputs, hidden)
        return self.choose(inputs, outputs, key), moved

    def choose(self, inputs: Rows, outputs: jax.Array, key: jax.Array | None) -> Any:
        """Turn network outputs `[B, N]` into actions in rows, drawn or most likely."""
        mask = self.network_mask(inputs)
        distribution = self.network.distribution
        if key is None:
            action = distribution.mode(outputs, mask)
        else:
            action = distribution.sample(
                distribution.noise(key, (outputs.shape[0],)), outputs, mask
            )
        bounds = self._own_bounds(inputs)
        choices, numbers = self._split(self.interface.bounded(action, *bounds))
        numbers = scale(numbers, *bounds)
        return self.signature.join(choices.astype(jnp.int32), numbers)

    def _split(self, action: Any) -> tuple[jax.Array, jax.Array]:
        """Split the network's actions, as `ActionLayout.split` for any symbolic number of rows."""
        layout = self.interface.layout
        if layout.is_choice:
            return action[:, None], jnp.zeros((*action.shape, 0))
        if layout.is_numbers:
            return jnp.zeros((action.shape[0], 0), jnp.int32), action
        # A part that no agent of the group has is None.
        rows = jax.tree.leaves(action)[0].shape[0]
        choices, numbers = action.choices, action.numbers
        return (
            jnp.zeros((rows, 0), jnp.int32) if choices is None else choices,
            jnp.zeros((rows, 0)) if numbers is None else numbers,
        )

    def network_mask(self, inputs: Rows) -> jax.Array:
        """Lay masks out for the network's outputs, `[B, W]`."""
        return widen_mask(inputs["action_mask"], self.signature.factors, self._network_factors)

    @property
    def _network_factors(self) -> Factors:
        return Factors(self.interface.counts, self.interface.num_numbers)

    def forward(
        self, params: PolicyStack, inputs: Rows, hidden: list[jax.Array]
    ) -> tuple[list[jax.Array], jax.Array, jax.Array]:
        """Run the network on rows `[B, ...]`.

        Args:
            params: `[1, ...]`.
            inputs: as in `signature.inputs`.
            hidden: `[B, H]` each.

        Returns:
            `(hidden, distribution inputs [B, N], value [B])`.
        """
        num_rows = inputs["features"].shape[0]
        is_first = inputs.get("reset", jnp.zeros(num_rows, bool))
        shape = jax.eval_shape(lambda: self.network.initial_hidden((1,)))
        held = jax.tree.unflatten(jax.tree.structure(shape), [h[:, None] for h in hidden])
        everyone, policy = jnp.ones((num_rows, 1), bool), jnp.zeros((num_rows, 1), jnp.int32)
        x = self._encode(inputs, is_first)[:, None]
        moved, _, outputs, value = self.network.forward(
            params, policy, held, x, is_first[:, None], everyone, ((0,),)
        )
        return [h[:, 0] for h in jax.tree.leaves(moved)], outputs[:, 0], value[:, 0]

    def _encode(self, inputs: Rows, is_first: jax.Array) -> jax.Array:
        """Build the network inputs `[B, D]`.

        Further inputs of a centralised critic stay zero: the actor does not see them.
        """
        interface = self.interface
        features = pad_rows(inputs["features"], interface.feature_shape)
        if len(interface.feature_shape) > 1:
            return features
        last_action = self._last_action(inputs) if interface.prev_action else None
        joint = jnp.zeros(interface.joint_width)
        return interface.encode(
            features, is_first, last_action, inputs.get("prev_reward"), self._slot(inputs), joint
        )

    def _last_action(self, inputs: Rows) -> Any:
        """Convert the previous action to the network's form, with numbers as from `bounded`."""
        counts, num_numbers = self._network_factors
        choices, numbers = self.signature.split_previous(inputs)
        choices = pad_rows(choices, (len(counts),))
        low, high = self._own_bounds(inputs)
        numbers = unscale(pad_rows(numbers, (num_numbers,)), low, high)
        if self.interface.numbers is not None:
            # What is drawn for a number that an agent lacks is 0; one whose bounds are equal is
            # taken for lacking, since it cannot vary.
            lacking = self.interface.numbers.bounded(jnp.zeros(()))
            numbers = jnp.where(high > low, numbers, lacking)
        return self.interface.layout.join(choices, numbers)

    def _slot(self, inputs: Rows) -> jax.Array:
        """Return the slot of every row, `[B]` int."""
        first = next(iter(self.signature.agent_shapes.values())).slot
        num_rows = inputs["features"].shape[0]
        return inputs.get("agent", jnp.full(num_rows, first, jnp.int32))

    def _own_bounds(self, inputs: Rows) -> tuple[jax.Array, jax.Array]:
        """Look up every row's lowest and highest numbers, `[B, N]` each."""
        slot = self._slot(inputs)
        low, high = (jnp.asarray(bound)[slot] for bound in self.bounds)
        return low, high

    def in_rewards(self, params: PolicyStack, value: jax.Array) -> jax.Array:
        """Convert the critic's outputs `[B]` to units of reward."""
        if params.return_moments is None:
            return value
        return value * return_deviation(params.return_moments)[0]
