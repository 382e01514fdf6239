"""The update against a dense, naive one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probe_envs import quick_jit
from tables import TrainingRows, training_table

from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo import minibatches
from jaxmarl_ppo.ppo import update as ppo
from jaxmarl_ppo.ppo.loss import UpdateShape, value_loss
from jaxmarl_ppo.ppo.optimiser import init_optimiser
from jaxmarl_ppo.types import Decisions, Hyperparams

K, SLOTS, ENTRIES, D, N, CHUNK = 3, 5, 7, 4, 3, 3
# So large an epsilon that Adam's first step is the gradient itself, times rate over epsilon.
PLAIN = 1e4


@functools.cache
def make_network(module, seen=(D,)):
    return StackedNetwork(module, MaskedCategorical(N), seen, num_members=K)


@functools.cache
def compiled_update(network, shape):
    def update(stack, opt_state, blocks, hyperparams, key, magnet):
        inputs = ppo.UpdateInputs(network, shape, stack, blocks, hyperparams, magnet=magnet)
        return ppo.update(inputs, opt_state, key)

    return quick_jit(update)


def make_hyperparams(**fields):
    defaults = {
        "learning_rate": PLAIN, "entropy_coef": [0.01, 0.2, 0.0], "clip_eps": [0.2, 0.1, 0.3],
        "value_clip_eps": [0.3, 0.5, 1.0], "value_coef": [0.5, 1.0, 0.25], "max_grad_norm": np.inf,
        "target_kl": 0.01, "kl_coef": [0.2, 1.0, 3.0], "num_epochs": 100, "num_minibatches": 100,
        "gamma": np.nan, "gae_lambda": np.nan,
    }  # fmt: skip
    fields = {**defaults, **fields}

    def per_policy(name):
        dtype = jnp.int32 if name.startswith("num_") else jnp.float32
        return jnp.broadcast_to(jnp.array(fields[name], dtype), (K,))

    return Hyperparams(**{name: per_policy(name) for name in fields})


def shape(**fields):
    defaults = {
        "num_epochs": 1, "num_minibatches": 1, "micro_batch_blocks": 2, "value_clip": "off",
        "kl_control": "off", "adam_eps": PLAIN,
    }  # fmt: skip
    return UpdateShape(**{**defaults, **fields})


class Problem:
    """Random decisions `[ENTRIES, SLOTS]` of three policies, NaN wherever nothing is trained."""

    def __init__(
        self, module, seed=0, density=0.6, probs=(0.5, 0.2, 0.3), seen=(D,), imitates=False
    ):
        rng = np.random.default_rng(seed)
        size = (ENTRIES, SLOTS)
        self.network = make_network(module, seen)
        self.policies = quick_jit(self.network.init)(jax.random.key(seed))
        # Larger heads than at the start of training, so that everything has a gradient.
        self.policies = self.policies.replace(
            params=jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), self.policies.params)
        )
        self.policies = jax.tree.map(lambda x: x.astype(jnp.float32), self.policies)
        self.trainable = rng.random(size) < density
        mask = rng.random((*size, N)) < 0.7
        mask[..., 0] = True
        action = np.argmax(mask * rng.random((*size, N)), -1).astype(np.int32)
        hidden = jax.tree.map(
            lambda h: rng.normal(size=h.shape).astype(np.float32), self.network.initial_hidden(size)
        )

        def floats(*shape):
            return rng.normal(size=shape).astype(np.float32)

        decisions = Decisions(
            inputs=floats(*size, *seen),
            action_mask=mask,
            action=action,
            log_prob=-1.0 + 0.3 * floats(*size),
            value=floats(*size),
            hidden=hidden,
            is_first=rng.random(size) < 0.2,
            acted=rng.random(size) < 0.8,
            policy_index=rng.choice(K, size, p=probs).astype(np.int32),
        )
        if imitates:
            other = np.argmax(mask * rng.random((*size, N)), -1)
            other = np.where(rng.random(size) < 0.7, other, -1).astype(np.int32)
            decisions = decisions.replace(imitated=other)
        rows = TrainingRows(decisions, advantage=floats(*size), target=floats(*size))
        self.rows = jax.tree.map(self.spoil, rows)
        self.magnet = jax.tree.map(  # parameters of other policies, `[K, ...]`
            lambda x: (np.asarray(x) + 0.5 * rng.normal(size=x.shape)).astype(np.float32),
            self.policies.params,
        )

    def spoil(self, x):
        if not np.issubdtype(x.dtype, np.floating):
            return x
        return np.where(self.trainable.reshape(ENTRIES, SLOTS, *[1] * (x.ndim - 2)), x, np.nan)

    @functools.cached_property
    def blocks(self):
        table = training_table(self.rows, self.trainable)
        if self.network.is_recurrent:
            return minibatches.pack_chunks(table, K, CHUNK)
        return minibatches.pack_rows(table, K, 2)

    def opt_state(self, shape, hyperparams):
        return init_optimiser(self.policies.params, hyperparams, shape)

    def update(self, shape, hyperparams, opt_state=None):
        hyperparams = hyperparams.replace(
            num_epochs=jnp.minimum(hyperparams.num_epochs, shape.num_epochs),
            num_minibatches=jnp.minimum(hyperparams.num_minibatches, shape.num_minibatches),
        )
        opt_state = self.opt_state(shape, hyperparams) if opt_state is None else opt_state
        run = compiled_update(self.network, shape)
        magnet = None if shape.magnet == "off" else self.magnet
        return run(self.policies, opt_state, self.blocks, hyperparams, jax.random.key(0), magnet)

    def streams(self, k):
        """Chunks of `(entry, slot)` of one policy, as the update is to see them."""
        d = self.rows.decisions
        for slot in range(SLOTS):
            mine = np.nonzero(self.trainable[:, slot] & (d.policy_index[:, slot] == k))[0]
            length = CHUNK if self.network.is_recurrent else 1
            for at in range(0, len(mine), length):
                yield [(t, slot) for t in mine[at : at + length]]

    def streams_of_blocks(self, k):
        """The same, block by block of those that the policy's rows were packed into."""
        streams = list(self.streams(k))
        if not self.network.is_recurrent:  # a block holds the next two rows
            rows = sorted(streams)
            return [rows[b : b + 2] for b in range(0, len(rows), 2)]
        blocks = self.blocks
        end = int(blocks.num_blocks[: k + 1].sum())
        own = slice(end - int(blocks.num_blocks[k]), end)
        values = np.where(blocks.decisions.acted, blocks.decisions.value, np.nan)[own]
        of_row = self.rows.decisions.value
        found = [[c for c in streams if of_row[c[0]] in block] for block in values]
        assert sorted(c for block in found for c in block) == sorted(streams)
        return found

    def dense_loss(self, params, k, shape, hyperparams, chunks=None):
        """Mean loss over all of one policy's rows, one row after the other.

        `chunks` are some of them, as `streams` gives them; None for all.
        """
        d, total, count = self.rows.decisions, 0.0, 0
        c = jax.tree.map(lambda x: x[k], hyperparams)
        both = {"policy": params, "magnet": jax.tree.map(lambda x: x[k], self.magnet)}
        for chunk in self.streams(k) if chunks is None else chunks:
            hidden = {who: jax.tree.map(lambda h, at=chunk[0]: h[at], d.hidden) for who in both}
            for position, at in enumerate(chunk):
                said = {}
                for who, weights in both.items():
                    own = hidden[who]
                    if position == 1 and chunk[0][0] == 0:
                        own = jax.tree.map(lambda h, at=at: h[at], d.hidden)
                    if d.is_first[at]:
                        own = jax.tree.map(jnp.zeros_like, own)
                    hidden[who], *said[who] = self.network.module.apply(
                        {"params": weights}, own, d.inputs[at]
                    )
                logits, value = said["policy"]
                legal = np.nonzero(d.action_mask[at])[0]
                log_probs = jax.nn.log_softmax(logits[legal])
                log_prob = log_probs[list(legal).index(d.action[at])]
                entropy = -(jnp.exp(log_probs) * log_probs).sum()
                ratio = jnp.exp(log_prob - d.log_prob[at])
                advantage, target, old = self.rows.advantage[at], self.rows.target[at], d.value[at]
                surrogate = jnp.minimum(
                    ratio * advantage,
                    jnp.clip(ratio, 1 - c.clip_eps, 1 + c.clip_eps) * advantage,
                )
                squared = (value - target) ** 2
                if shape.value_clip == "ppo2":
                    near = jnp.clip(value, old - c.value_clip_eps, old + c.value_clip_eps)
                    squared = jnp.maximum(squared, (near - target) ** 2)
                elif shape.value_clip == "squared_error":
                    squared = jnp.clip(squared, 0.0, c.value_clip_eps)
                loss = -surrogate + c.value_coef * squared / 2 - c.entropy_coef * entropy
                if shape.kl_control == "penalty":
                    loss += c.kl_coef * (ratio - 1 - jnp.log(ratio))
                if shape.magnet != "off":
                    others = jax.nn.log_softmax(said["magnet"][0][legal])
                    loss += c.magnet_coef * (jnp.exp(log_probs) * (log_probs - others)).sum()
                if c.log_barrier_coef is not None:
                    loss -= c.log_barrier_coef * (log_probs.mean() + np.log(len(legal)))
                if d.imitated is not None and d.imitated[at] >= 0:
                    loss -= c.imitate_coef * log_probs[list(legal).index(d.imitated[at])]
                total, count = total + loss, count + 1
        return total / max(count, 1)

    def expected_params(self, shape, hyperparams):
        """After one step on everything, `[K, ...]`."""
        new = []
        for k in range(K):
            params = jax.tree.map(lambda x, k=k: x[k], self.policies.params)
            loss_fn = functools.partial(self.dense_loss, k=k, shape=shape, hyperparams=hyperparams)
            grads = quick_jit(jax.grad(loss_fn))(params)
            rate = hyperparams.learning_rate[k]
            new.append(
                jax.tree.map(
                    lambda p, g, rate=rate: p - rate * g / (abs(g) + shape.adam_eps), params, grads
                )
            )
        return jax.tree.map(lambda *x: jnp.stack(x), *new)


