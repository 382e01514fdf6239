"""Distributions of real vectors between bounds, which are -1 and 1 in all of this file.

An action is kept in the form in which it was drawn, and `bounded` maps it to [-1, 1]. Probability
ratios and KL divergences are those of the kept form, which are the same for any bijection, so no
inverse is taken near a bound, where it is imprecise. `scale` maps [-1, 1] to an agent's own bounds.
A number that lacks a bound has no such range. It is drawn from a Gaussian and not mapped, only
clipped to the bound that it may have.

The distributions are those of distrax, imported at first use: the import takes longer than that of
the rest of this package.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.spaces import has_range
from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.networks.distributions import ActionDistribution

if TYPE_CHECKING:
    import distrax

# Deviations between 0.007 and 7.4: densities stay finite for any network output.
MIN_LOG_STD, MAX_LOG_STD = -5.0, 2.0
# A bound is infinitely far away; tanh of this is .995, within a quarter of a percent of the width.
FARTHEST = 3.0
# Points, in standard deviations, of an integral over a normal distribution: so many, from minus the
# farthest to the farthest. Sums over equally spaced points converge faster than Gauss and Hermite's
# for functions with a bend: the entropy is off by less than .001 for deviations up to 2.
_NUM_POINTS, _FARTHEST_POINT = 17, 4.0
_POINTS = np.linspace(-_FARTHEST_POINT, _FARTHEST_POINT, _NUM_POINTS)
_TOTAL_WEIGHT = float(np.exp(-0.5 * _POINTS**2).sum())
# The shapes of a Beta distribution are at least 1, at which it is uniform.
_LEAST_SHAPE = 1.0
# Densities are evaluated no nearer to a bound than this, in shares of the width.
_MARGIN = 1e-6


class NumbersDistribution(ActionDistribution, Protocol):
    """A distribution over real vectors `[..., N]`.

    The mask `[..., N]` marks the numbers that an agent has; the others are 0 in every action.
    """

    # Entropies are those before an action is clipped to its bounds.
    entropy_before_clipping: ClassVar[bool] = False

    @property
    def num_dims(self) -> int:
        """Number of numbers, `N`."""
        ...

    @property
    def num_log_stds(self) -> int:
        """Number of the last outputs that do not depend on the inputs: log standard deviations."""
        ...

    def parameters(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """Compute the parameters of each number's distribution by name, `[..., N]` each."""
        ...

    def bounded(self, action: jax.Array) -> jax.Array:
        """Map actions as drawn to [-1, 1]."""
        ...

    def unbounded(self, x: jax.Array) -> jax.Array:
        """Map numbers from [-1, 1] to actions as drawn, near a bound to one that can be drawn."""
        ...


