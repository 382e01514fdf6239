"""The minGRU: memory whose gates do not depend on it, so no loop over time is needed."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_ppo.networks.layers import dense
from jaxmarl_ppo.types import PyTree


class MinGRUCore(nn.Module):
    """A minGRU (Feng et al. 2024) with an output gate: `h' = (1 - z) h + z c`, `y = o * h'`.

    Gates `z` and `o` and the candidate `c` are functions of the input alone. So a step is linear in
    `h`, and steps can be composed before `h` is known: see `recurrence.unroll_linear`. Since every
    `1 - z` lies between 0 and 1, products of them only ever vanish, and nothing has to be computed
    in logarithms. The output gate is not in the paper, which stacks more layers instead. Without
    it, memory that one input needs and the next does not could only be forgotten, or shown to both
    (`docs/learning.md`).

    The gate initially keeps the past, like the LSTM's; memory is always float32.
    """

    size: int
    dtype: str = "float32"
    matmul_precision: str = "float32"

    def setup(self) -> None:
        """Make the projection of the input to both gates and the candidate."""
        computed_in = (self.dtype, self.matmul_precision)
        self.input_gates = dense(3 * self.size, 1.0, None, True, *computed_in)

    @staticmethod
    def initial_hidden(size: int, batch_shape: tuple[int, ...]) -> jax.Array:
        """Return zeros `[*batch_shape, size]`."""
        return jnp.zeros((*batch_shape, size))

    def project(self, x: jax.Array) -> jax.Array:
        """Compute gates and candidate before their activations: `[..., D] -> [..., 3 * size]`."""
        return self.input_gates(x)

    def coefficients(self, gates: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Compute `a` and `b [..., size]` of `h' = a h + b` from those of `project`."""
        kept, candidate, _ = jnp.split(gates.astype(jnp.float32), 3, axis=-1)
        kept = nn.sigmoid(kept + 1.0)
        return kept, (1.0 - kept) * candidate

    def read(self, hidden: jax.Array, gates: jax.Array) -> jax.Array:
        """Compute the output from the memory after a step, `[..., size]`."""
        return nn.sigmoid(gates[..., 2 * self.size :].astype(hidden.dtype)) * hidden

    def __call__(self, hidden: PyTree, gates: jax.Array) -> tuple[PyTree, jax.Array]:
        """Take one step, `(h, gates) -> (h, y)`; `gates` are those of `project`."""
        a, b = self.coefficients(gates)
        h = a * hidden + b
        return h, self.read(h, gates)
