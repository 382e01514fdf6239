"""Steps of every optimiser on stacked policies, against optax on the weights of one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib
from probe_envs import quick_jit, tiny_learner

import jaxmarl_envs
from jaxmarl_ppo.config.ppo import ELEMENTWISE, OPTIMISERS
from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo import update as ppo
from jaxmarl_ppo.ppo.loss import LossSums, UpdateShape
from jaxmarl_ppo.ppo.optimiser import flatten, init_optimiser, muon_axes, unflatten
from jaxmarl_ppo.types import Hyperparams

K, N, SEEN, STEPS = 3, 3, (3, 4, 2), 3
RATES = (0.003, 0.01, 0.02)
MAX_NORM = 0.5
# Two wide layers, since adafactor factors matrices from 128 on.
NETWORK = StackedNetwork(
    CNN(num_outputs=N, channels=(3,), hidden_sizes=(128, 128)),
    MaskedCategorical(N),
    SEEN,
    num_members=K,
)
MATRIX, FILTERS = contrib.MuonDimensionNumbers(0, 1), contrib.MuonDimensionNumbers((0, 1, 2), 3)
IN_MUON = {
    "trunk_torso": {
        "Conv_0": {"kernel": FILTERS, "bias": None},
        "Dense_0": {"kernel": MATRIX, "bias": None},
        "Dense_1": {"kernel": MATRIX, "bias": None},
    },
    "policy_head": {"kernel": None, "bias": None},
    "value_head": {"kernel": None, "bias": None},
}


def own(rate):
    """An optimiser that depends on shapes and on places in the tree."""

    def is_matrix(params):
        return jax.tree.map(lambda x: x.ndim > 1, params)

    return optax.chain(
        optax.add_decayed_weights(0.1, mask=is_matrix), contrib.muon(rate, consistent_rms=0.2)
    )


PLAIN = {
    "adam": lambda rate: optax.adam(rate, eps=1e-5),
    "muon": lambda rate: contrib.muon(
        rate, muon_weight_dimension_numbers=IN_MUON, consistent_rms=0.2
    ),
    **{name: getattr(optax, name) for name in ("adamw", "rmsprop", "sgd", "lamb", "lars")},
    "adafactor": optax.adafactor,
    own: own,
}


@functools.cache
def problem():
    """Weights `[K, ...]` that are nowhere 0, and others that the loss draws them towards."""
    rng = np.random.default_rng(0)

    def near(x, size):
        return jnp.asarray(x + size * rng.normal(size=x.shape), jnp.float32)

    params = quick_jit(NETWORK.init)(jax.random.key(0)).params
    params = jax.tree.map(lambda x: near(x, 0.1), params)
    return params, jax.tree.map(lambda x: near(x, 1.0), params)


def gradient(params, goal):
    """Of one policy's loss, leaf by leaf; without rounding errors that depend on the program."""
    return jax.tree.map(
        lambda x, y: 0.01 * jnp.sign(x - y) * jnp.minimum(abs(x - y), 1), params, goal
    )


def steps(monkeypatch, optimiser, counts=(2.0, 4.0, 8.0), spoilt=None, **fields):
    """`STEPS` steps of all policies, whose gradients are sums over so many rows."""
    params, goal = problem()
    how = UpdateShape(1, 1, 1, "off", "off", adam_eps=1e-5, optimiser=optimiser, **fields)
    hyperparams = make_hyperparams()
    num_sums = len(ppo.fields(LossSums))

    def accumulate(inputs, rows, selection):
        count = jnp.array(counts)[:, None]
        grads = flatten(jax.vmap(gradient)(unflatten(rows, params), goal)) * count
        if spoilt is not None:
            grads = grads.at[spoilt, 7].set(jnp.nan)
        return jnp.concatenate([grads, jnp.tile(count, num_sums)], axis=1)

    monkeypatch.setattr(ppo, "_accumulate", accumulate)
    opt_state = init_optimiser(params, hyperparams, how)
    stack = quick_jit(NETWORK.init)(jax.random.key(0)).replace(params=params)
    inputs = ppo.UpdateInputs(NETWORK, how, stack, None, hyperparams)  # type: ignore
    before = ppo.UpdateCarry(flatten(params), opt_state, jnp.zeros(K, bool), ppo.no_stats(K))
    run = quick_jit(lambda carry: ppo._minibatch_step(inputs, carry, None))  # type: ignore
    after = before
    for _ in range(STEPS):
        after = run(after)
    return before, after