TINY_MLP = MLP(num_outputs=N, hidden_sizes=(5,))
TINY_CNN = CNN(num_outputs=N, channels=(3,), hidden_sizes=(5,))
TINY_LSTM = LSTM(num_outputs=N, hidden_sizes=(5,), lstm_size=4)
TINY_GRU = GRU(num_outputs=N, hidden_sizes=(5,), gru_size=4)
TINY_MIN_GRU = MinGRU(num_outputs=N, hidden_sizes=(5,), gru_size=4, separate_critic=True)


@pytest.fixture(scope="module")
def mlp():
    return Problem(TINY_MLP)


@pytest.fixture(scope="module")
def lstm():
    return Problem(TINY_LSTM)


def assert_close(actual, expected, atol=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), actual, expected)


@pytest.mark.rare_cases("off-off", "squared_error-early_stop")
@pytest.mark.parametrize(
    ("value_clip", "kl_control"),
    [("off", "off"), ("ppo2", "penalty"), ("squared_error", "early_stop")],
)
def test_gradient_is_that_of_the_dense_loss(mlp, value_clip, kl_control):
    how, hyperparams = shape(value_clip=value_clip, kl_control=kl_control), make_hyperparams()
    policies, _, stats = mlp.update(how, hyperparams)
    assert_close(policies.params, mlp.expected_params(how, hyperparams))
    counts = [(mlp.trainable & (mlp.rows.decisions.policy_index == k)).sum() for k in range(K)]
    np.testing.assert_array_equal(stats.losses.count, counts)
    np.testing.assert_array_equal(stats.num_steps, np.ones(K))
    assert min(counts) > 0


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_a_magnet_draws_by_the_exact_kl_divergence(kind, request):
    problem = request.getfixturevalue(kind)
    how, hyperparams = shape(magnet="average"), make_hyperparams(magnet_coef=[0.5, 1.0, 2.0])
    policies, _, _ = problem.update(how, hyperparams)
    assert_close(policies.params, problem.expected_params(how, hyperparams))


