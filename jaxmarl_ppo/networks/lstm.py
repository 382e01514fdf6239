"""The LSTM cell, with a custom gradient that keeps few arrays."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxmarl_ppo.networks.layers import as_function, dense
from jaxmarl_ppo.networks.recurrence import Lives, unroll_product
from jaxmarl_ppo.types import PyTree


@jax.custom_vjp
def update_cell(c: jax.Array, gates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the elementwise part of an LSTM step, from `c [..., H]` and `gates [..., 4 H]`.

    Gates stand in the order input, forget, cell, output. Differentiated by hand: a scan keeps
    whatever the backward pass reads, and these are half as many arrays as with automatic
    differentiation.

    Returns:
        `(c, h)`, each `[..., H]`.
    """
    return _update_cell(c, gates)[0]


def _update_cell(
    c: jax.Array, gates: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    """Compute what `update_cell` returns, and the six arrays `[..., H]` that its gradient reads."""
    # sigmoid(x) = (1 + tanh(x / 2)) / 2, so that all gates are one loop over tanh.
    scale, forget_bias = (
        np.repeat(np.array(of_gate, c.dtype), c.shape[-1])
        for of_gate in ((0.5, 0.5, 1.0, 0.5), (0.0, 1.0, 0.0, 0.0))
    )
    opened = (1.0 - scale) + scale * jnp.tanh(scale * (gates + forget_bias))
    # Kept as four arrays: as one they made the backward pass a third slower.
    i, f, g, o = jnp.split(opened, 4, axis=-1)
    new_c = f * c + i * g
    squashed = jnp.tanh(new_c)
    return (new_c, o * squashed), (i, f, g, o, c, squashed)


def _update_cell_backward(
    saved: tuple[jax.Array, ...], gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Turn gradients of `(c, h)` into those of the cell before, and of the gates."""
    i, f, g, o, c, squashed = saved
    of_c, of_h = gradients
    of_c = of_c + of_h * o * (1.0 - squashed**2)
    of_i, of_f, of_g, of_o = of_c * g, of_c * c, of_c * i, of_h * squashed
    # Derivatives from the stored results: s (1 - s) of a sigmoid, 1 - t^2 of a tanh.
    of_gates = (
        of_i * i * (1.0 - i),
        of_f * f * (1.0 - f),
        of_g * (1.0 - g**2),
        of_o * o * (1.0 - o),
    )
    return of_c * f, jnp.concatenate(of_gates, axis=-1)


update_cell.defvjp(_update_cell, _update_cell_backward)


class LSTMCore(nn.Module):
    """An LSTM cell (Hochreiter & Schmidhuber 1997) with a separate input projection.

    `project` maps inputs to gate pre-activations and has no time dependence, so a whole sequence
    goes through it in one matrix product. The forget gate is biased by 1 (Jozefowicz et al. 2015).
    Only the projections are computed in `dtype`: memory stays float32.
    """

    size: int
    dtype: str = "float32"
    matmul_precision: str = "float32"

    def setup(self) -> None:
        """Make two projections to the four gates, from the input and from `h`."""
        computed_in = (self.dtype, self.matmul_precision)
        self.input_gates = dense(4 * self.size, 1.0, None, True, *computed_in)
        # Both projections are added, so one bias is enough.
        self.hidden_gates = dense(4 * self.size, 1.0, None, False, *computed_in)

    @staticmethod
    def initial_hidden(size: int, batch_shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """Return zeros `(c, h)`, each `[*batch_shape, size]`."""
        zeros = jnp.zeros((*batch_shape, size))
        return zeros, zeros

    def project(self, x: jax.Array) -> jax.Array:
        """Compute gate pre-activations from the input: `[..., D] -> [..., 4 * size]`."""
        return self.input_gates(x)

    def __call__(self, hidden: PyTree, gates: jax.Array) -> tuple[PyTree, jax.Array]:
        """Take one step: `((c, h), gates) -> ((c, h), h)`.

        `gates [..., 4 * size]` are those of `project`; the others are `[..., size]`.
        """
        return self.cell(hidden, gates, self.hidden_gates(hidden[1]))

    @staticmethod
    def cell(hidden: PyTree, gates: jax.Array, recurrent: jax.Array) -> tuple[PyTree, jax.Array]:
        """Take one step, given the product `recurrent [..., 4 * size]` of `h` and its weights."""
        c, h = update_cell(hidden[0], (gates + recurrent).astype(hidden[0].dtype))
        return (c, h), h

    def unroll(self, hidden: PyTree, gates: jax.Array, lives: Lives) -> jax.Array:
        """Take the steps of chunks, as `recurrence.unroll_product`."""
        product, params = as_function(self.hidden_gates)
        return unroll_product(self.cell, product, params, hidden, gates, lives)
