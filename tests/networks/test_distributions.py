"""Action distributions against NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks.distributions import MaskedCategorical


@pytest.fixture(autouse=True, params=[0, 64], ids=["as an axis", "in turn"])
def max_actions_in_turn(monkeypatch, request):
    choices = dataclasses.replace(
        tuning.CPU, picks_by_comparing=request.param > 0, max_actions_in_turn=request.param
    )
    monkeypatch.setattr(tuning, "CPU", choices)


def draw(distribution, key, outputs, mask):
    return distribution.sample(distribution.noise(key, outputs.shape[:-1]), outputs, mask)


@pytest.fixture(scope="module")
def masked():
    rng = np.random.default_rng(0)
    logits = rng.normal(0.0, 3.0, (50, 6)).astype(np.float32)
    mask = rng.random((50, 6)) < 0.4
    mask[np.arange(50), rng.integers(0, 6, 50)] = True
    probs = np.where(mask, np.exp(logits.astype(float)), 0.0)
    return logits, mask, probs / probs.sum(-1, keepdims=True)


def test_masked_actions_are_never_drawn(masked):
    logits, mask, probs = masked
    distribution = MaskedCategorical(6)
    keys = jax.random.split(jax.random.key(0), 400)
    draws = np.asarray(jax.vmap(lambda key: draw(distribution, key, logits, mask))(keys))
    assert mask[np.arange(50), draws].all()
    assert mask[np.arange(50), np.asarray(distribution.mode(logits, mask))].all()
    counts = np.stack([(draws == action).mean(0) for action in range(6)], -1)
    np.testing.assert_allclose(counts, probs, atol=0.12)


def test_every_action_has_its_share_of_the_noise(masked):
    logits, mask, probs = masked
    grid = (np.arange(10_000) + 0.5) / 10_000
    draws = MaskedCategorical(6).sample(grid[:, None], logits, mask)
    counts = np.stack([(draws == action).mean(0) for action in range(6)], -1)
    np.testing.assert_allclose(counts, probs, atol=2e-4)


def test_rounded_sums_never_yield_an_illegal_action():
    rng = np.random.default_rng(3)
    logits = rng.normal(0.0, 5.0, (4_000, 37)).astype(np.float32)
    mask = rng.random(logits.shape) < 0.2
    mask[np.arange(4_000), rng.integers(0, 37, 4_000)] = True
    distribution = MaskedCategorical(37)
    sums = np.asarray(distribution.cumulative(logits, mask))
    at_edges = sums[np.arange(4_000), rng.integers(0, 37, 4_000)] / sums[:, -1]
    for noise in (at_edges, np.nextafter(at_edges, 0), np.zeros(4_000), np.full(4_000, 1 - 2**-23)):
        draws = distribution.sample(np.clip(noise, 0, 1 - 2**-23), logits, mask)
        assert mask[np.arange(4_000), draws].all()
    none_exceeds = distribution.sample(np.ones(4_000), logits, mask)
    assert mask[np.arange(4_000), none_exceeds].all()


def test_an_illegal_action_that_the_network_loves_is_not_drawn():
    logits, mask = jnp.array([1e30, -1e30, 0.0]), jnp.array([False, True, False])
    distribution = MaskedCategorical(3)
    assert draw(distribution, jax.random.key(0), logits, mask) == 1
    assert distribution.log_prob(logits, mask, jnp.array(1)) == 0.0
    assert distribution.entropy(logits, mask) == 0.0


def test_categorical_numbers_equal_numpy(masked):
    logits, mask, probs = masked
    distribution = MaskedCategorical(6)
    for action in range(6):
        log_prob = distribution.log_prob(logits, mask, jnp.full(50, action))
        legal = mask[:, action]
        np.testing.assert_allclose(log_prob[legal], np.log(probs[legal, action]), atol=1e-5)
    logs = np.log(np.where(mask, probs, 1.0))
    np.testing.assert_allclose(
        distribution.entropy(logits, mask), -(probs * logs).sum(-1), atol=1e-5
    )


def test_gradients_through_masks_are_finite(masked):
    logits, mask, _ = masked

    def total(logits):
        distribution = MaskedCategorical(6)
        action = distribution.mode(logits, mask)
        log_prob = distribution.log_prob(logits, mask, action)
        return (log_prob + distribution.entropy(logits, mask)).sum()

    grads = np.asarray(jax.grad(total)(jnp.asarray(logits)))
    assert np.isfinite(grads).all()
    np.testing.assert_array_equal(grads[~mask], 0.0)


def test_kl_divergences_equal_numpy(masked):
    logits, mask, probs = masked
    others = np.random.default_rng(5).normal(0.0, 2.0, logits.shape).astype(np.float32)
    other_probs = np.where(mask, np.exp(others.astype(float)), 0.0)
    other_probs /= other_probs.sum(-1, keepdims=True)
    logs = np.log(np.where(mask, probs, 1.0)) - np.log(np.where(mask, other_probs, 1.0))
    distribution = MaskedCategorical(6)
    actual = distribution.kl(logits, others, mask)
    np.testing.assert_allclose(actual, (probs * logs).sum(-1), atol=2e-5)
    np.testing.assert_array_equal(distribution.kl(logits, logits, mask), 0.0)
    grads = jax.grad(lambda x: distribution.kl(x, others, mask).sum())(jnp.asarray(logits))
    assert np.isfinite(grads).all()
    # From uniform play it is the entropy but for its sign and a constant.
    uniform = distribution.kl(logits, np.zeros_like(logits), mask)
    entropy = np.log(mask.sum(-1)) - distribution.entropy(logits, mask)
    np.testing.assert_allclose(uniform, entropy, atol=2e-5)


def test_the_pull_of_a_log_barrier_does_not_vanish_where_an_option_is_improbable():
    distribution, mask = MaskedCategorical(4), np.array([True, True, True, False])
    logits = jnp.array([0.0, 1.0, -30.0, 5.0])  # a probability of 1e-13; the last is illegal
    probs = np.exp(logits[:3]) / np.exp(logits[:3]).sum()
    value, grad = jax.value_and_grad(distribution.kl_from_uniform)(logits, mask)
    np.testing.assert_allclose(value, -np.log(3) - np.log(probs).mean(), rtol=1e-6)
    np.testing.assert_allclose(grad, [*(probs - 1 / 3), 0.0], atol=1e-6)
    # That of the entropy does.
    assert abs(jax.grad(distribution.entropy)(logits, mask)[2]) < 1e-10