@dataclass(frozen=True)
class _Independent:
    """Numbers that are independent of each other, each with two parameters."""

    num_dims: int
    entropy_before_clipping: ClassVar[bool] = False

    @property
    def num_outputs(self) -> int:
        """Number of outputs: two parameters per number."""
        return 2 * self.num_dims

    def _distribution(self, outputs: jax.Array) -> Any:
        """Make the distribution of each number, `[..., N]`, as distrax has it."""
        raise NotImplementedError

    def kl(self, outputs: jax.Array, others: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(outputs' distribution || others'), `[...]`."""
        first, second = self._distribution(outputs), self._distribution(others)
        return jnp.where(mask, first.kl_divergence(second), 0.0).sum(-1)

    def kl_from_uniform(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Return 0, `[...]`: numbers have no choices."""
        del outputs
        return jnp.zeros(mask.shape[:-1])


class _Gaussian(_Independent):
    """A diagonal Gaussian; outputs are means, then log standard deviations, or a pair of both."""

    @property
    def num_log_stds(self) -> int:
        """Number of log standard deviations."""
        return self.num_dims

    def _distribution(self, outputs: jax.Array) -> "distrax.Normal":
        import distrax

        # Kernels of a GPU cannot cut arrays (`policies/fused_distribution.py`).
        apart = isinstance(outputs, tuple)
        mean, log_std = outputs if apart else jnp.split(outputs, 2, axis=-1)
        return distrax.Normal(mean, jnp.exp(jnp.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)))

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw standard normal numbers, `[*shape, N]`."""
        return jax.random.normal(unrolled(key), (*shape, self.num_dims))

    def sample(self, noise: jax.Array, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Draw an action per row."""
        distribution = self._distribution(outputs)
        return jnp.where(mask, distribution.loc + distribution.scale * noise, 0.0)

    def mode(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Return the mean per row, `[..., N]`."""
        return jnp.where(mask, self._distribution(outputs).mode(), 0.0)

    def log_prob(self, outputs: jax.Array, mask: jax.Array, action: jax.Array) -> jax.Array:
        """Compute the log-density of an action as drawn, `[...]`."""
        return jnp.where(mask, self._distribution(outputs).log_prob(action), 0.0).sum(-1)

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy of the Gaussian, `[...]`."""
        return jnp.where(mask, self._distribution(outputs).entropy(), 0.0).sum(-1)

    def parameters(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """Compute mean and standard deviation of each number as drawn, `[..., N]`."""
        distribution = self._distribution(outputs)
        return {"mean": jnp.asarray(distribution.loc), "std": jnp.asarray(distribution.scale)}


class SquashedGaussian(_Gaussian):
    """A diagonal Gaussian whose draws are mapped to (-1, 1) by tanh.

    Actions and densities are those before tanh. The entropy is that of the action after it.
    """

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        r"""Compute the entropy of `tanh(u)`, `[...]`: `H(u) + E[log(1 - tanh(u)^2)]`.

        The expectation is a sum over points of the Gaussian, differentiable in its parameters.
        Without it the entropy would grow without end, and all actions would end at a bound.
        """
        distribution = self._distribution(outputs)
        mean, std = jnp.asarray(distribution.loc), jnp.asarray(distribution.scale)
        expected = _expected_log_slope(mean, std)
        return jnp.where(mask, distribution.entropy() + expected, 0.0).sum(-1)

    def bounded(self, action: jax.Array) -> jax.Array:
        """Map actions as drawn to (-1, 1)."""
        return jnp.tanh(action)

    def unbounded(self, x: jax.Array) -> jax.Array:
        """Invert `bounded`; values at or near a bound become plus or minus `FARTHEST`."""
        limit = jnp.tanh(FARTHEST)
        return jnp.arctanh(jnp.clip(x, -limit, limit))


@jax.custom_jvp
def _expected_log_slope(mean: jax.Array, std: jax.Array) -> jax.Array:
    """Compute E[log(1 - tanh(u)^2)] of Gaussian numbers `u`.

    The derivatives are sums over the same points, so nothing is kept of any of them.
    """
    return _expected_log_slopes(mean, std)[0]


def _expected_log_slopes(mean: jax.Array, std: jax.Array) -> tuple[jax.Array, ...]:
    """Compute the expectation, and its derivatives by mean and standard deviation."""

    def add_point(index: Any, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        point = index * (2 * _FARTHEST_POINT / (_NUM_POINTS - 1)) - _FARTHEST_POINT
        weight = jnp.exp(-0.5 * point**2) / _TOTAL_WEIGHT
        u = mean + std * point
        # Neither of these underflows.
        small = jnp.exp(-2.0 * jnp.abs(u))
        log_slope = 2.0 * (np.log(2.0) - jnp.abs(u) - jnp.log1p(small))
        derivative = -2.0 * jnp.sign(u) * (1.0 - small) / (1.0 + small)
        terms = (log_slope, derivative, derivative * point)
        return tuple(total + weight * x for total, x in zip(sums, terms, strict=True))

    zeros = (jnp.zeros_like(mean),) * 3
    if not tuning().unrolls_integrals:
        return jax.lax.fori_loop(0, _NUM_POINTS, add_point, zeros)
    return functools.reduce(lambda sums, index: add_point(index, sums), range(_NUM_POINTS), zeros)


@_expected_log_slope.defjvp
def _(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    expected, by_mean, by_std = _expected_log_slopes(*primals)
    return expected, by_mean * tangents[0] + by_std * tangents[1]


class ClippedGaussian(_Gaussian):
    """A diagonal Gaussian whose draws are clipped to [-1, 1] where the environment takes them.

    Densities and entropies are those before clipping.
    """

    entropy_before_clipping: ClassVar[bool] = True

    def bounded(self, action: jax.Array) -> jax.Array:
        """Clip actions as drawn to [-1, 1]."""
        return jnp.clip(action, -1.0, 1.0)

    def unbounded(self, x: jax.Array) -> jax.Array:
        """Return the numbers as they are."""
        return x


class BetaDistribution(_Independent):
    """Independent Beta distributions over [0, 1], for numbers from -1 to 1 (Chou et al. 2017).

    Outputs are two per number, of which softplus, plus 1, are the two shapes. So a density has one
    peak, or none. Actions are those in [0, 1]. Densities are of these, the entropy is of the number
    from -1 to 1.
    """

    @property
    def num_log_stds(self) -> int:
        """Number of log standard deviations: none."""
        return 0

    def _distribution(self, outputs: jax.Array) -> "distrax.Beta":
        import distrax

        first, second = jnp.split(_LEAST_SHAPE + jax.nn.softplus(outputs), 2, axis=-1)
        return distrax.Beta(first, second)

    def parameters(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """Compute both shapes of each number's distribution over [0, 1], `[..., N]`."""
        distribution = self._distribution(outputs)
        return {
            "alpha": jnp.asarray(distribution.alpha),
            "beta": jnp.asarray(distribution.beta),
        }

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw the words of a key per number, `[*shape, N, 2]` uint32."""
        return jax.random.bits(unrolled(key), (*shape, self.num_dims, 2), jnp.uint32)

    def sample(self, noise: jax.Array, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Draw an action per row."""
        distribution = self._distribution(outputs)
        keys = jax.random.wrap_key_data(noise, impl="threefry2x32")
        draw = jnp.vectorize(jax.random.beta)
        drawn = draw(keys, distribution.alpha, distribution.beta)
        return jnp.where(mask, drawn, 0.0)

    def mode(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Return the most likely action per row."""
        distribution = self._distribution(outputs)
        excess = jnp.maximum(distribution.alpha + distribution.beta - 2.0, _MARGIN)
        return jnp.where(mask, (distribution.alpha - 1.0) / excess, 0.0)

    def log_prob(self, outputs: jax.Array, mask: jax.Array, action: jax.Array) -> jax.Array:
        """Compute the log-density of an action in [0, 1], `[...]`."""
        inside = jnp.clip(action, _MARGIN, 1.0 - _MARGIN)
        return jnp.where(mask, self._distribution(outputs).log_prob(inside), 0.0).sum(-1)

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy of the numbers from -1 to 1, `[...]`."""
        entropy = self._distribution(outputs).entropy() + np.log(2.0)
        return jnp.where(mask, entropy, 0.0).sum(-1)

    def bounded(self, action: jax.Array) -> jax.Array:
        """Map actions in [0, 1] to [-1, 1]."""
        return 2.0 * action - 1.0

    def unbounded(self, x: jax.Array) -> jax.Array:
        """Invert `bounded`."""
        return 0.5 * (x + 1.0)


# By their names in configurations and on the command line.
NUMBERS: dict[str, type[SquashedGaussian | BetaDistribution | ClippedGaussian]] = {
    "squashed": SquashedGaussian,
    "beta": BetaDistribution,
    "clipped": ClippedGaussian,
}
DEFAULT_NUMBERS = "squashed"
UNBOUNDED_NUMBERS = "clipped"  # the only one for agents of whom a number lacks a bound


def scale(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Map numbers from [-1, 1] to `[low, high]`; those without a range stay as they are."""
    scaled = jnp.where(has_range(low, high), low + (high - low) * 0.5 * (1.0 + x), x)
    # Rounding could leave the bounds.
    return jnp.clip(scaled, low, high)


def unscale(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Invert `scale`, with numbers outside the bounds at -1 or 1; 0 where the bounds are equal."""
    width = high - low
    share = 2.0 * (x - low) / jnp.where(width > 0, width, 1.0) - 1.0
    share = jnp.where(width > 0, jnp.clip(share, -1.0, 1.0), 0.0)
    return jnp.where(has_range(low, high), share, x)
