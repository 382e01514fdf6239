"""Actor-critic networks: `(hidden, inputs) -> (hidden, distribution inputs, value)`.

Any flax module with that call can replace them (`PolicySpec(network=MyModule())`). A module with
memory also has `initial_hidden(batch_shape)`, which must be all zeros. A field `num_outputs` is set
to the number of distribution inputs that the environment needs. A field `matmul_precision` is set
to the run's precision of products (`matmul.dot_general_in` applies it in a layer). A module may
also have `encode`, `recur` and `decode`, whose composition is its call: the update then runs
`encode` and `decode` on all rows at once and only `recur` along time. Where it has `unroll` too,
that takes all steps of chunks at once, in place of `recurrence.unroll` with `recur`.

Linear memory steps need no loop over time. Such a module has, beside or instead of `recur`,
`coefficients(encoded) -> (a, b)`, both like its hidden state, and `read(hidden, encoded) -> y`:
`hidden` becomes `a * hidden + b`, and `decode` takes `y`. The update then composes the steps of a
chunk in a tree.
"""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxmarl_ppo.networks.gru import GRUCore
from jaxmarl_ppo.networks.layers import Torso, dense
from jaxmarl_ppo.networks.lstm import LSTMCore
from jaxmarl_ppo.networks.min_gru import MinGRUCore
from jaxmarl_ppo.networks.recurrence import Lives
from jaxmarl_ppo.types import PyTree

Core = LSTMCore | GRUCore | MinGRUCore