def test_a_log_barrier_is_the_kl_divergence_from_uniform_play(mlp):
    hyperparams = make_hyperparams(log_barrier_coef=[0.5, 1.0, 2.0])
    policies, _, _ = mlp.update(shape(), hyperparams)
    assert_close(policies.params, mlp.expected_params(shape(), hyperparams))


@pytest.mark.parametrize("module", [TINY_MLP, TINY_LSTM], ids=["mlp", "lstm"])
def test_imitation_is_the_cross_entropy_of_what_the_script_would_have_done(module):
    problem = Problem(module, seed=3, imitates=True)
    hyperparams = make_hyperparams(imitate_coef=[0.5, 1.0, 2.0])
    policies, _, stats = problem.update(shape(), hyperparams)
    assert_close(policies.params, problem.expected_params(shape(), hyperparams))
    # The loss grows by the coefficient times what is reported of it.
    none = make_hyperparams(imitate_coef=0.0)
    for k in range(K):
        params = jax.tree.map(lambda x, k=k: x[k], problem.policies.params)
        dense = [problem.dense_loss(params, k, shape(), each) for each in (none, hyperparams)]
        expected = (dense[1] - dense[0]) / hyperparams.imitate_coef[k]
        reported = stats.losses.imitation[k] / stats.losses.count[k]
        np.testing.assert_allclose(reported, expected, rtol=2e-5)
        assert expected > 0.1


