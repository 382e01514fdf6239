"""Distributions of numbers between bounds, against NumPy and numerical integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.networks.numbers import (
    FARTHEST,
    MAX_LOG_STD,
    MIN_LOG_STD,
    NUMBERS,
    BetaDistribution,
    ClippedGaussian,
    SquashedGaussian,
    scale,
    unscale,
)

GAUSSIANS = (SquashedGaussian, ClippedGaussian)


def draw(distribution, key, outputs, mask):
    return distribution.sample(distribution.noise(key, outputs.shape[:-1]), outputs, mask)


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_gaussians_leave_out_numbers_that_do_not_exist(kind):
    rng = np.random.default_rng(1)
    mean, log_std, action = rng.normal(size=(3, 20, 3))
    log_std[0], log_std[1] = -40.0, 40.0
    mask = rng.random((20, 3)) < 0.6
    mask[:2] = True
    outputs = np.concatenate([mean, log_std], -1).astype(np.float32)
    distribution = kind(3)
    std = np.exp(np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD))
    z = (action - mean) / std
    log_prob = np.where(mask, -(z**2) / 2 - np.log(std) - np.log(2 * np.pi) / 2, 0.0).sum(-1)
    actual = distribution.log_prob(outputs, mask, action.astype(np.float32))
    np.testing.assert_allclose(actual, log_prob, rtol=1e-3, atol=1e-4)
    for drawn in (
        draw(distribution, jax.random.key(0), jnp.array(outputs), jnp.array(mask)),
        distribution.mode(jnp.array(outputs), jnp.array(mask)),
    ):
        np.testing.assert_array_equal(np.asarray(drawn)[~mask], 0.0)
    assert distribution.num_outputs == 6
    assert distribution.num_log_stds == 3


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_kl_divergence_of_gaussians(kind):
    rng = np.random.default_rng(2)
    (mean, log_std), (other, other_log) = 0.5 * rng.normal(size=(2, 2, 20, 3))
    mask = rng.random((20, 3)) < 0.6
    first, second = (
        np.concatenate(x, -1).astype(np.float32) for x in ((mean, log_std), (other, other_log))
    )
    expected = other_log - log_std - 0.5
    expected += (np.exp(2 * log_std) + (mean - other) ** 2) / (2 * np.exp(2 * other_log))
    actual = kind(3).kl(first, second, mask)
    np.testing.assert_allclose(actual, np.where(mask, expected, 0.0).sum(-1), rtol=1e-4)


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_gaussian_draws_have_the_moments_of_the_outputs(kind):
    outputs = jnp.broadcast_to(jnp.array([1.0, -2.0, np.log(0.5), np.log(2.0)]), (20000, 4))
    mask = jnp.ones((20000, 2), bool)
    draws = draw(kind(2), jax.random.key(0), outputs, mask)
    np.testing.assert_allclose(draws.mean(0), [1.0, -2.0], atol=0.06)
    np.testing.assert_allclose(draws.std(0), [0.5, 2.0], rtol=0.05)


def squashed_entropy(mean, log_std):
    """The entropy of `tanh(u)`, by integrating its density over a fine grid of `u`."""
    std = np.exp(log_std)
    u = mean + std * np.linspace(-10, 10, 200_001)
    log_density = -0.5 * ((u - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    log_slope = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
    return -np.trapezoid(np.exp(log_density) * (log_density - log_slope), u)


@pytest.mark.parametrize("log_std", [-4.0, -2.0, -1.0, -0.5, 0.0, 0.4, 0.7])
def test_entropy_of_a_squashed_gaussian_is_that_of_what_is_played(log_std):
    def entropy(mean, log_std):
        outputs = jnp.stack([mean, log_std])
        return SquashedGaussian(1).entropy(outputs, jnp.ones(1, bool))

    value_and_grad = jax.jit(jax.value_and_grad(entropy, argnums=(0, 1)))
    for mean in (-2.5, -0.3, 0.0, 1.0):
        value, grads = value_and_grad(jnp.float32(mean), jnp.float32(log_std))
        assert float(value) == pytest.approx(squashed_entropy(mean, log_std), abs=1e-3)
        h = 1e-4
        expected = (
            (squashed_entropy(mean + h, log_std) - squashed_entropy(mean - h, log_std)) / (2 * h),
            (squashed_entropy(mean, log_std + h) - squashed_entropy(mean, log_std - h)) / (2 * h),
        )
        np.testing.assert_allclose(grads, expected, atol=4e-3)


def test_no_squashed_gaussian_has_more_entropy_than_uniform_play():
    means, log_stds = np.meshgrid(np.linspace(-2, 2, 9), np.linspace(-5, 2, 57))
    outputs = np.stack([means, log_stds], -1).astype(np.float32)
    entropy = np.asarray(SquashedGaussian(1).entropy(outputs, np.ones((1, 1, 1), bool)))
    assert np.log(2) - 0.05 < entropy.max() <= np.log(2)
    # Neither a narrow nor a wide one has much, so the entropy pulls to neither end.
    assert (entropy[[0, -1]] < -2).all()


def test_entropy_of_a_clipped_gaussian_is_that_before_clipping():
    mean, log_std = 0.5 * np.random.default_rng(3).normal(size=(2, 20, 3)).astype(np.float32)
    mask = np.random.default_rng(4).random((20, 3)) < 0.6
    expected = np.where(mask, 0.5 + np.log(2 * np.pi) / 2 + log_std, 0.0).sum(-1)
    outputs = np.concatenate([mean, log_std], -1)
    np.testing.assert_allclose(ClippedGaussian(3).entropy(outputs, mask), expected, atol=1e-5)
    assert ClippedGaussian.entropy_before_clipping
    assert not SquashedGaussian.entropy_before_clipping


def beta_density(outputs, x):
    """Density of numbers `x` from -1 to 1, normalised by integration."""
    first, second = 1 + np.logaddexp(0, outputs)
    grid = np.linspace(0, 1, 200_001)[1:-1]

    def power(x):
        return x ** (first - 1) * (1 - x) ** (second - 1)

    return power((x + 1) / 2) / np.trapezoid(power(grid), grid) / 2


@pytest.mark.parametrize("outputs", [(0.0, 0.0), (-9.0, -9.0), (3.0, -1.0), (20.0, 40.0)])
def test_beta_against_integration(outputs):
    row, mask = np.array(outputs, np.float32), np.ones(1, bool)
    distribution = BetaDistribution(1)
    x = np.linspace(-1, 1, 200_001)[1:-1]
    density = beta_density(np.array(outputs, float), x)
    entropy = -np.trapezoid(density * np.log(np.maximum(density, 1e-300)), x)
    assert float(distribution.entropy(row, mask)) == pytest.approx(entropy, abs=2e-3)
    # Densities are those of numbers from 0 to 1, twice as dense.
    at = np.array([0.1, 0.35, 0.5, 0.8])[:, None]
    log_prob = distribution.log_prob(np.tile(row, (4, 1)), mask, at.astype(np.float32))
    expected = np.log(2 * beta_density(np.array(outputs, float), 2 * at[:, 0] - 1))
    np.testing.assert_allclose(log_prob, expected, rtol=2e-3, atol=2e-3)
    draws = draw(distribution, jax.random.key(0), jnp.tile(row, (20_000, 1)), jnp.array(mask))
    played = np.asarray(distribution.bounded(draws))[:, 0]
    mean = np.trapezoid(density * x, x)
    std = np.sqrt(np.trapezoid(density * (x - mean) ** 2, x))
    assert played.mean() == pytest.approx(mean, abs=4 * std / np.sqrt(20_000))
    assert played.std() == pytest.approx(std, rel=0.03)
    assert (np.abs(played) <= 1).all()


def test_beta_kl_and_mode():
    outputs, others = np.array([[1.0, 2.0]], np.float32), np.array([[-1.0, 0.5]], np.float32)
    distribution, mask = BetaDistribution(1), np.ones((1, 1), bool)
    x = np.linspace(-1, 1, 200_001)[1:-1]
    density, other = (beta_density(row[0].astype(float), x) for row in (outputs, others))
    expected = np.trapezoid(density * np.log(density / other), x)
    np.testing.assert_allclose(distribution.kl(outputs, others, mask), [expected], atol=1e-3)
    mode = distribution.bounded(distribution.mode(outputs, mask))
    assert float(mode[0, 0]) == pytest.approx(x[density.argmax()], abs=1e-3)
    gone = distribution.mode(outputs, np.zeros((1, 1), bool))
    np.testing.assert_array_equal(gone, 0.0)
    assert distribution.num_log_stds == 0


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_come_back_from_the_form_in_which_they_are_drawn(name):
    distribution = NUMBERS[name](3)
    x = np.linspace(-0.99, 0.99, 60).reshape(-1, 3).astype(np.float32)
    np.testing.assert_allclose(distribution.bounded(distribution.unbounded(x)), x, atol=1e-5)
    ends = distribution.bounded(distribution.unbounded(np.array([-1.0, 1.0], np.float32)))
    np.testing.assert_allclose(ends, [-1.0, 1.0], atol=0.006)
    assert (np.abs(ends) <= 1).all()


def test_a_bound_is_not_infinitely_far_away():
    ends = SquashedGaussian(1).unbounded(np.array([-1.0, 1.0, -5.0], np.float32))
    np.testing.assert_allclose(ends, [-FARTHEST, FARTHEST, -FARTHEST], rtol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(-2.0, -0.8), (-2.0, 0.2), (0.1, 0.7)])
def test_rounding_leaves_no_bound(low, high):
    low, high = np.float32(low), np.float32(high)
    ends = np.asarray(scale(jnp.array([-1.0, 1.0]), jnp.float32(low), jnp.float32(high)))
    assert low <= ends.min() <= ends.max() <= high


def test_scaling_to_an_agents_own_bounds_and_back():
    low, high = np.array([-1.0, 0.0, 5.0]), np.array([3.0, 0.5, 5.0])
    x = np.linspace(-1, 1, 60).reshape(-1, 3).astype(np.float32)
    scaled = scale(x, low, high)
    assert (scaled >= low).all()
    assert (scaled <= high).all()
    np.testing.assert_allclose(scaled[0], [-1.0, low[1] + 0.25 * (1 + x[0, 1]), 5.0], atol=1e-6)
    back = np.asarray(unscale(scaled, low, high))
    np.testing.assert_allclose(back[:, :2], x[:, :2], atol=1e-5)
    np.testing.assert_array_equal(back[:, 2], 0.0)
    beyond = unscale(np.array([[-9.0, 9.0, 5.0]]), low, high)
    np.testing.assert_array_equal(beyond, [[-1.0, 1.0, 0.0]])
