"""Calls of Python functions out of a compiled program, once for all environments of a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from jaxmarl_envs.backend import backend
from jaxmarl_envs.user_code import HostEnvironmentError

HostFunction = Callable[..., Sequence[np.ndarray]]


def call_host(
    function: HostFunction,
    rank: int,
    results: Sequence[jax.ShapeDtypeStruct],
    *args: jax.Array,
) -> tuple[jax.Array, ...]:
    """Call a function on the host, of one environment as it is traced.

    On a CPU the function reads and writes the program's own memory. Elsewhere all is copied to the
    host and back, and copies are made by JAX, which takes much longer than a call.

    Args:
        function: from arrays `[E, ...]` to arrays `[E, ...]`.
        rank: axes of the first argument.
        results: of one environment.
        args: likewise.
    """

    def call(*args: Any) -> tuple[np.ndarray, ...]:
        # What is returned may be copied only later.
        return tuple(map(np.copy, _batched(function, rank, *args)))

    def write(context: Any, out: Sequence[Any], *args: Any) -> None:
        del context
        for place, found in zip(out, _batched(function, rank, *args), strict=True):
            np.asarray(place)[...] = found

    if backend() == "cpu":
        return buffer_callback(write, tuple(results), vmap_method="broadcast_all")(*args)
    return jax.pure_callback(call, tuple(results), *args, vmap_method="broadcast_all")


def _batched(function: HostFunction, rank: int, *args: Any) -> list[np.ndarray]:
    """Call a function with one leading axis in place of all but the last `rank` of `args[0]`."""
    arrays = [np.asarray(x) for x in args]
    axes = arrays[0].shape[: arrays[0].ndim - rank]
    rows = [x.reshape(-1, *x.shape[len(axes) :]) for x in arrays]
    try:
        return [x.reshape(*axes, *x.shape[1:]) for x in function(*rows)]
    except KeyboardInterrupt as error:
        # JAX would turn it into an indistinguishable error.
        raise HostEnvironmentError("stepping was interrupted", interrupt=error) from None