def test_averages_of_parameters_move_with_iterations_that_made_a_step():
    old, new = {"w": jnp.zeros((K, 2, 4))}, {"w": jnp.ones((K, 2, 4))}
    rate = jnp.array([0.25, 1.0, 0.5])
    stats = ppo.no_stats(K).replace(num_steps=jnp.array([8.0, 1.0, 0.0]))
    once = ppo.move_average(old, new, rate, stats)
    twice = ppo.move_average(once, new, rate, stats)
    np.testing.assert_allclose(once["w"][:, 0, 0], [0.25, 1.0, 0.0])
    np.testing.assert_allclose(twice["w"][:, 1, 3], [0.4375, 1.0, 0.0])
    assert ppo.move_average(None, new, None, stats) is None


@pytest.mark.rare
def test_gradient_of_convolutions_is_that_of_the_dense_loss():
    problem = Problem(TINY_CNN, seen=(3, 4, 2))
    policies, _, _ = problem.update(shape(), make_hyperparams())
    assert_close(policies.params, problem.expected_params(shape(), make_hyperparams()))


@pytest.mark.rare_cases("lstm")
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_shuffled_minibatches_are_a_replay_of_single_adam_steps(kind, request):
    """Two epochs of three minibatches in the order of the shuffle, one policy after the other."""
    problem = request.getfixturevalue(kind)
    how = shape(num_epochs=2, num_minibatches=3, adam_eps=1e-3)
    hyperparams = make_hyperparams(learning_rate=[0.01, 0.03, 0.02], max_grad_norm=0.5)
    policies, _, stats = problem.update(how, hyperparams)
    blocks = problem.blocks
    assert blocks.num_blocks.max() > 3 > blocks.num_blocks.min()
    np.testing.assert_array_equal(stats.num_steps, 2 * np.minimum(3, blocks.num_blocks))
    noise = np.asarray(jax.random.uniform(jax.random.key(0), (2, blocks.target.shape[0])))
    ends = np.cumsum(blocks.num_blocks)
    for k in range(K):
        streams = problem.streams_of_blocks(k)
        params = jax.tree.map(lambda x, k=k: x[k], problem.policies.params)
        optimiser = optax.chain(
            optax.clip_by_global_norm(0.5),
            optax.adam(float(hyperparams.learning_rate[k]), eps=1e-3),
        )
        adam = optimiser.init(params)
        count = int(blocks.num_blocks[k])
        assert count == len(streams)
        for epoch in range(2):
            order = np.argsort(noise[epoch, ends[k] - count : ends[k]])
            for index in range(3):
                mine = order[index * count // 3 : (index + 1) * count // 3]
                chunks = [chunk for b in mine for chunk in streams[b]]
                if not chunks:
                    continue
                loss_fn = functools.partial(
                    problem.dense_loss, k=k, shape=how, hyperparams=hyperparams, chunks=chunks
                )
                updates, adam = optimiser.update(jax.grad(loss_fn)(params), adam, params)
                params = optax.apply_updates(params, updates)
        got = jax.tree.map(lambda x, k=k: x[k], policies.params)
        assert_close(got, params, atol=1e-5)


@pytest.mark.rare_cases("gru", "min_gru")
@pytest.mark.parametrize(
    "network", [TINY_LSTM, TINY_GRU, TINY_MIN_GRU], ids=["lstm", "gru", "min_gru"]
)
def test_gradient_through_time_is_that_of_the_dense_loss(network):
    problem = Problem(network)
    how, hyperparams = shape(), make_hyperparams()
    chunks = [chunk for k in range(K) for chunk in problem.streams(k)]
    assert any(len(chunk) > 1 and chunk[0][0] == 0 for chunk in chunks)  # carried over
    assert any(len(chunk) == CHUNK for chunk in chunks)
    policies, _, _ = problem.update(how, hyperparams)
    assert_close(policies.params, problem.expected_params(how, hyperparams))


@pytest.mark.rare_cases("mlp")
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_micro_batches_do_not_change_the_result(kind, request):
    problem = request.getfixturevalue(kind)
    hyperparams = make_hyperparams(learning_rate=0.1 * PLAIN, max_grad_norm=0.5)
    results = [
        problem.update(shape(num_epochs=2, num_minibatches=2, micro_batch_blocks=size), hyperparams)
        for size in (1, 40)
    ]
    assert_close(results[0][0].params, results[1][0].params, atol=1e-5)
    assert_close(results[0][2], results[1][2], atol=1e-4)


def test_gradients_are_clipped_per_policy(mlp):
    limits = jnp.array([1e-3, 1e9, 2e-3])
    hyperparams = make_hyperparams(max_grad_norm=limits)
    free, _, stats = mlp.update(shape(), make_hyperparams())
    clipped, _, clipped_stats = mlp.update(shape(), hyperparams)

    def norms(policies):
        delta = jax.tree.map(jnp.subtract, policies.params, mlp.policies.params)
        return jax.vmap(optax.tree.norm)(delta)

    assert (norms(free) > 0.02).all()
    np.testing.assert_allclose(
        norms(clipped)[jnp.array([0, 2])], limits[jnp.array([0, 2])], rtol=0.02
    )
    np.testing.assert_allclose(norms(clipped)[1], norms(free)[1], rtol=1e-4)
    np.testing.assert_allclose(clipped_stats.grad_norm, stats.grad_norm, rtol=1e-5)


@pytest.mark.rare_cases("mlp")
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_a_policy_without_rows_is_left_alone_to_the_bit(kind):
    network = {"mlp": TINY_MLP, "lstm": TINY_LSTM}[kind]
    problem = Problem(network, seed=1, probs=(0.6, 0.0, 0.4))
    hyperparams, how = make_hyperparams(learning_rate=0.1), shape(num_epochs=2, num_minibatches=2)
    # With momentum from earlier iterations, which moves a policy that makes an empty step.
    before = jax.tree.map(lambda x: x + jnp.ones((), x.dtype), problem.opt_state(how, hyperparams))
    policies, opt_state, stats = problem.update(how, hyperparams, before)
    for new, old in [(policies.params, problem.policies.params), (opt_state, before)]:
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[1], y[1]), new, old)
        moved = jax.tree.map(lambda x, y: bool((x[0] != y[0]).any()), new, old)
        assert any(jax.tree.leaves(moved))
    assert stats.num_steps[1] == 0 == stats.losses.count[1]
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((policies, stats)))


