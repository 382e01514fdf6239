"""Stacked policies act and evaluate as each would alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_ppo.distributions import MaskedCategorical
from jaxmarl_ppo.mapping import PolicyMapping
from jaxmarl_ppo.networks import LSTM
from jaxmarl_ppo.policy_bank import PolicyBank

SLOTS = (0, 1, 0, 2)


def make_bank(names=("p", "q", "r"), slots=SLOTS):
    network = LSTM(num_outputs=3, hidden_sizes=(4,), lstm_size=5)
    return PolicyBank(
        PolicyMapping(names, slots),
        network,
        MaskedCategorical(3),
        (2,),
        normalise_observations=True,
    )


@pytest.fixture(scope="module")
def bank_and_policies():
    bank = make_bank()
    policies = quick_jit(bank.init)(jax.random.key(0))
    moments = policies.obs_moments
    mean = jnp.arange(3.0)[:, None] + moments.mean
    return bank, policies.replace(obs_moments=moments.replace(mean=mean, var=moments.var * 4.0))


def test_policies_start_out_different(bank_and_policies):
    bank, policies = bank_and_policies
    kernel = policies.params["policy_head"]["kernel"]
    assert kernel.shape[0] == bank.num_policies == 3
    assert (kernel[0] != kernel[1]).any()
    assert (kernel[1] != kernel[2]).any()


def test_every_slot_is_played_by_its_own_policy(bank_and_policies):
    bank, policies = bank_and_policies
    rng = np.random.default_rng(0)
    num_envs, shape = 6, (6, len(SLOTS))
    inputs = rng.normal(size=(*shape, 2)).astype(np.float32)
    hidden = jax.tree.map(
        lambda h: rng.normal(size=h.shape).astype(np.float32), bank.initial_hidden(shape)
    )
    fresh, acting = rng.random(shape) < 0.3, rng.random(shape) < 0.5
    held, start, outputs, value = quick_jit(bank.forward)(policies, hidden, inputs, fresh, acting)
    for a, k in enumerate(SLOTS):
        params = bank.select(policies, k).params
        x = (inputs[:, a] - k) / 2.0
        begin = jax.tree.map(lambda h, a=a: np.where(fresh[:, a, None], 0.0, h[:, a]), hidden)
        moved, expected, expected_value = bank.network.apply({"params": params}, begin, x)
        np.testing.assert_allclose(outputs[:, a], expected, atol=1e-5)
        np.testing.assert_allclose(value[:, a], expected_value, atol=1e-5)
        for e in range(num_envs):
            for new, old, now in zip(
                *[jax.tree.leaves(x) for x in (moved, hidden, held)], strict=True
            ):
                kept = new[e] if acting[e, a] else old[e, a]
                np.testing.assert_allclose(now[e, a], kept, atol=1e-5)
        jax.tree.map(lambda x, y, a=a: np.testing.assert_allclose(x[:, a], y), start, begin)


def test_one_policy_takes_any_leading_axes():
    bank = make_bank(("p",), (0, 0))
    policies = quick_jit(bank.init)(jax.random.key(0))
    inputs = jax.random.normal(jax.random.key(1), (5, 2))
    yes = jnp.ones(5, bool)
    _, _, flat, _ = bank.forward(policies, bank.initial_hidden((5,)), inputs, yes, yes)
    _, _, wide, _ = bank.forward(
        policies, bank.initial_hidden((1, 5)), inputs[None], yes[None], yes[None]
    )
    np.testing.assert_allclose(flat, wide[0], atol=1e-6)


def test_memory_is_told_from_no_memory(bank_and_policies):
    bank, _ = bank_and_policies
    assert bank.is_recurrent
    shapes = {h.shape for h in jax.tree.leaves(bank.initial_hidden((2, 3)))}
    assert shapes == {(2, 3, 5)}
    assert all((h == 0).all() for h in jax.tree.leaves(bank.initial_hidden((2, 3))))
