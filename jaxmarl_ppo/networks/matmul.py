"""The products of layers, with gradients that XLA computes fast on a CPU too.

"float32" and "tf32" differ only in a setting of XLA, made by `precision.at_precision`. In
"bfloat16" the operands of a product and of its two gradients are rounded here, and products are
summed in float32.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_ppo.machine.tuning import tuning

# A layer with so few outputs takes the gradient of its kernel output by output, see `_backward`. In
# measurements it was faster with four outputs but not with eight.
FEW_OUTPUTS = 6


def dot_general_in(precision: str) -> Callable[..., jax.Array]:
    """Return the `dot_general` of a `flax.linen.Dense` that computes in one of the precisions."""
    return bfloat16_dot_general if precision == "bfloat16" else dense_dot_general


def conv_in(precision: str) -> Callable[..., jax.Array] | None:
    """Return the `conv_general_dilated` of a `flax.linen.Conv`; None for its own."""
    return bfloat16_conv if precision == "bfloat16" else None


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


def bfloat16_dot_general(
    x: jax.Array, kernel: jax.Array, dimension_numbers: Any, precision: Any = None
) -> jax.Array:
    """Compute as `dense_dot_general`, of float32 operands that are rounded to bfloat16.

    Products and their gradients are float32, as are their sums. Layers that compute in bfloat16
    anyway (`dtype`) need no rounding, and keep their result type.
    """
    if x.dtype != jnp.float32:
        return dense_dot_general(x, kernel, dimension_numbers, precision)
    rows = _rounded_matmul(x.reshape(-1, x.shape[-1]), kernel)
    return rows.reshape(*x.shape[:-1], kernel.shape[1])


def _product(x: jax.Array, y: jax.Array, contracted: tuple[int, int] = (1, 0)) -> jax.Array:
    """Sum over one axis of either in float32, `[I, R] @ [R, J]` by default."""
    axes = (contracted[:1], contracted[1:])
    return jax.lax.dot_general(x, y, (axes, ((), ())), preferred_element_type=jnp.float32)


@jax.custom_vjp
def _rounded_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Compute `x [R, D] @ kernel [D, N]` in bfloat16; its gradient rounds the gradient, too."""
    return _rounded_forward(x, kernel)[0]


def _rounded_forward(
    x: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    # Arrays kept for the gradient are half as large as in float32.
    return _product(x, kernel), (x, kernel)


def _rounded_backward(
    saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    gradient = gradient.astype(jnp.bfloat16)
    of_x = _product(gradient, kernel, (1, 1))
    if not tuning().copies_inputs or kernel.shape[1] == 1:
        return of_x, _product(x, gradient, (0, 0))
    transposed = jax.lax.optimization_barrier(jnp.transpose(x))
    return of_x, _product(transposed, gradient)


_rounded_matmul.defvjp(_rounded_forward, _rounded_backward)


def bfloat16_conv(x: jax.Array, kernel: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
    """Compute the 3 x 3 convolutions of `layers.Torso`, with operands rounded to bfloat16.

    As the `conv_general_dilated` of `flax.linen.Conv`, whose other arguments are always the same
    there: stride 1, as many rows and columns as before.

    Args:
        x: `[R, rows, cols, C]`.
        kernel: `[3, 3, C, N]`.
        args: ignored.
        kwargs: ignored.
    """
    if x.dtype != jnp.float32:
        return jax.lax.conv_general_dilated(x, kernel, *args, **kwargs)
    return _rounded_conv(x, kernel)


def _conv(x: jax.Array, kernel: jax.Array, axes: tuple[str, str, str]) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=axes,
        preferred_element_type=jnp.float32,
    )  # fmt: skip


@jax.custom_vjp
def _rounded_conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve in bfloat16; JAX itself cannot take the gradient of a result in float32."""
    return _rounded_conv_forward(x, kernel)[0]


def _rounded_conv_forward(
    x: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return _conv(x, kernel, ("NHWC", "HWIO", "NHWC")), (x, kernel)


def _rounded_conv_backward(
    saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    gradient = gradient.astype(jnp.bfloat16)
    # The gradient of `x` is a convolution with the flipped kernel, outputs as inputs.
    of_x = _conv(gradient, kernel[::-1, ::-1], ("NHWC", "HWOI", "NHWC"))
    # That of the kernel convolves `x` with the gradient, summed over rows.
    return of_x, _conv(x, gradient, ("CHWN", "IHWO", "HWNC"))


_rounded_conv.defvjp(_rounded_conv_forward, _rounded_conv_backward)