def unequal_counts(counts, block_size):
    """An MLP update over so many rows of each policy."""
    rng = np.random.default_rng(0)
    policy_index = rng.permutation(np.repeat(np.arange(K), counts)).astype(np.int32)
    num = len(policy_index)
    problem = Problem(TINY_MLP)
    decisions = Decisions(
        inputs=rng.normal(size=(num, D)).astype(np.float32),
        action_mask=np.ones((num, N), bool),
        action=rng.integers(0, N, num).astype(np.int32),
        log_prob=np.full(num, -1.1, np.float32),
        value=np.zeros(num, np.float32),
        hidden=(),
        is_first=np.zeros(num, bool),
        acted=np.ones(num, bool),
        policy_index=policy_index,
    )
    noise = rng.normal(size=num).astype(np.float32)
    rows = jax.tree.map(lambda x: x[:, None], TrainingRows(decisions, noise, noise))
    table = training_table(rows, np.ones((num, 1), bool))
    problem.blocks = minibatches.pack_rows(table, K, block_size, 4, 4)
    return problem


@pytest.mark.rare_cases("1", "32")
@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_every_policy_makes_the_same_number_of_steps(block_size):
    problem = unequal_counts((20, 200, 0), block_size)
    how = shape(num_epochs=3, num_minibatches=4)
    _, opt_state, stats = problem.update(how, make_hyperparams(learning_rate=1e-3))
    np.testing.assert_array_equal(stats.num_steps, [12, 12, 0])
    np.testing.assert_array_equal(stats.losses.count, [60, 600, 0])
    np.testing.assert_array_equal(optax.tree.get(opt_state, "count"), [12, 12, 0])