def make_hyperparams():
    numbers = {name: jnp.zeros(K) for name in Hyperparams.__dataclass_fields__}
    numbers |= {"learning_rate": jnp.array(RATES), "max_grad_norm": jnp.full(K, MAX_NORM)}
    return Hyperparams(**numbers)


def expected(optimiser, k):
    """The weights of one policy after the same steps, by optax alone."""
    params, goal = jax.tree.map(lambda x: x[k], problem())
    plain = optax.chain(optax.clip_by_global_norm(MAX_NORM), PLAIN[optimiser](RATES[k]))
    state = plain.init(params)
    for _ in range(STEPS):
        grads = gradient(params, goal)
        assert optax.tree.norm(grads) > MAX_NORM
        updates, state = plain.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params


def name_of(optimiser):
    return optimiser if isinstance(optimiser, str) else "own"


@pytest.mark.parametrize("optimiser", PLAIN, ids=name_of)
def test_steps_of_stacked_policies_are_those_of_optax_on_each(monkeypatch, optimiser):
    _, after = steps(monkeypatch, optimiser)
    found = unflatten(after.params, problem()[0])
    for k in range(K):
        jax.tree.map(
            lambda x, y, k=k: np.testing.assert_allclose(x[k], y, rtol=0, atol=1e-6),
            found,
            expected(optimiser, k),
        )


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_only_policies_with_finite_gradients_and_rows_make_a_step(monkeypatch, optimiser):
    before, after = steps(monkeypatch, optimiser, (2.0, 4.0, 0.0), 1, skips_nonfinite=True)
    np.testing.assert_array_equal(after.stats.num_steps, [STEPS, 0, 0])
    np.testing.assert_array_equal(after.stats.num_skipped, [0, STEPS, 0])
    for name in ("params", "opt_state"):
        old, new = (jax.tree.leaves(getattr(carry, name)) for carry in (before, after))
        for x, y in zip(old, new, strict=True):
            np.testing.assert_array_equal(x[1:], y[1:])
            assert np.isfinite(y).all()
    assert (after.params[0] != before.params[0]).any()


def test_what_treats_every_weight_by_itself_sees_rows_and_others_see_leaves():
    params, _ = problem()
    num_weights = flatten(params).shape[1]
    for name in OPTIMISERS:
        how = UpdateShape(1, 1, 1, "off", "off", adam_eps=1e-5, optimiser=name)
        shapes = {x.shape for x in jax.tree.leaves(init_optimiser(params, make_hyperparams(), how))}
        assert ((K, num_weights) in shapes) == (name in ELEMENTWISE and name != "sgd")
        assert ((K, 3, 3, 2, 3) in shapes) == (name not in ELEMENTWISE)


@pytest.mark.parametrize("module", [LSTM, GRU], ids=["lstm", "gru"])
def test_muon_takes_hidden_kernels_and_no_head(module):
    network = module(num_outputs=4, num_log_stds=2, head_sizes=(5,), hidden_sizes=(6,))
    hidden = network.initial_hidden((1,))
    params = jax.eval_shape(network.init, jax.random.key(0), hidden, jnp.zeros((1, 3)))["params"]
    flat, _ = jax.tree_util.tree_flatten_with_path(muon_axes(params), is_leaf=_is_axes)
    taken = {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in flat}
    core = f"trunk_{module.core_name}"
    assert taken == {
        "trunk_torso/Dense_0/kernel",
        f"{core}/input_gates/kernel",
        f"{core}/hidden_gates/kernel",
        "actor_head_torso/Dense_0/kernel",
        "critic_head_torso/Dense_0/kernel",
    }


def _is_axes(x):
    return isinstance(x, contrib.MuonDimensionNumbers)


def test_muon_without_a_matrix_is_refused():
    with pytest.raises(ValueError, match="optimiser='muon' has no effect: network MLP has no"):
        tiny_learner(
            *jaxmarl_envs.make("tic_tac_toe"), optimiser="muon", network={"hidden_sizes": ()}
        )
