"""Actor-critic networks: `(hidden, inputs) -> (hidden, distribution inputs, value)`.

Any flax module with that call can stand in their place (`PolicySpec(network=MyModule())`). One that
has memory also offers `initial_hidden(batch_shape)`, which must be all zeros; one that has a field
`num_outputs` is told how many distribution inputs the environment needs. A module may further offer
`encode`, `recur` and `decode`, whose composition is its call: the update then runs `encode` and
`decode` on all rows at once and only `recur` along time.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxmarl_ppo.networks.matmul import dense_dot_general
from jaxmarl_ppo.types import PyTree

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "silu": nn.silu,
    "gelu": nn.gelu,
}


def orthogonal(scale: float = 1.0) -> Callable[..., jax.Array]:
    """Orthogonal weights of gain `scale` (Saxe et al. 2014).

    Under `vmap` the matrices are decomposed one after the other. As a batch they can hang: JAX 0.10
    hands a batch's parts to its thread pool and waits for them there, and several batches at once
    leave a machine of few cores no thread to compute them on.
    """
    init = nn.initializers.orthogonal(scale)

    def draw(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        @jax.custom_batching.sequential_vmap
        def one(key: jax.Array) -> jax.Array:
            return init(key, shape, dtype)

        return one(key)

    return draw


# What layers can compute in; parameters are float32.
DTYPES: tuple[str, ...] = ("float32", "bfloat16")


def dense(
    features: int,
    scale: float,
    name: str | None = None,
    use_bias: bool = True,
    dtype: str = "float32",
) -> nn.Dense:
    """A dense layer with orthogonal weights of gain `scale` and zero bias, computed in `dtype`."""
    return nn.Dense(
        features,
        use_bias=use_bias,
        dtype=dtype,
        kernel_init=orthogonal(scale),
        dot_general=dense_dot_general,
        name=name,
    )


@jax.custom_vjp
def update_cell(c: jax.Array, gates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The elementwise part of an LSTM step: `c [..., H]` and `gates [..., 4 H]` to `(c, h)`.

    Gates stand in the order input, forget, cell, output. Differentiated by hand, since a scan keeps
    whatever the backward pass reads, and these are half as many arrays as if every operation kept
    its own.
    """
    return _update_cell(c, gates)[0]