def test_every_policy_has_its_own_epochs_and_minibatches():
    problem = unequal_counts((20, 200, 30), 4)
    hyperparams = make_hyperparams(
        learning_rate=1e-3, num_epochs=[3, 1, 2], num_minibatches=[1, 4, 2]
    )
    _, opt_state, stats = problem.update(shape(num_epochs=3, num_minibatches=4), hyperparams)
    np.testing.assert_array_equal(stats.num_steps, [3, 4, 4])
    np.testing.assert_array_equal(stats.losses.count, [60, 200, 60])
    np.testing.assert_array_equal(optax.tree.get(opt_state, "count"), [3, 4, 4])


def test_an_empty_minibatch_makes_no_step():
    problem = unequal_counts((2, 9, 1), 1)
    _, _, stats = problem.update(
        shape(num_epochs=2, num_minibatches=3), make_hyperparams(learning_rate=1e-3)
    )
    np.testing.assert_array_equal(stats.num_steps, [4, 6, 2])


def test_early_stop_ends_the_steps_of_one_policy_alone(mlp):
    hyperparams = make_hyperparams(
        learning_rate=jnp.array([0.5, 1e-9, 0.5]), target_kl=jnp.array([1e-4, 10.0, 1e9])
    )
    how = shape(num_epochs=5, kl_control="early_stop", adam_eps=1e-5)
    _, opt_state, stats = mlp.update(how, hyperparams)
    # The old policy is not the present one here, so KL is above 1.5e-4 from the first step on.
    np.testing.assert_array_equal(stats.num_steps, [1, 5, 5])
    np.testing.assert_array_equal(optax.tree.get(opt_state, "count"), [1, 5, 5])
    _, _, free = mlp.update(shape(num_epochs=5, adam_eps=1e-5), hyperparams)
    np.testing.assert_array_equal(free.num_steps, [5, 5, 5])


