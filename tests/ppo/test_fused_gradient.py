"""The fused gradient, interpreted, against `jax.grad` of the loss through the real network."""

import re
from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.networks.actor_critic import CNN, LSTM, MLP
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.layers import ACTIVATIONS
from jaxmarl_ppo.networks.numbers import ClippedGaussian
from jaxmarl_ppo.ops.packing import pack
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo import fused_gradient, update
from jaxmarl_ppo.ppo.loss import LossSums, UpdateShape
from jaxmarl_ppo.ppo.minibatches import Blocks, Selection
from jaxmarl_ppo.ppo.optimiser import flatten
from jaxmarl_ppo.types import Decisions, Hyperparams, Moments

TOLERANCE = 1e-5  # of the greatest number
LOSSES = [field.name for field in fields(LossSums)]


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(tuning, "CPU", tuning.GPU)
    # So few that each has several tiles of the small minibatches here.
    monkeypatch.setattr(fused_gradient, "NUM_PROGRAMS", 4)
    monkeypatch.setattr(fused_gradient, "TILE_ROWS", 16)


@dataclass
class Case:
    """A minibatch of some policies, and how they are trained."""

    inputs: update.UpdateInputs
    params: jax.Array
    selection: Selection


def module_of(rng, num_inputs, num_actions):
    """Draw a network; one in ten has layers of the greatest width."""
    sizes = [128, 65] if rng.random() < 0.1 else [1, 3, 8, 16, 17, 33]
    hidden = tuple(int(x) for x in rng.choice(sizes, rng.integers(0, 4)))
    heads = tuple(int(x) for x in rng.choice(sizes, rng.choice([0, 0, 1])))
    separate = bool(rng.random() < 0.5)
    central = separate and num_inputs > 1 and rng.random() < 0.3
    return MLP(
        num_outputs=num_actions,
        hidden_sizes=hidden,
        head_sizes=heads,
        activation=str(rng.choice(list(ACTIVATIONS))),
        separate_critic=separate,
        actor_width=int(rng.integers(1, num_inputs)) if central else 0,
    )


def blocks_of(rng, num_blocks, num_inputs, num_actions, imitates):
    """Draw blocks, some of whose rows are padding."""
    size = (num_blocks, int(rng.choice([1, 3, 8, 32])))
    mask = rng.random((*size, num_actions)) < 0.7
    mask |= np.arange(num_actions) == rng.integers(num_actions, size=size)[..., None]

    def legal():
        return np.argmax(mask * rng.random((*size, num_actions)), -1).astype(np.int32)

    def floats(*more):
        return rng.normal(size=(*size, *more)).astype(np.float32)

    # All of them, most of them, or none; and the last ones of a block are mostly padding.
    acted = rng.random(size) < rng.choice([0.0, 0.7, 1.0], p=[0.05, 0.55, 0.4])
    acted &= np.arange(size[1]) < rng.integers(1, size[1] + 1, size=(num_blocks, 1))
    decisions = Decisions(
        inputs=floats(num_inputs),
        action_mask=mask,
        action=legal(),
        log_prob=-np.log(num_actions).astype(np.float32) + 0.5 * floats(),
        value=floats(),
        hidden=(),
        is_first=rng.random(size) < 0.2,
        acted=acted,
        policy_index=np.zeros(size, np.int32),
        imitated=np.where(rng.random(size) < 0.7, legal(), -1) if imitates else None,
    )
    return Blocks(
        decisions, floats(), floats(), np.zeros(num_blocks, bool), (), np.zeros(0, np.int32)
    )


def hyperparams_of(rng, number, shape, imitates):
    def between(low, high):
        return jnp.asarray(rng.uniform(low, high, number), jnp.float32)

    unused = jnp.full(number, jnp.nan)
    return Hyperparams(
        learning_rate=unused,
        entropy_coef=between(0.0, 0.3),
        gamma=unused,
        gae_lambda=unused,
        clip_eps=between(0.05, 0.4),
        value_clip_eps=between(0.1, 1.0),
        value_coef=between(0.2, 1.0),
        max_grad_norm=unused,
        target_kl=unused,
        kl_coef=between(0.1, 3.0),
        num_epochs=jnp.ones(number, jnp.int32),
        num_minibatches=jnp.ones(number, jnp.int32),
        magnet_coef=between(0.1, 1.0) if shape.magnet != "off" else None,
        imitate_coef=between(0.1, 1.0) if imitates else None,
    )


