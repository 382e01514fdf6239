"""The matrix product of dense layers, with gradients that XLA computes fast on a CPU too."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_ppo.machine.tuning import tuning

# A layer with so few outputs takes the gradient of its kernel output by output, see `_backward`.
# Where that was measured it paid with four outputs and no longer with eight.
FEW_OUTPUTS = 6


def dense_dot_general(
    x: jax.Array, kernel: jax.Array, dimension_numbers: Any, precision: Any = None
) -> jax.Array:
    """Compute `x [..., D] @ kernel [D, N]`, as the `dot_general` of `flax.linen.Dense`.

    On a CPU the kernel's gradient `x^T g` is a product of a transposed copy of `x`. XLA reads a
    matrix by columns at half the speed, and under several batch axes, where it copies `g` instead,
    at a third; the copy costs a tenth of the product.
    """
    if not tuning().copies_inputs:
        return jax.lax.dot_general(x, kernel, dimension_numbers, precision=precision)
    rows = _matmul(x.reshape(-1, x.shape[-1]), kernel)
    return rows.reshape(*x.shape[:-1], kernel.shape[1])


@jax.custom_vjp
def _matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Compute `x [R, D] @ kernel [D, N]`, whose gradient is `_backward`."""
    return x @ kernel


def _forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ kernel, (x, kernel)


def _backward(
    saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Turn the gradient `[R, N]` of the product into those of `x` and of `kernel`."""
    x, kernel = saved
    if kernel.shape[1] <= FEW_OUTPUTS:
        # Products with a row read `x` as it is, and cost less than its copy.
        by_output = [gradient[:, i] @ x for i in range(kernel.shape[1])]
        of_kernel = jnp.stack(by_output, axis=1)
        # With a single column it would be a plain loop.
        of_x = gradient * kernel.T if kernel.shape[1] == 1 else gradient @ kernel.T
        return of_x, of_kernel
    # Without the barrier the transposition would become part of the product again.
    transposed = jax.lax.optimization_barrier(jnp.transpose(x))
    return gradient @ kernel.T, transposed @ gradient


_matmul.defvjp(_forward, _backward)