def test_kl_penalty_adapts():
    coef = jnp.array([0.2, 0.2, 0.2, 0.2])
    kl = jnp.array([0.021, 0.019, 0.0051, 0.0049])
    adapted = ppo.adapt_kl_coef(coef, kl, jnp.full(4, 0.01))
    np.testing.assert_allclose(adapted, [0.3, 0.2, 0.2, 0.1], rtol=1e-6)


def test_a_kl_penalty_comes_back_however_long_it_fell_or_rose():
    coef, target = jnp.array([1.0, 1.0]), jnp.full(2, 0.01)
    for _ in range(1000):
        coef = ppo.adapt_kl_coef(coef, jnp.array([0.0, 1.0]), target)
    np.testing.assert_allclose(coef, [ppo.MIN_KL_COEF, ppo.MAX_KL_COEF])
    for _ in range(25):
        coef = ppo.adapt_kl_coef(coef, jnp.array([1.0, 0.0]), target)
    assert coef[0] > 1.0 > coef[1]


def test_value_clip_table():
    value, old, target = jnp.array([2.0, 0.1]), jnp.zeros(2), jnp.array([3.0, 3.0])
    clip = jnp.full(2, 0.5)
    for mode, expected in [
        ("off", [0.5, 4.205]),
        ("ppo2", [3.125, 4.205]),  # 2 is kept at .5, whose error is 2.5
        ("squared_error", [0.25, 0.25]),
    ]:
        result = value_loss(value, old, target, clip, shape(value_clip=mode))
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_step_that_is_not_finite_is_left_out_for_its_policy_alone():
    """Of three policies the second one's advantages are NaN in one of its rows."""
    problem = unequal_counts((20, 200, 30), 4)
    how = {"num_epochs": 2, "num_minibatches": 4}
    hyperparams = make_hyperparams(learning_rate=1e-3)
    sound, _, sound_stats = problem.update(shape(**how, skips_nonfinite=True), hyperparams)
    plain, _, _ = problem.update(shape(**how), hyperparams)
    jax.tree.map(np.testing.assert_array_equal, sound.params, plain.params)
    np.testing.assert_array_equal(sound_stats.num_skipped, [0, 0, 0])

    blocks = problem.blocks
    second = np.flatnonzero(np.asarray(blocks.decisions.acted).any(-1))
    owner = np.asarray(blocks.decisions.policy_index)[second].max(-1)
    row = second[owner == 1][0]
    problem.blocks = blocks.replace(advantage=blocks.advantage.at[row].set(jnp.nan))
    left_out, _, stats = problem.update(shape(**how, skips_nonfinite=True), hyperparams)
    spoilt, _, spoilt_stats = problem.update(shape(**how), hyperparams)
    for found, whole, bad in zip(
        jax.tree.leaves(left_out.params),
        jax.tree.leaves(sound.params),
        jax.tree.leaves(spoilt.params),
        strict=True,
    ):
        found, whole, bad = map(np.asarray, (found, whole, bad))
        np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2]])
        assert np.isfinite(found).all()
        assert np.isnan(bad[1]).any()
    # In each of two epochs the row is in one of four minibatches.
    np.testing.assert_array_equal(stats.num_skipped, [0, 2, 0])
    assert stats.num_steps[1] == 6
    assert np.isfinite(stats.losses.policy_loss).all()
    assert np.isnan(spoilt_stats.losses.policy_loss[1])


@pytest.mark.parametrize("num_rows", [5, 70], ids=["in one kernel", "in a loop"])
def test_gradients_are_added_to_those_of_their_members(num_rows):
    rng = np.random.default_rng(0)
    totals, found = rng.normal(size=(3, 4)), rng.normal(size=(num_rows, 4))
    k = rng.integers(0, 3, num_rows)
    found[-1], k[-1] = np.nan, 1
    added = quick_jit(ppo.add_by_policy)(*map(jnp.asarray, (totals, k, found)))
    for policy_index in range(3):
        expected = totals[policy_index] + found[k == policy_index].sum(0)
        assert np.isfinite(expected).all() == (policy_index != 1)
        np.testing.assert_allclose(added[policy_index], expected, rtol=1e-5)
