"""The fused gradient, interpreted, against `jax.grad` of the loss through the real network."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fused_cases import draw, run
from probe_envs import quick_jit

from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.ppo import fused_gradient, update
from jaxmarl_ppo.ppo.loss import LossSums

TOLERANCE = 1e-5  # of the greatest number
LOSSES = [field.name for field in fields(LossSums)]


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(tuning, "CPU", tuning.GPU)
    # So few that each has several tiles of the small minibatches here.
    monkeypatch.setattr(fused_gradient, "NUM_PROGRAMS", 4)
    monkeypatch.setattr(fused_gradient, "TILE_ROWS", 16)


def gradient(case, fused):
    """Sums of gradients and losses of every policy, by one path or the other."""
    function, arrays = run(case, fused)
    return np.asarray(quick_jit(function)(*arrays))


def assert_same_gradient(case):
    wanted, found = (gradient(case, fused) for fused in (False, True))
    assert_close(found, wanted, case.params.shape[1], has_choice(case))


def has_choice(case):
    """Say of each policy whether any of its rows has more than one legal action, `[K]`."""
    decisions, chosen = case.inputs.blocks.decisions, case.selection
    free = (decisions.acted & (decisions.action_mask.sum(-1) > 1)).any(-1)[chosen.order]
    return np.array([free[a:b].any() for a, b in zip(chosen.start, chosen.stop, strict=True)])


def assert_close(found, wanted, num_weights, has_choice=True):
    assert found.shape == wanted.shape
    assert np.isfinite(wanted).all()
    error = np.abs(found - wanted)
    greatest = np.abs(wanted[:, :num_weights]).max(1, keepdims=True)
    # Without a choice the surrogate's gradient is 0: a difference of numbers as great as it is. A
    # policy without rows has exactly 0.
    surrogate = np.abs(wanted[:, num_weights + LOSSES.index("policy_loss")])[:, None]
    greatest = np.maximum(greatest, np.where(np.reshape(has_choice, (-1, 1)), 0.0, surrogate))
    assert np.all(error[:, :num_weights] <= TOLERANCE * greatest), error[:, :num_weights].max(1)
    for name, want, off in zip(
        LOSSES, wanted[:, num_weights:].T, error[:, num_weights:].T, strict=True
    ):
        assert np.all(off <= TOLERANCE * np.maximum(1.0, np.abs(want))), name


SHARED = MLP(hidden_sizes=(8, 6))
SEPARATE = MLP(hidden_sizes=(5,), head_sizes=(4,), separate_critic=True, actor_width=3)
SMALL = {"num_inputs": 5, "num_actions": 3, "num_policies": 2, "actions": "choice"}
CASES = {
    "shared": (1, SHARED, {"value_clip": "ppo2", "kl_control": "penalty", "normalises": True}),
    "separate": (2, SEPARATE, {"value_clip": "squared_error", "magnet": "average"}),
    "imitating": (3, SHARED, {"imitates": True, "num_actions": 20}),
    "relu without hidden layers": (4, MLP(hidden_sizes=(), activation="relu"), {}),
    "bfloat16": (5, SEPARATE, {"precision": "bfloat16"}),
    "choices": (6, SHARED, {"actions": "choices", "magnet": "average", "imitates": True}),
    "squashed": (7, SEPARATE, {"actions": "squashed", "magnet": "average"}),
    "clipped": (8, SHARED, {"actions": "clipped", "kl_control": "penalty", "imitates": True}),
    "choices and squashed": (9, SEPARATE, {"actions": "choices and squashed", "imitates": True}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fused_gradient_is_that_of_the_loss(case):
    seed, module, options = case
    assert_same_gradient(draw(seed, module, **{**SMALL, "imitates": False, **options}))


@pytest.mark.rare
@pytest.mark.parametrize("seed", range(300))
def test_fused_gradients_of_random_configurations(seed):
    assert_same_gradient(draw(seed))


def test_clipping_loses_no_gradient():
    """Comparing what is clipped with the result does, where one of them was rounded otherwise."""
    assert_same_gradient(draw(55, actions="choice"))


def test_weights_that_are_not_held_are_read_for_every_tile(monkeypatch):
    monkeypatch.setattr(fused_gradient, "MAX_HELD", 0)
    assert_same_gradient(draw(4, MLP(hidden_sizes=(4,)), imitates=False, **SMALL))


def test_gradients_of_several_runs_are_computed_side_by_side():
    # A group of runs maps all that it trains.
    cases = [draw(1, SHARED, kl_control="penalty", imitates=False, **SMALL) for _ in range(2)]
    own = cases[0].inputs
    params = jnp.stack([cases[0].params, cases[1].params + 0.1])
    coefs = jnp.stack([own.hyperparams.kl_coef, own.hyperparams.kl_coef + 1.0])

    def run(params, kl_coef, shape):
        hyperparams = own.hyperparams.replace(kl_coef=kl_coef)
        inputs = replace(own, shape=shape, hyperparams=hyperparams)
        return update._accumulate(inputs, params, cases[0].selection)

    def both(fused):
        shape = replace(own.shape, fused=fused)
        return quick_jit(jax.vmap(lambda *x: run(*x, shape)))(params, coefs)

    wanted, found = (np.asarray(both(fused)) for fused in (False, True))
    assert np.abs(wanted[0] - wanted[1]).max() > 0.1
    for have, want in zip(found, wanted, strict=True):
        assert_close(have, want, params.shape[-1])
