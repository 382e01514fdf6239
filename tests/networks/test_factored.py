"""The distribution of choices and numbers together, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_envs.actions import Action
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.factored import FactoredDistribution
from jaxmarl_ppo.networks.numbers import ClippedGaussian

COUNTS = (3, 3, 2, 17, 17, 4)  # runs of equal choices, of few options and of many, and others alone
NUMBERS = 2
BOTH = FactoredDistribution(COUNTS, ClippedGaussian(NUMBERS))
LOGITS = sum(COUNTS)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    outputs, others = rng.normal(0.0, 2.0, (2, 40, LOGITS + 2 * NUMBERS))
    outputs[:, -NUMBERS:] *= 0.3
    others[:, -NUMBERS:] *= 0.3
    mask = rng.random((40, LOGITS + NUMBERS)) < 0.5
    start = 0
    for count in COUNTS:
        mask[np.arange(40), start + rng.integers(0, count, 40)] = True
        start += count
    choices = np.stack(
        [[rng.choice(np.flatnonzero(legal)) for legal in own] for own in split(mask)], axis=-1
    )
    numbers = np.where(mask[:, LOGITS:], rng.normal(size=(40, NUMBERS)), 0.0)
    return outputs, others, mask, choices, numbers


def split(x):
    """The options of each choice."""
    return np.split(x[..., :LOGITS], np.cumsum(COUNTS)[:-1], axis=-1)


def log_probs(outputs, mask):
    """Of each choice, the log-probability of every option, `[40, options]`; -inf if illegal."""
    results = []
    for logits, legal in zip(split(outputs), split(mask), strict=True):
        weights = np.where(legal, np.exp(logits), 0.0)
        with np.errstate(divide="ignore"):
            results.append(np.log(weights / weights.sum(-1, keepdims=True)))
    return results


def expected_log_prob(outputs, mask, choices, numbers):
    total = sum(
        own[np.arange(len(own)), chosen]
        for own, chosen in zip(log_probs(outputs, mask), choices.T, strict=True)
    )
    mean, log_std = np.split(outputs[:, LOGITS:], 2, axis=-1)
    density = -0.5 * ((numbers - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return total + np.where(mask[:, LOGITS:], density, 0.0).sum(-1)


def test_log_probability_entropy_and_kl_are_sums_over_factors(rows):
    outputs, others, mask, choices, numbers = rows
    outputs32, others32 = outputs.astype(np.float32), others.astype(np.float32)
    action = Action(choices.astype(np.int32), numbers.astype(np.float32))
    actual = BOTH.log_prob(outputs32, mask, action)
    np.testing.assert_allclose(
        actual, expected_log_prob(outputs, mask, choices, numbers), rtol=1e-4, atol=1e-4
    )
    entropy, kl = 0.0, 0.0
    for own, other in zip(log_probs(outputs, mask), log_probs(others, mask), strict=True):
        probs = np.exp(own)
        entropy -= np.where(probs > 0, probs * np.maximum(own, -1e30), 0.0).sum(-1)
        difference = np.where(probs > 0, np.maximum(own, -1e30) - np.maximum(other, -1e30), 0.0)
        kl += (probs * difference).sum(-1)
    (mean, log_std), (mean2, log_std2) = (
        np.split(x[:, LOGITS:], 2, axis=-1) for x in (outputs, others)
    )
    exists = mask[:, LOGITS:]
    entropy += np.where(exists, 0.5 * np.log(2 * np.pi * np.e) + log_std, 0.0).sum(-1)
    spread = (np.exp(2 * log_std) + (mean - mean2) ** 2) / (2 * np.exp(2 * log_std2))
    kl += np.where(exists, log_std2 - log_std + spread - 0.5, 0.0).sum(-1)
    np.testing.assert_allclose(BOTH.entropy(outputs32, mask), entropy, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(BOTH.kl(outputs32, others32, mask), kl, rtol=1e-4, atol=1e-4)


def test_the_divergence_from_uniform_play_is_that_of_choices_alone(rows):
    outputs, _, mask, _, _ = rows
    expected = 0.0
    for own in log_probs(outputs, mask):
        legal = np.isfinite(own)
        number = legal.sum(-1)
        expected -= np.where(legal, own, 0.0).sum(-1) / number + np.log(number)
    actual = BOTH.kl_from_uniform(outputs.astype(np.float32), mask)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_gradient_of_the_log_probability(rows):
    outputs, _, mask, choices, numbers = rows
    action = Action(choices.astype(np.int32), numbers.astype(np.float32))
    grads = jax.grad(lambda x: BOTH.log_prob(x, mask, action).sum())(
        jnp.asarray(outputs, jnp.float32)
    )
    expected, h = np.zeros_like(outputs), 1e-5
    for column in range(outputs.shape[1]):
        step = np.zeros_like(outputs)
        step[:, column] = h
        up, down = (
            expected_log_prob(outputs + sign * step, mask, choices, numbers) for sign in (1, -1)
        )
        expected[:, column] = (up - down) / (2 * h)
    np.testing.assert_allclose(grads, expected, rtol=1e-3, atol=1e-3)


def test_draws_are_legal_and_as_frequent_as_probable(rows):
    outputs, _, mask, _, _ = rows
    num, row = 20_000, 7
    tiled = jnp.tile(jnp.asarray(outputs[row], jnp.float32), (num, 1))
    legal = jnp.tile(jnp.asarray(mask[row]), (num, 1))
    drawn = BOTH.sample(BOTH.noise(jax.random.key(0), (num,)), tiled, legal)
    assert drawn.choices.shape == (num, len(COUNTS))
    assert drawn.numbers.shape == (num, NUMBERS)
    probs = [np.exp(own[row]) for own in log_probs(outputs, mask)]
    for chosen, own in zip(np.asarray(drawn.choices).T, probs, strict=True):
        frequency = np.bincount(chosen, minlength=len(own)) / num
        np.testing.assert_allclose(frequency, own, atol=0.02)
    # Independent of each other: pairs are as frequent as the product says.
    pairs = np.zeros((3, 3))
    np.add.at(pairs, tuple(np.asarray(drawn.choices)[:, :2].T), 1 / num)
    np.testing.assert_allclose(pairs, np.outer(probs[0], probs[1]), atol=0.02)


def test_the_mode_is_that_of_every_factor(rows):
    outputs, _, mask, _, _ = rows
    mode = BOTH.mode(jnp.asarray(outputs, jnp.float32), jnp.asarray(mask))
    expected = np.stack([own.argmax(-1) for own in log_probs(outputs, mask)], axis=-1)
    np.testing.assert_array_equal(mode.choices, expected)
    mean = np.where(mask[:, LOGITS:], outputs[:, LOGITS : LOGITS + NUMBERS], 0.0)
    np.testing.assert_allclose(mode.numbers, mean, rtol=1e-6)


def test_one_choice_is_a_masked_categorical(rows):
    outputs, _, mask, choices, _ = rows
    one, plain = FactoredDistribution((3,), None), MaskedCategorical(3)
    logits, legal = outputs[:, :3].astype(np.float32), mask[:, :3]
    action = Action(choices[:, :1].astype(np.int32))
    rounding = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(one.entropy(logits, legal), plain.entropy(logits, legal), **rounding)
    np.testing.assert_allclose(
        one.log_prob(logits, legal, action),
        plain.log_prob(logits, legal, choices[:, 0]),
        **rounding,
    )
    assert one.num_outputs == 3


def test_numbers_alone():
    alone = FactoredDistribution((), ClippedGaussian(2))
    outputs, mask = jnp.ones((5, 4)), jnp.ones((5, 2), bool)
    drawn = alone.sample(alone.noise(jax.random.key(0), (5,)), outputs, mask)
    assert drawn.choices is None
    np.testing.assert_allclose(
        alone.log_prob(outputs, mask, drawn),
        ClippedGaussian(2).log_prob(outputs, mask, drawn.numbers),
    )