def draw(seed, module=None, **options):
    """Draw a case; `options` are fields of `UpdateShape`, `precision`, or sizes."""
    rng = np.random.default_rng(seed)
    num_inputs = options.pop("num_inputs", int(rng.choice([1, 5, 16, 23, 40, 128])))
    num_actions = options.pop("num_actions", int(rng.choice([2, 3, 9, 16, 17, 64])))
    number = options.pop("num_policies", int(rng.integers(1, 4)))
    imitates = options.pop("imitates", bool(rng.random() < 0.3))
    normalises = options.pop("normalises", bool(rng.random() < 0.3))
    precision = options.pop("precision", "float32")
    module = module or module_of(rng, num_inputs, num_actions)
    module = module.clone(num_outputs=num_actions, matmul_precision=precision)
    network = StackedNetwork(
        module,
        MaskedCategorical(num_actions),
        (num_inputs,),
        num_members=number,
        normalise_observations=normalises,
        matmul_precision=precision,
    )
    # Of each policy some blocks, or none; behind them some that are of nobody.
    counts = rng.integers(0, 6, number)
    blocks = blocks_of(rng, counts.sum() + 2, num_inputs, num_actions, imitates)
    start = np.cumsum(counts) - counts + np.minimum(counts, rng.integers(0, 2, number))
    order = rng.permutation(counts.sum() + 2)
    choices = {
        "value_clip": str(rng.choice(["off", "ppo2", "squared_error"])),
        "kl_control": str(rng.choice(["off", "early_stop", "penalty"])),
        "magnet": str(rng.choice(["off", "off", "average"])),
    }
    shape = UpdateShape(
        num_epochs=1,
        num_minibatches=1,
        micro_batch_blocks=max(1, int(counts.max())),
        adam_eps=1e-5,
        num_micro_batches=1,
        side_by_side=True,
        **{**choices, **options},
    )

    def noisy(x, amount):
        return jnp.asarray(x + amount * rng.normal(size=x.shape), jnp.float32)

    stack = network.init(jax.random.key(seed))
    # Larger heads and biases than at the start of training, so that everything has a gradient.
    stack = stack.replace(params=jax.tree.map(lambda x: noisy(x, 0.2), stack.params))
    if normalises:
        ones = jnp.ones((number, num_inputs))
        moments = Moments(jnp.ones(number), noisy(ones, 0.5), jnp.abs(noisy(ones, 0.5)))
        stack = stack.replace(obs_moments=moments)
    magnet = None
    if shape.magnet != "off":
        magnet = jax.tree.map(lambda x: noisy(x, 0.1), stack.params)
    inputs = update.UpdateInputs(
        network,
        shape,
        stack,
        blocks,
        hyperparams_of(rng, number, shape, imitates),
        packed=pack(jax.tree.map(jnp.asarray, blocks).contents),
        magnet=magnet,
    )
    ends = jnp.asarray(np.cumsum(counts), jnp.int32)
    selection = Selection(jnp.asarray(order, jnp.int32), jnp.asarray(start, jnp.int32), ends)
    return Case(inputs, flatten(stack.params), selection)


def gradient(case, fused):
    """Sums of gradients and losses of every policy, by one path or the other."""
    shape = replace(case.inputs.shape, fused=fused)

    def run(stack, packed, hyperparams, magnet, params, selection):
        inputs = replace(
            case.inputs,
            shape=shape,
            stack=stack,
            packed=packed,
            hyperparams=hyperparams,
            magnet=magnet,
        )
        return update._accumulate(inputs, params, selection)

    own = case.inputs
    arrays = (own.stack, own.packed, own.hyperparams, own.magnet)
    return np.asarray(quick_jit(run)(*arrays, case.params, case.selection))


def assert_same_gradient(case):
    wanted, found = (gradient(case, fused) for fused in (False, True))
    assert_close(found, wanted, case.params.shape[1])


def assert_close(found, wanted, num_weights):
    assert found.shape == wanted.shape
    assert np.isfinite(wanted).all()
    error = np.abs(found - wanted)
    greatest = np.abs(wanted[:, :num_weights]).max(1, keepdims=True)
    # So a policy without rows has exactly 0.
    assert np.all(error[:, :num_weights] <= TOLERANCE * greatest), error[:, :num_weights].max(1)
    for name, want, off in zip(
        LOSSES, wanted[:, num_weights:].T, error[:, num_weights:].T, strict=True
    ):
        assert np.all(off <= TOLERANCE * np.maximum(1.0, np.abs(want))), name


SHARED = MLP(hidden_sizes=(8, 6))
SEPARATE = MLP(hidden_sizes=(5,), head_sizes=(4,), separate_critic=True, actor_width=3)
SMALL = {"num_inputs": 5, "num_actions": 3, "num_policies": 2}
CASES = {
    "shared": (1, SHARED, {"value_clip": "ppo2", "kl_control": "penalty", "normalises": True}),
    "separate": (2, SEPARATE, {"value_clip": "squared_error", "magnet": "average"}),
    "imitating": (3, SHARED, {"imitates": True, "num_actions": 20}),
    "relu without hidden layers": (4, MLP(hidden_sizes=(), activation="relu"), {}),
    "bfloat16": (5, SEPARATE, {"precision": "bfloat16"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fused_gradient_is_that_of_the_loss(case):
    seed, module, options = case
    assert_same_gradient(draw(seed, module, **{**SMALL, "imitates": False, **options}))


@pytest.mark.rare
@pytest.mark.parametrize("seed", range(300))
def test_fused_gradients_of_random_configurations(seed):
    assert_same_gradient(draw(seed))


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


@pytest.mark.parametrize(
    ("module", "distribution", "reason"),
    [
        (LSTM(), MaskedCategorical(3), "of the class LSTM, not MLP"),
        (CNN(), MaskedCategorical(3), "of the class CNN, not MLP"),
        (MLP(hidden_sizes=(8,) * 4, head_sizes=(8,)), MaskedCategorical(3), "has 5 hidden layers"),
        (MLP(hidden_sizes=(129,)), MaskedCategorical(3), "of width 129, more than 128"),
        (MLP(), MaskedCategorical(65), "has 65 actions, more than 64"),
        (MLP(), ClippedGaussian(2), "its actions are not one choice"),
        (MLP(unimix=0.1), MaskedCategorical(3), r"unimix=0\.1"),
        (MLP(dtype="bfloat16"), MaskedCategorical(3), "dtype='bfloat16'"),
    ],
)
def test_networks_that_have_no_fused_gradient(module, distribution, reason):
    network = StackedNetwork(module, distribution, (4,))
    assert re.search(reason, fused_gradient.why_not(network))
