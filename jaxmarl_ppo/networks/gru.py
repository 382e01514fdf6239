"""The GRU cell, with a custom gradient that keeps few arrays."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_ppo.networks.layers import as_function, dense
from jaxmarl_ppo.networks.recurrence import Lives, unroll_product
from jaxmarl_ppo.types import PyTree


@jax.custom_vjp
def update_cell(h: jax.Array, gates: jax.Array, recurrent: jax.Array) -> jax.Array:
    """Compute the elementwise part of a GRU step: `h [..., H]` from the one before.

    `gates` and `recurrent [..., 3 H]` are what the input and `h` contribute to reset gate, update
    gate and candidate, in this order: `h' = (1 - z) tanh(x + r * y) + z h`. Differentiated by hand,
    for the same reason as `lstm.update_cell`.
    """
    return _update_cell(h, gates, recurrent)[0]


def _update_cell(
    h: jax.Array, gates: jax.Array, recurrent: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Compute what `update_cell` returns, and five arrays `[..., H]` that its gradient reads."""
    (of_r, of_z, of_n), (from_r, from_z, from_n) = (
        jnp.split(x, 3, axis=-1) for x in (gates, recurrent)
    )
    r, z = nn.sigmoid(of_r + from_r), nn.sigmoid(of_z + from_z)
    n = jnp.tanh(of_n + r * from_n)
    return n + z * (h - n), (r, z, n, from_n, h)


def _update_cell_backward(
    saved: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Turn the gradient of the new `h` into those of `h` before, of `gates` and of `recurrent`."""
    r, z, n, from_n, h = saved
    of_n = gradient * (1.0 - z) * (1.0 - n**2)
    of_z = gradient * (h - n) * z * (1.0 - z)
    of_r = of_n * from_n * r * (1.0 - r)
    of_gates = jnp.concatenate((of_r, of_z, of_n), axis=-1)
    return gradient * z, of_gates, jnp.concatenate((of_r, of_z, of_n * r), axis=-1)


update_cell.defvjp(_update_cell, _update_cell_backward)


class GRUCore(nn.Module):
    """A GRU cell (Cho et al. 2014) with a separate input projection.

    The reset gate is applied behind the product with `h`, as in cuDNN, PyTorch and flax. The
    remarks on projections in `LSTMCore` apply here too.
    """

    size: int
    dtype: str = "float32"
    matmul_precision: str = "float32"

    def setup(self) -> None:
        """Make two projections to gates and candidate, from the input and from `h`."""
        computed_in = (self.dtype, self.matmul_precision)
        self.input_gates = dense(3 * self.size, 1.0, None, True, *computed_in)
        self.hidden_gates = dense(3 * self.size, 1.0, None, False, *computed_in)
        # The only bias that is not added to another: the reset gate is applied to it.
        self.candidate_bias = self.param("candidate_bias", nn.initializers.zeros, (self.size,))

    @staticmethod
    def initial_hidden(size: int, batch_shape: tuple[int, ...]) -> jax.Array:
        """Return zeros `[*batch_shape, size]`."""
        return jnp.zeros((*batch_shape, size))

    def project(self, x: jax.Array) -> jax.Array:
        """Compute what the input contributes to the gates: `[..., D] -> [..., 3 * size]`."""
        return self.input_gates(x)

    def __call__(self, hidden: PyTree, gates: jax.Array) -> tuple[PyTree, jax.Array]:
        """Take one step, `(h, gates) -> (h, h)`; `gates` are those of `project`."""
        recurrent = self.hidden_gates(hidden).astype(hidden.dtype) + self._bias()
        return self.cell(hidden, gates, recurrent)

    @staticmethod
    def cell(hidden: PyTree, gates: jax.Array, recurrent: jax.Array) -> tuple[PyTree, jax.Array]:
        """Take one step, given `recurrent [..., 3 * size]`, what `h` contributes to the gates."""
        h = update_cell(hidden, gates.astype(hidden.dtype), recurrent)
        return h, h

    def unroll(self, hidden: PyTree, gates: jax.Array, lives: Lives) -> jax.Array:
        """Take the steps of chunks, as `recurrence.unroll_product`."""
        layer, weights = as_function(self.hidden_gates)

        def product(h: jax.Array, params: tuple[PyTree, jax.Array]) -> jax.Array:
            weights, bias = params
            return layer(h, weights).astype(h.dtype) + bias

        return unroll_product(self.cell, product, (weights, self._bias()), hidden, gates, lives)

    def _bias(self) -> jax.Array:
        return jnp.pad(self.candidate_bias, (2 * self.size, 0))