def _update_cell(
    c: jax.Array, gates: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    # sigmoid(x) = (1 + tanh(x / 2)) / 2, so that all gates are one loop over tanh.
    scale, forget_bias = (
        np.repeat(np.array(of_gate, c.dtype), c.shape[-1])
        for of_gate in ((0.5, 0.5, 1.0, 0.5), (0.0, 1.0, 0.0, 0.0))
    )
    opened = (1.0 - scale) + scale * jnp.tanh(scale * (gates + forget_bias))
    i, f, g, o = jnp.split(opened, 4, axis=-1)
    new_c = f * c + i * g
    squashed = jnp.tanh(new_c)
    return (new_c, o * squashed), (i, f, g, o, c, squashed)


def _update_cell_backward(
    saved: tuple[jax.Array, ...], gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    i, f, g, o, c, squashed = saved
    of_c, of_h = gradients
    of_c = of_c + of_h * o * (1.0 - squashed**2)
    of_i, of_f, of_g, of_o = of_c * g, of_c * c, of_c * i, of_h * squashed
    of_gates = (
        of_i * i * (1.0 - i),
        of_f * f * (1.0 - f),
        of_g * (1.0 - g**2),
        of_o * o * (1.0 - o),
    )
    return of_c * f, jnp.concatenate(of_gates, axis=-1)


update_cell.defvjp(_update_cell, _update_cell_backward)


class LSTMCore(nn.Module):
    """LSTM cell (Hochreiter & Schmidhuber 1997) whose input projection is computed elsewhere.

    `project` maps inputs to gate pre-activations and has no time dependence, so a whole sequence
    goes through it in one matrix product. The forget gate is biased by 1 (Jozefowicz et al. 2015).
    Only the projections are computed in `dtype`: what is held over many steps stays float32.
    """

    size: int
    dtype: str = "float32"

    def setup(self) -> None:
        """Two projections to the four gates."""
        self.input_gates = dense(4 * self.size, 1.0, dtype=self.dtype)
        self.hidden_gates = dense(4 * self.size, 1.0, use_bias=False, dtype=self.dtype)

    def project(self, x: jax.Array) -> jax.Array:
        """Gate pre-activations from the input: `[..., D] -> [..., 4 * size]`."""
        return self.input_gates(x)

    def __call__(self, hidden: PyTree, gates: jax.Array) -> tuple[PyTree, jax.Array]:
        """One step: `((c, h), gates) -> ((c, h), h)`, each `[..., size]`."""
        c, h = hidden
        c, h = update_cell(c, (gates + self.hidden_gates(h)).astype(c.dtype))
        return (c, h), h


class Torso(nn.Module):
    """Convolutions over planes (when `channels` is not empty), then dense layers."""

    hidden_sizes: Sequence[int]
    channels: Sequence[int]
    activation: str
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[..., D]` or `[..., rows, cols, planes]` to `[..., hidden_sizes[-1]]`."""
        activate = ACTIVATIONS[self.activation]
        init = orthogonal(math.sqrt(2))
        if self.channels:
            batch_shape = x.shape[:-3]
            x = x.reshape(-1, *x.shape[-3:])
            for channels in self.channels:
                x = activate(nn.Conv(channels, (3, 3), kernel_init=init, dtype=self.dtype)(x))
            x = x.reshape(*batch_shape, -1)
        for size in self.hidden_sizes:
            x = activate(dense(size, math.sqrt(2), dtype=self.dtype)(x))
        return x


class ActorCritic(nn.Module):
    """Torso, optional LSTM, and two heads; `MLP`, `LSTM` and `CNN` are its named forms.

    Attributes:
        num_outputs: distribution inputs per row; filled in by the policy bank.
        hidden_sizes: widths of the dense layers.
        activation: a key of `ACTIVATIONS`.
        separate_critic: actor and critic each have their own torso and memory.
        dtype: what all layers but the heads are computed in, a member of `DTYPES`. Parameters,
            memory, heads and losses are float32 always. "bfloat16" is for accelerators; a CPU
            computes it more slowly.
        continuous: whether a learnt, state-independent log standard deviation is appended to the
            `num_outputs / 2` means; filled in by the policy bank.
        actor_width: how many of the inputs a separate actor sees, the critic sees all; 0 for all;
            filled in by the policy bank.
    """

    num_outputs: int = 0
    hidden_sizes: Sequence[int] = (64, 64)
    activation: str = "tanh"
    separate_critic: bool = False
    dtype: str = "float32"
    continuous: bool = False
    actor_width: int = 0

    @property
    def conv_channels(self) -> Sequence[int]:
        """Output channels of each convolution; none by default."""
        return ()

    @property
    def memory_size(self) -> int:
        """Width of the LSTM; 0 for none."""
        return 0

    def setup(self) -> None:
        """One tower for actor and critic, or two."""
        names = ("actor", "critic") if self.separate_critic else ("trunk",)
        self.torsos = [
            Torso(
                self.hidden_sizes,
                self.conv_channels,
                self.activation,
                self.dtype,
                name=f"{name}_torso",
            )
            for name in names
        ]
        if self.memory_size:
            self.cores = [
                LSTMCore(self.memory_size, self.dtype, name=f"{name}_lstm") for name in names
            ]
        num_means = self.num_outputs // 2 if self.continuous else self.num_outputs
        self.policy_head = dense(num_means, 0.01)
        self.value_head = dense(1, 1.0)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (num_means,))

    def initial_hidden(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Zeros: per tower a pair of `[*batch_shape, memory_size]`; `()` without memory."""
        if not self.memory_size:
            return ()
        zeros = jnp.zeros((*batch_shape, self.memory_size))
        return tuple((zeros, zeros) for _ in range(2 if self.separate_critic else 1))

    def encode(self, inputs: jax.Array) -> tuple[jax.Array, ...]:
        """Per tower, what does not depend on memory."""
        seen = [inputs] * len(self.torsos)
        if self.actor_width:
            seen[0] = inputs[..., : self.actor_width]
        encoded = tuple(torso(x) for torso, x in zip(self.torsos, seen, strict=True))
        if not self.memory_size:
            return encoded
        return tuple(core.project(x) for core, x in zip(self.cores, encoded, strict=True))

    def recur(
        self, hidden: PyTree, encoded: tuple[jax.Array, ...]
    ) -> tuple[PyTree, tuple[jax.Array, ...]]:
        """One step of memory in every tower."""
        if not self.memory_size:
            return hidden, encoded
        pairs = [core(h, x) for core, h, x in zip(self.cores, hidden, encoded, strict=True)]
        return tuple(h for h, _ in pairs), tuple(y for _, y in pairs)

    def decode(self, towers: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        """Distribution inputs `[..., num_outputs]` and value `[...]`."""
        outputs = self.policy_head(towers[0])
        if self.continuous:
            outputs = jnp.concatenate(
                [outputs, jnp.broadcast_to(self.log_std, outputs.shape)], axis=-1
            )
        return outputs, self.value_head(towers[-1])[..., 0]

    def __call__(self, hidden: PyTree, inputs: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """One decision for a batch of rows."""
        hidden, towers = self.recur(hidden, self.encode(inputs))
        outputs, value = self.decode(towers)
        return hidden, outputs, value


class MLP(ActorCritic):
    """Feed-forward network on flat features."""


class LSTM(ActorCritic):
    """Dense layers, then an LSTM, then the heads."""

    hidden_sizes: Sequence[int] = (64,)
    lstm_size: int = 64

    @property
    def memory_size(self) -> int:
        """Width of the LSTM."""
        return self.lstm_size


class CNN(ActorCritic):
    """3 x 3 convolutions on planes `[rows, cols, channels]`, then dense layers."""

    hidden_sizes: Sequence[int] = (128,)
    activation: str = "relu"
    channels: Sequence[int] = (32, 32)

    @property
    def conv_channels(self) -> Sequence[int]:
        """Output channels of each convolution."""
        return self.channels


NETWORKS: dict[str, type[ActorCritic]] = {"mlp": MLP, "lstm": LSTM, "cnn": CNN}