class ActorCritic(nn.Module):
    """A torso, an optional recurrent layer, and two heads; subclasses are its named forms.

    Attributes:
        num_outputs: parameters of the action distribution per row; set by the policy group.
        hidden_sizes: widths of the dense layers.
        head_sizes: widths of further dense layers, after the recurrent layer, or after
            `hidden_sizes` if there is none; actor and critic each have their own.
        activation: activation function, a key of `ACTIVATIONS`.
        separate_critic: separate networks for actor and critic, including recurrent layers.
        unimix: share of uniform play in discrete actions, in [0, 1): it is mixed into every
            discrete distribution, so that each of `n` options keeps a probability of at least
            `unimix / n` (Hafner et al. 2023, DreamerV3, with .01), before illegal options are
            masked.
        dtype: data type of all layers but the heads, a member of `DTYPES`. Parameters, recurrent
            state, heads and losses are always float32. "bfloat16" is for accelerators; a CPU
            computes it more slowly.
        counts: number of options of each choice, whose logits are the first outputs; `()` for one
            choice with all outputs; set by the policy group.
        num_log_stds: number of the last outputs that are learned log standard deviations, which
            depend on no input; set by the policy group.
        actor_width: number of the inputs that a separate actor sees, while the critic sees all; 0
            for all; set by the policy group.
        matmul_precision: precision of float32 matrix products, including those of the heads:
            `TrainConfig.matmul_precision`; set by the policy group.
    """

    num_outputs: int = 0
    hidden_sizes: Sequence[int] = (64, 64)
    head_sizes: Sequence[int] = ()
    activation: str = "tanh"
    separate_critic: bool = False
    unimix: float = 0.0
    dtype: str = "float32"
    counts: Sequence[int] = ()
    num_log_stds: int = 0
    actor_width: int = 0
    matmul_precision: str = "float32"

    # For networks with memory: its cell, and its name in files of saved runs.
    core_class: ClassVar[type[Core] | None] = None
    core_name: ClassVar[str] = ""

    @property
    def conv_channels(self) -> Sequence[int]:
        """Output channels of each convolution; none by default."""
        return ()

    @property
    def memory_size(self) -> int:
        """Width of the memory; 0 for none."""
        return 0

    def setup(self) -> None:
        """Make one tower for actor and critic together, or one for each, and their heads."""
        # Files of saved runs use these names for parameters.
        names = ("actor", "critic") if self.separate_critic else ("trunk",)
        self.torsos = [
            Torso(
                self.hidden_sizes,
                self.conv_channels,
                self.activation,
                self.dtype,
                self.matmul_precision,
                name=f"{name}_torso",
            )
            for name in names
        ]
        if self.core_class is not None:
            self.cores = [
                self.core_class(
                    self.memory_size,
                    self.dtype,
                    self.matmul_precision,
                    name=f"{name}_{self.core_name}",
                )
                for name in names
            ]
        if self.head_sizes:
            self.head_torsos = [
                Torso(
                    self.head_sizes,
                    (),
                    self.activation,
                    self.dtype,
                    self.matmul_precision,
                    name=f"{name}_head_torso",
                )
                for name in ("actor", "critic")
            ]
        # Small gain, so that a new policy hardly prefers any action.
        self.policy_head = dense(
            self.num_outputs - self.num_log_stds, 0.01, matmul_precision=self.matmul_precision
        )
        self.value_head = dense(1, 1.0, matmul_precision=self.matmul_precision)
        if self.num_log_stds:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_log_stds,))

    def initial_hidden(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Return zeros: per tower `[*batch_shape, memory_size]` leaves; `()` without memory."""
        if self.core_class is None:
            return ()
        one = self.core_class.initial_hidden(self.memory_size, batch_shape)
        return (one,) * (2 if self.separate_critic else 1)

    def encode(self, inputs: jax.Array) -> tuple[jax.Array, ...]:
        """Compute, per tower, what does not depend on memory, `[..., F]` from `inputs [..., D]`."""
        seen = [inputs] * len(self.torsos)
        if self.actor_width:
            # Inputs for the critic alone come after those of the actor.
            seen[0] = inputs[..., : self.actor_width]
        encoded = tuple(torso(x) for torso, x in zip(self.torsos, seen, strict=True))
        if self.core_class is None:
            return encoded
        return tuple(core.project(x) for core, x in zip(self.cores, encoded, strict=True))

    def recur(
        self, hidden: PyTree, encoded: tuple[jax.Array, ...]
    ) -> tuple[PyTree, tuple[jax.Array, ...]]:
        """Take one step of memory in every tower; without memory, return `encoded` as it is."""
        if self.core_class is None:
            return hidden, encoded
        pairs = [core(h, x) for core, h, x in zip(self.cores, hidden, encoded, strict=True)]
        return tuple(h for h, _ in pairs), tuple(y for _, y in pairs)

    def unroll(
        self, hidden: PyTree, encoded: tuple[jax.Array, ...], lives: Lives
    ) -> tuple[jax.Array, ...]:
        """Take the steps of chunks in every tower, as `recurrence.unroll` would with `recur`.

        Args:
            hidden: per tower `[C, H]` leaves, what the first step of each chunk starts from.
            encoded: per tower `[L, C, F]`.
            lives: `is_first`, `valid`, `resume` and `resume_hidden` of `recurrence.unroll`.

        Returns:
            Per tower `[L, C, H]`.
        """
        is_first, valid, resume, resume_hidden = lives
        towers = zip(self.cores, hidden, encoded, resume_hidden, strict=True)
        return tuple(
            core.unroll(h, x, (is_first, valid, resume, later)) for core, h, x, later in towers
        )

    def decode(self, towers: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        """Compute distribution inputs `[..., num_outputs]` and value `[...]` from the towers."""
        # First and last are the same tower where actor and critic share one.
        of_actor, of_critic = towers[0], towers[-1]
        if self.head_sizes:
            own_actor, own_critic = self.head_torsos
            of_actor, of_critic = own_actor(of_actor), own_critic(of_critic)
        outputs = self.policy_head(of_actor)
        parts = [outputs]
        if self.unimix:
            counts = self.counts or (outputs.shape[-1],)
            *choices, numbers = jnp.split(outputs, np.cumsum(counts), axis=-1)
            parts = [*map(self._mix, choices), numbers]
        if self.num_log_stds:
            log_std = jnp.broadcast_to(self.log_std, (*outputs.shape[:-1], self.num_log_stds))
            parts.append(log_std)
        outputs = jnp.concatenate(parts, axis=-1) if len(parts) > 1 else outputs
        return outputs, self.value_head(of_critic)[..., 0]

    def _mix(self, logits: jax.Array) -> jax.Array:
        """Mix uniform play into one choice, `[..., options]`."""
        sure = (1 - self.unimix) * jax.nn.softmax(logits, axis=-1)
        return jnp.log(sure + self.unimix / logits.shape[-1])

    def __call__(self, hidden: PyTree, inputs: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one decision for a batch of rows, `inputs [..., D]`.

        Returns:
            `(hidden, outputs [..., num_outputs], value [...])`.
        """
        hidden, towers = self.recur(hidden, self.encode(inputs))
        outputs, value = self.decode(towers)
        return hidden, outputs, value


class MLP(ActorCritic):
    """A feed-forward network on flat features."""


class LSTM(ActorCritic):
    """A network of dense layers, then an LSTM, then the heads.

    Attributes:
        lstm_size: width of the LSTM.
    """

    hidden_sizes: Sequence[int] = (64,)
    lstm_size: int = 64
    core_class = LSTMCore
    core_name = "lstm"

    @property
    def memory_size(self) -> int:
        """Width of the LSTM."""
        return self.lstm_size


class GRU(ActorCritic):
    """A network of dense layers, then a GRU, then the heads.

    Attributes:
        gru_size: width of the GRU or minGRU.
    """

    hidden_sizes: Sequence[int] = (64,)
    gru_size: int = 64
    core_class = GRUCore
    core_name = "gru"

    @property
    def memory_size(self) -> int:
        """Width of the GRU."""
        return self.gru_size


class MinGRU(ActorCritic):
    """A network of dense layers, then a minGRU, then the heads; its update has no loop over time.

    Attributes:
        gru_size: width of the GRU or minGRU.
    """

    hidden_sizes: Sequence[int] = (64,)
    gru_size: int = 64
    core_class = MinGRUCore
    core_name = "min_gru"

    @property
    def memory_size(self) -> int:
        """Width of the minGRU."""
        return self.gru_size

    def coefficients(
        self, encoded: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """Compute, per tower, `a` and `b` by which `recur` makes `a * hidden + b` of its memory."""
        pairs = [core.coefficients(x) for core, x in zip(self.cores, encoded, strict=True)]
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)

    def read(
        self, hidden: tuple[jax.Array, ...], encoded: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        """Compute the output of `recur` from the new memory."""
        towers = zip(self.cores, hidden, encoded, strict=True)
        return tuple(core.read(h, x) for core, h, x in towers)


class CNN(ActorCritic):
    """A network of 3 x 3 convolutions on planes `[rows, cols, channels]`, then dense layers.

    Attributes:
        channels: output channels of each convolution.
    """

    hidden_sizes: Sequence[int] = (128,)
    activation: str = "relu"
    channels: Sequence[int] = (32, 32)

    @property
    def conv_channels(self) -> Sequence[int]:
        """Output channels of each convolution."""
        return self.channels


# By their names in configurations and on the command line.
NETWORKS: dict[str, type[ActorCritic]] = {
    "mlp": MLP,
    "lstm": LSTM,
    "gru": GRU,
    "min_gru": MinGRU,
    "cnn": CNN,
}
# For messages: those that have memory, and those that take features in one dimension.
RECURRENT = tuple(name for name, network in NETWORKS.items() if network.core_class)
FLAT = tuple(name for name, network in NETWORKS.items() if not network().conv_channels)
