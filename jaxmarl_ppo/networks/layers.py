"""Layers of networks: initial weights, computation types, and a torso."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_ppo.networks.matmul import conv_in, dot_general_in
from jaxmarl_ppo.types import PyTree

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "silu": nn.silu,
    "gelu": nn.gelu,
}


def orthogonal(scale: float = 1.0) -> Callable[..., jax.Array]:
    """Make an initialiser that draws orthogonal weights of gain `scale` (Saxe et al. 2014).

    Under `vmap` the matrices are decomposed one after the other, since a batch can hang. JAX 0.10
    submits a batch's parts to its thread pool and waits for them there. Several batches at once
    leave no free thread on a machine with few cores.
    """
    init = nn.initializers.orthogonal(scale)

    def draw(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        @jax.custom_batching.sequential_vmap
        def one(key: jax.Array) -> jax.Array:
            return init(key, shape, dtype)

        return one(key)

    return draw


# Types that layers can compute in; parameters are float32.
DTYPES: tuple[str, ...] = ("float32", "bfloat16")


def dense(
    features: int,
    scale: float,
    name: str | None = None,
    use_bias: bool = True,
    dtype: str = "float32",
    matmul_precision: str = "float32",
) -> nn.Dense:
    """Make a dense layer, computed in `dtype`: orthogonal weights of gain `scale`, zero bias.

    Its product is computed in `matmul_precision`, one of `matmul.MATMUL_PRECISIONS`.
    """
    return nn.Dense(
        features,
        use_bias=use_bias,
        dtype=dtype,
        kernel_init=orthogonal(scale),
        dot_general=dot_general_in(matmul_precision),
        name=name,
    )


def as_function(layer: nn.Module) -> tuple[Callable[[jax.Array, PyTree], Any], PyTree]:
    """Return a bound layer as a function `(x, params) -> y`, and its parameters."""
    unbound = layer.clone(parent=None, name=None)
    return lambda x, params: unbound.apply({"params": params}, x), layer.variables["params"]


class Torso(nn.Module):
    """The hidden layers of a tower: convolutions over planes, if it has `channels`, then dense."""

    hidden_sizes: Sequence[int]
    channels: Sequence[int]
    activation: str
    dtype: str = "float32"
    matmul_precision: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Turn `[..., D]` or `[..., rows, cols, planes]` into `[..., hidden_sizes[-1]]`."""
        activate = ACTIVATIONS[self.activation]
        init = orthogonal(math.sqrt(2))
        if self.channels:
            batch_shape = x.shape[:-3]
            x = x.reshape(-1, *x.shape[-3:])
            for channels in self.channels:
                layer = nn.Conv(
                    channels,
                    (3, 3),
                    kernel_init=init,
                    dtype=self.dtype,
                    conv_general_dilated=conv_in(self.matmul_precision),
                )
                x = activate(layer(x))
            x = x.reshape(*batch_shape, -1)
        for size in self.hidden_sizes:
            layer = dense(size, math.sqrt(2), None, True, self.dtype, self.matmul_precision)
            x = activate(layer(x))
        return x
