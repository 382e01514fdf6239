"""Action and observation spaces with gymnax's names and attributes, without importing gymnax."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# The most combinations of several choices that can be learned as one.
MAX_CHOICES = 10_000
_NO_BOUND = 1e38  # ends of a Box that are at least this far away are no bounds


@dataclass(frozen=True)
class Discrete:
    """The integers `0 .. n - 1`."""

    n: int
    shape: tuple[int, ...] = field(default=(), init=False)
    dtype: type = field(default=jnp.int32, init=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Discrete(n={self.n}): n must be at least 1")

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw an element uniformly, of shape `()`."""
        return jax.random.randint(key, (), 0, self.n)

    def contains(self, x: jax.Array) -> jax.Array:
        """Return whether `x` lies in the space."""
        return jnp.logical_and(x >= 0, x < self.n)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once; choice `i` is one of the integers `0 .. nvec[i] - 1`."""

    nvec: Sequence[int]
    dtype: type = field(default=jnp.int32, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nvec", tuple(int(n) for n in self.nvec))
        if not self.nvec or min(self.nvec) < 1:
            raise ValueError(
                f"MultiDiscrete({list(self.nvec)}): give at least one choice, each of at least 1"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an element."""
        return (len(self.nvec),)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw an element uniformly, `[C]`."""
        return jax.random.randint(key, self.shape, 0, jnp.array(self.nvec))

    def contains(self, x: jax.Array) -> jax.Array:
        """Return whether `x` lies in the space."""
        return jnp.all((x >= 0) & (x < jnp.array(self.nvec)))


@dataclass(frozen=True)
class Box:
    """Real arrays of `shape` between the bounds, which are scalars or arrays of that shape.

    A bound may be infinite.
    """

    low: float | np.ndarray
    high: float | np.ndarray
    shape: tuple[int, ...]
    dtype: type = field(default=jnp.float32, init=False)

    def __post_init__(self) -> None:
        # Bounds that depend on parameters are not known while a function of these is traced.
        if is_known(self.low, self.high) and not np.all(np.asarray(self.low) <= self.high):
            raise ValueError(f"Box(low={self.low}, high={self.high}): low must not exceed high")

    @property
    def size(self) -> int:
        """Count the elements of an array in the space."""
        return math.prod(self.shape)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw an array of `shape`: as `from_uniform` does."""
        return from_uniform(jax.random.uniform(key, self.shape), self.low, self.high)

    def contains(self, x: jax.Array) -> jax.Array:
        """Return whether `x` lies in the space."""
        return jnp.all((x >= self.low) & (x <= self.high))


@dataclass(frozen=True)
class Tuple:
    """The product of several spaces, which may be tuples themselves."""

    spaces: Sequence["Space"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "spaces", tuple(self.spaces))
        if not self.spaces:
            raise ValueError("Tuple(()): give at least one space")

    def sample(self, key: jax.Array) -> tuple:
        """Draw an element of each space uniformly."""
        keys = jax.random.split(key, len(self.spaces))
        return tuple(space.sample(key) for space, key in zip(self.spaces, keys, strict=True))

    def contains(self, x: Sequence) -> jax.Array:
        """Return whether `x` lies in the space."""
        pairs = zip(self.spaces, x, strict=True)
        return jnp.all(jnp.stack([space.contains(part) for space, part in pairs]))


def is_known(*values: Any) -> bool:
    """Return whether values are known now, not only when a function that is traced runs."""
    return not any(isinstance(x, Tracer) for x in values)


def is_bound(end: Any) -> Any:
    """Return which ends of a Box bound its numbers, `[...]` bool.

    Some environments write the greatest number of a float32 where there is no bound.
    """
    return abs(end) < _NO_BOUND


def has_range(low: Any, high: Any) -> Any:
    """Return which numbers have both bounds, `[...]` bool.

    Args:
        low: their lowest values, `[...]`.
        high: their highest values, `[...]`.
    """
    return is_bound(low) & is_bound(high)


def from_uniform(noise: Any, low: Any, high: Any) -> Any:
    """Turn uniform noise on [0, 1) into numbers between bounds, uniformly where they have a range.

    Above or below a single bound the numbers are exponentially distributed with a mean distance of
    1 from it. Without bounds they have the standard logistic distribution.

    Args:
        noise: `[..., N]`, NumPy's or JAX's; the result is of the same library.
        low: lowest numbers, `[N]`.
        high: highest numbers, `[N]`.
    """
    xp = jnp if isinstance(noise, jax.Array) else np
    least, most = (xp.where(is_bound(end), end, 0.0) for end in (low, high))
    inside = least + noise * (most - least)
    share = xp.clip(noise, 1e-6, 1 - 1e-6)
    # Without one bound or both, distances from the other or from 0.
    up = xp.where(is_bound(high), 0.0, -xp.log1p(-share))
    down = xp.where(is_bound(low), 0.0, xp.log(share))
    far = least + most + up + down
    ranged = has_range(low, high)
    # Rounding could leave the bounds.
    return xp.clip(xp.where(ranged, inside, far), low, high)


Space = Discrete | MultiDiscrete | Box | Tuple
