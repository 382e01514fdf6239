"""Networks: shapes, initialisation, modules of a user's own, and what actor and critic see."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import OpenReach, RandomLives, Reach, quick_jit

import jaxmarl_envs
from jaxmarl_envs import Box, Discrete, MultiAgentEnv, Observation
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM, MLP, NETWORKS, MinGRU
from jaxmarl_ppo.networks.matmul import FEW_OUTPUTS, dense_dot_general
from jaxmarl_ppo.networks.numbers import ClippedGaussian, unscale
from jaxmarl_ppo.policies.network_check import check_calls
from jaxmarl_ppo.rollout.start import init_rollout_state


def learner_for(network, env="tic_tac_toe", mapping="shared", spec=None, **kwargs):
    if isinstance(env, str):
        env, params = jaxmarl_envs.make(env, **kwargs)
    else:
        params = env.default_params
    config = TrainConfig(
        num_envs=2,
        num_steps=4,
        mapping=mapping,
        default_policy=PolicySpec(network=network, **(spec or {})),
        default_ppo=PPOConfig(num_epochs=1, num_minibatches=1),
    )
    return make_learner(env, params, config)


@pytest.fixture(scope="module")
def lstm_params():
    network = LSTM(num_outputs=3, hidden_sizes=(8,), lstm_size=6, separate_critic=True)
    hidden = network.initial_hidden((1,))
    return quick_jit(network.init)(jax.random.key(0), hidden, jnp.zeros((1, 5)))["params"]


def test_weights_are_orthogonal_with_their_gains(lstm_params):
    def gain(kernel):
        kernel = np.asarray(kernel)
        gram = kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(len(gram)), atol=1e-5)
        return float(np.sqrt(gram[0, 0]))

    torso = lstm_params["actor_torso"]["Dense_0"]
    assert gain(torso["kernel"]) == pytest.approx(np.sqrt(2), rel=1e-4)
    assert gain(lstm_params["policy_head"]["kernel"]) == pytest.approx(0.01, rel=1e-4)
    assert gain(lstm_params["value_head"]["kernel"]) == pytest.approx(1.0, rel=1e-4)
    assert gain(lstm_params["critic_lstm"]["hidden_gates"]["kernel"]) == pytest.approx(
        1.0, rel=1e-4
    )
    biases = [x for path, x in jax.tree.leaves_with_path(lstm_params) if path[-1].key == "bias"]
    assert biases
    assert all((x == 0).all() for x in biases)


HALF = {
    "mlp": (MLP(num_outputs=3, hidden_sizes=(8,), dtype="bfloat16"), (5,)),
    "lstm": (LSTM(num_outputs=3, hidden_sizes=(8,), lstm_size=6, dtype="bfloat16"), (5,)),
    "cnn": (CNN(num_outputs=3, channels=(4,), hidden_sizes=(8,), dtype="bfloat16"), (4, 3, 2)),
}


@pytest.mark.parametrize("kind", HALF)
def test_bfloat16_is_for_layers_and_not_for_what_is_kept(kind):
    network, shape = HALF[kind]
    inputs = jax.random.normal(jax.random.key(1), (7, *shape))
    hidden = jax.tree.map(lambda x: x + 0.5, network.initial_hidden((7,)))
    variables = quick_jit(network.init)(jax.random.key(0), hidden, inputs)
    variables = jax.tree.map(lambda x: x + 0.1, variables)
    half = quick_jit(network.apply)(variables, hidden, inputs)
    assert {x.dtype for x in jax.tree.leaves((variables, half))} == {jnp.dtype("float32")}
    whole = quick_jit(network.clone(dtype="float32").apply)(variables, hidden, inputs)
    for x, y in zip(jax.tree.leaves(half), jax.tree.leaves(whole), strict=True):
        assert 0 < abs(x - y).max() < 0.05
    used = str(jax.make_jaxpr(network.apply)(variables, hidden, inputs))
    products = [line for line in used.splitlines() if "= dot_general" in line or "= conv_" in line]
    heads = 2
    assert sum(":bf16[" in line for line in products) == len(products) - heads > 0


@pytest.mark.rare
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_bfloat16_trains(kind):
    network = HALF[kind][0].clone(num_outputs=0)
    learner = learner_for(network)
    state = quick_jit(learner.init)(jax.random.key(0))
    before = jax.device_get(state.population.policy_groups[0].params)
    after, metrics = quick_jit(learner.train_step)(state)
    assert not metrics.fault.found
    after = jax.device_get(after.population.policy_groups[0].params)
    assert all(np.isfinite(x).all() and x.dtype == np.float32 for x in jax.tree.leaves(after))
    assert any((x != y).any() for x, y in zip(*map(jax.tree.leaves, (before, after)), strict=True))


@pytest.mark.rare
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot restrict itself to CPUs")
def test_initialisation_ends_on_a_machine_of_two_cores():
    """Several policies, and several runs of them, each a batch of matrix decompositions."""
    code = """
import os
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
import jax, jaxmarl_envs
from jaxmarl_ppo import MLP, PolicySpec, TrainConfig, make_learner
env, params = jaxmarl_envs.make("crypto")
policy = PolicySpec(network=MLP(separate_critic=True))
config = TrainConfig(num_envs=2, mapping="per_agent", default_policy=policy)
learner = make_learner(env, params, config)
init = jax.jit(jax.vmap(lambda key: learner.init_population(key).policy_groups))
jax.block_until_ready(init(jax.random.split(jax.random.key(0), 3)))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_critic_and_actor_share_nothing_when_separate(lstm_params):
    network = LSTM(num_outputs=3, hidden_sizes=(8,), lstm_size=6, separate_critic=True)
    x, hidden = jnp.ones((2, 5)), network.initial_hidden((2,))

    def output(params, index):
        return network.apply({"params": params}, hidden, x)[index].sum()

    gradient = quick_jit(jax.grad(output), static_argnums=1)
    for index, other in ((1, "critic"), (2, "actor")):
        grads = gradient(lstm_params, index)
        for name in (f"{other}_torso", f"{other}_lstm"):
            assert all((g == 0).all() for g in jax.tree.leaves(grads[name]))


@pytest.mark.parametrize("separate", [False, True])
def test_layers_behind_the_memory_are_each_head_s_own(separate):
    sizes = {"hidden_sizes": (8,), "gru_size": 6, "activation": "relu"}
    network = GRU(num_outputs=3, head_sizes=(7, 5), separate_critic=separate, **sizes)
    x, hidden = jnp.ones((2, 4)), network.initial_hidden((2,))
    params = quick_jit(network.init)(jax.random.key(0), hidden, x)["params"]
    plain = GRU(num_outputs=3, separate_critic=separate, **sizes)
    ends = quick_jit(plain.init)(jax.random.key(0), hidden, x)["params"]
    assert params.keys() - ends.keys() == {"actor_head_torso", "critic_head_torso"}
    moved, outputs, value = network.apply({"params": params}, hidden, x)
    # By hand, from what the memory has come to.
    for name, head, found in (
        ("actor", "policy_head", outputs),
        ("critic", "value_head", value[:, None]),
    ):
        y = moved[0 if name == "actor" else -1]
        for layer in (params[f"{name}_head_torso"][f"Dense_{i}"] for i in range(2)):
            y = jnp.maximum(y @ layer["kernel"] + layer["bias"], 0.0)
        expected = y @ params[head]["kernel"] + params[head]["bias"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num_outputs", [1, 2, FEW_OUTPUTS, FEW_OUTPUTS + 1])
def test_a_layer_and_its_gradients_equal_numpy(num_outputs):
    rng = np.random.default_rng(num_outputs)
    x, kernel = rng.normal(size=(3, 5, 7)), rng.normal(size=(7, num_outputs))
    of_y = rng.normal(size=(3, 5, num_outputs))

    def layer(x, kernel):
        return dense_dot_general(x, kernel, (((2,), (0,)), ((), ())))

    y, backward = jax.vjp(layer, jnp.float32(x), jnp.float32(kernel))
    of_x, of_kernel = backward(jnp.float32(of_y))
    np.testing.assert_allclose(y, x @ kernel, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_x, of_y @ kernel.T, rtol=1e-4, atol=1e-5)
    expected = np.einsum("abi,abo->io", x, of_y)
    np.testing.assert_allclose(of_kernel, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "shape"),
    [(MLP(num_outputs=4), (7,)), (CNN(num_outputs=4, channels=(3,)), (3, 3, 2))],
)
def test_any_leading_axes(network, shape):
    x = jax.random.normal(jax.random.key(1), (2, 3, *shape))
    variables = quick_jit(network.init)(jax.random.key(0), (), x[0])
    apply = quick_jit(network.apply)
    _, outputs, value = apply(variables, (), x)
    assert outputs.shape == (2, 3, 4)
    assert value.shape == (2, 3)
    np.testing.assert_allclose(outputs[1], apply(variables, (), x[1])[1], atol=1e-6)


class Own(nn.Module):
    """A user's network; what it returns can be spoilt."""

    num_outputs: int = 0
    flaw: str = ""

    @nn.compact
    def __call__(self, hidden, inputs):
        x = nn.Dense(4)(inputs)
        value = nn.Dense(1)(x)
        outputs = nn.Dense(self.num_outputs + (self.flaw == "outputs"))(x)
        if self.flaw == "error":
            raise RuntimeError("of the user's own")
        if self.flaw == "tuple":
            return outputs, value[..., 0]
        if self.flaw == "batch_norm":
            x = nn.BatchNorm(use_running_average=False)(x)
        return hidden, outputs, value if self.flaw == "value" else value[..., 0]


class OwnMemory(nn.Module):
    """A user's recurrent network that knows nothing of stages; `encode` is its own affair."""

    num_outputs: int = 0
    size: int = 3
    flaw: str = ""
    widths: Sequence[int] = (4,)

    def initial_hidden(self, batch_shape):
        if self.flaw == "initial_hidden":
            raise RuntimeError("no memory of that shape")
        return {"h": jnp.full((*batch_shape, self.size), float(self.flaw == "start"))}

    def encode(self, inputs, scale):
        return scale * inputs

    @nn.compact
    def __call__(self, hidden, inputs):
        x = self.encode(inputs, 2.0)
        h = nn.tanh(nn.Dense(self.size)(x) + nn.Dense(self.size)(hidden["h"]))
        new = {"h": h[..., :-1] if self.flaw == "hidden" else h}
        return new, nn.Dense(self.num_outputs)(h), nn.Dense(1)(h)[..., 0]


class OwnLinear(nn.Module):
    """A user's network whose memory is linear in itself, in stages, two leaves of it."""

    num_outputs: int = 0
    flaw: str = ""

    def setup(self):
        self.layer = nn.Dense(3)
        self.head = nn.Dense(self.num_outputs + 1 + (self.flaw == "outputs"))

    def initial_hidden(self, batch_shape):
        return {"slow": jnp.zeros((*batch_shape, 3)), "sum": jnp.zeros((*batch_shape, 1))}

    def encode(self, inputs):
        return nn.tanh(self.layer(inputs))

    def coefficients(self, encoded):
        if self.flaw == "error":
            raise RuntimeError("of a stage")
        a = {"slow": jnp.full_like(encoded, 0.7), "sum": jnp.ones((*encoded.shape[:-1], 1))}
        b = {"slow": encoded, "sum": encoded[..., : 1 + (self.flaw == "wide")]}
        return a, b

    def read(self, hidden, encoded):
        return hidden["slow"] * encoded + hidden["sum"]

    def decode(self, y):
        outputs = self.head(y)
        return outputs[..., :-1], outputs[..., -1]

    def __call__(self, hidden, inputs):
        encoded = self.encode(inputs)
        a, b = self.coefficients(encoded) if not self.flaw else (hidden, hidden)
        hidden = jax.tree.map(lambda a, h, b: a * h + b, a, hidden, b)
        outputs, value = self.decode(self.read(hidden, encoded))
        return hidden, outputs[..., : self.num_outputs], value


@pytest.mark.rare_cases("module1", "module2")
@pytest.mark.parametrize("module", [Own(), OwnMemory(), OwnLinear()])
def test_modules_of_ones_own_are_trained(module):
    learner = learner_for(module)
    state = quick_jit(learner.init)(jax.random.key(0))
    after, metrics = quick_jit(learner.train_step)(state)
    moved = jax.tree.map(
        lambda x, y: bool((x != y).any()),
        after.population.policy_groups[0].params,
        state.population.policy_groups[0].params,
    )
    assert all(jax.tree.leaves(moved))
    assert metrics.sums.update.num_steps[0] == 1


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Own(flaw="outputs"), ["Own", "(3, 10)", "(3, 9)"]),
        (Own(flaw="value"), ["Own", "(3, 1)", "(3,)"]),
        (Own(flaw="tuple"), ["Own", "must return (hidden, distribution inputs, value)"]),
        (Own(flaw="error"), ["Own", "of the user's own"]),
        (Own(flaw="batch_norm"), ["Own", "batch_stats"]),
        (OwnMemory(flaw="hidden"), ["OwnMemory", "(3, 2)", "(3, 3)"]),
        (OwnMemory(flaw="start"), ["OwnMemory", "initial_hidden must be all zeros"]),
        (OwnMemory(flaw="initial_hidden"), ["OwnMemory", "initial_hidden failed", "no memory of"]),
        (OwnLinear(flaw="error"), ["OwnLinear: one of its stages failed: of a stage"]),
        (OwnLinear(flaw="wide"), ["OwnLinear: coefficients", "(3, 2, 2)", "must return (a, b)"]),
        (OwnLinear(flaw="outputs"), ["OwnLinear: decode", "(3, 2, 10)", "((3, 2, 9), (3, 2))"]),
        (MLP(activation="swosh"), ["unknown network.activation 'swosh'", "tanh, relu, silu, gelu"]),
        (MLP(dtype="float16"), ["unknown network.dtype 'float16'; valid: float32, bfloat16"]),
        (MLP(unimix=1.0), ["unimix must be a number of at least 0 and below 1, got 1.0"]),
        (MLP(unimix=-0.1), ["unimix must be", "got -0.1"]),
        (MLP(unimix=True), ["unimix must be", "got True"]),
        (MLP(hidden_sizes=(8, 0)), ["element of network.hidden_sizes must be", "least 1, got 0"]),
        (MLP(hidden_sizes=8), ["network.hidden_sizes must be a list of whole numbers, got 8"]),
        (MLP(head_sizes=(True,)), ["element of network.head_sizes must be", "got True"]),
        (CNN(channels=(4, -1)), ["an element of network.channels must be", "got -1"]),
        (LSTM(lstm_size=0), ["network.lstm_size must be a whole number of at least 1, got 0"]),
        (MinGRU(gru_size=2.5), ["network.gru_size must be a whole number", "got 2.5"]),
        (LSTM(separate_critic="no"), ["network.separate_critic must be True or False, got 'no'"]),
    ],
)
def test_a_module_that_does_not_fit_is_refused_at_once(module, words):
    with pytest.raises(ValueError) as error:
        learner_for(module)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("kind", [kind for kind in NETWORKS if kind != "cnn"])
@pytest.mark.parametrize("separate", [False, True])
def test_our_own_networks_pass_the_check_that_they_are_spared(kind, separate):
    spec = PolicySpec(network=NETWORKS[kind](hidden_sizes=(4,), separate_critic=separate))
    learner = make_learner(*jaxmarl_envs.make("crypto"), TrainConfig(default_policy=spec))
    for group in learner.players.policy_groups:
        check_calls(group.network)
    wrong = dataclasses.replace(group.network, input_shape=(2, 3))
    with pytest.raises(ValueError, match=r"returned shapes|Incompatible shapes"):
        check_calls(wrong)


def test_planes_and_flat_features_are_told_apart():
    with pytest.raises(ValueError, match=r"MLP needs flat .* shape \(3, 3, 3\); use .*'cnn'"):
        learner_for("mlp", planes=True)
    with pytest.raises(ValueError, match=r"CNN needs planes .* shape \(27,\); use network mlp, ls"):
        learner_for("cnn")
    assert learner_for("cnn", planes=True).players.policy_groups[0].network.input_shape == (3, 3, 3)


def test_a_share_of_uniform_play_is_left_to_every_action():
    x = jnp.linspace(-50.0, 50.0, 12).reshape(3, 4)
    mixed, plain = (MLP(num_outputs=5, hidden_sizes=(6,), unimix=share) for share in (0.1, 0.0))
    params = quick_jit(plain.init)(jax.random.key(0), (), x)
    params["params"]["policy_head"]["kernel"] *= 1e4  # as sure as can be
    _, logits, value = mixed.apply(params, (), x)
    _, sure, same = plain.apply(params, (), x)
    probs = jax.nn.softmax(sure)
    assert float(probs.min()) < 1e-9
    np.testing.assert_allclose(jax.nn.softmax(logits), 0.9 * probs + 0.02, rtol=1e-5)
    np.testing.assert_array_equal(value, same)


def test_uniform_play_of_continuous_actions_is_refused():
    with pytest.raises(ValueError, match=r"unimix=0\.1 of default_policy has no effect on contin"):
        learner_for(MLP(unimix=0.1), env=Reach())


def test_continuous_actions_get_means_and_a_free_deviation():
    learner = learner_for(MLP(hidden_sizes=(4,)), env=Reach())
    params = jax.eval_shape(learner.init_population, jax.random.key(0)).policy_groups[0].params
    assert params["log_std"].shape == (1, 2)
    assert params["policy_head"]["kernel"].shape == (1, 4, 2)
    assert learner.players.policy_groups[0].network.distribution.num_outputs == 4


def test_each_policy_gets_a_network_for_its_own_agents_actions():
    learner = learner_for(MLP(hidden_sizes=(4,)), env=Reach(), mapping="per_agent")
    narrow, wide = learner.players.policy_groups
    assert (narrow.interface.slots, wide.interface.slots) == ((0,), (1,))
    assert narrow.network.distribution.num_outputs == 2
    assert wide.network.distribution.num_outputs == 4
    np.testing.assert_array_equal(narrow.interface.bounds[1], [[3.0]])
    np.testing.assert_array_equal(wide.interface.bounds[0], [[0.0, -2.0]])


def test_numbers_without_bounds_are_played_as_drawn():
    learner = learner_for(MLP(hidden_sizes=(4,)), env=OpenReach())
    (group,) = learner.players.policy_groups
    assert isinstance(group.network.distribution, ClippedGaussian)
    drawn = jnp.array([[[-7.0, 0.0], [0.5, 40.0]], [[9.0, 0.0], [3.0, -40.0]]])
    played = group.interface.env_action(drawn)
    expected = [[[-1.0, 0.0], [0.75, 40.0]], [[9.0, 0.0], [1.0, -40.0]]]
    np.testing.assert_array_equal(played, expected)
    mask = jnp.array([[[True, False], [True, True]]] * 2)
    again = group.interface.own_action(played, mask)
    np.testing.assert_array_equal(group.interface.env_action(again), expected)
    np.testing.assert_array_equal(again[..., 1], drawn[..., 1])


def test_what_an_agent_did_is_seen_alike_in_training_and_afterwards():
    learner = learner_for(MLP(hidden_sizes=(4,)), env=OpenReach(), spec={"prev_action": True})
    interface = learner.players.policy_groups[0].interface
    low, high = map(jnp.asarray, interface.bounds)
    drawn = jnp.array([[[-7.0, 0.0], [3.0, -40.0]]])
    seen = interface.bounded(drawn, low, high)
    np.testing.assert_array_equal(seen, [[[-1.0, 0.0], [1.0, -40.0]]])
    np.testing.assert_array_equal(seen, unscale(interface.env_action(drawn), low, high))


@pytest.mark.parametrize("continuous", ["squashed", "beta"])
def test_a_distribution_between_bounds_needs_them(continuous):
    message = rf"continuous='{continuous}' needs bounds.*'narrow' in 'open_reach' has low \[-1.0\]"
    with pytest.raises(ValueError, match=message):
        learner_for("mlp", env=OpenReach(), spec={"continuous": continuous})
    bounded = learner_for("mlp", env=Reach(), spec={"continuous": continuous})
    assert bounded.players.policy_groups[0].interface.continuous == continuous


EXTRAS = ("prev_action", "prev_reward", "append_agent_id", "central_critic")


@pytest.mark.parametrize("option", EXTRAS)
def test_planes_take_no_further_inputs(option):
    with pytest.raises(
        ValueError, match=r"'tic_tac_toe' has features of shape \(3, 3, 3\)"
    ) as error:
        learner_for("cnn", planes=True, spec={option: True})
    assert f"{', '.join(EXTRAS[:3])} and {EXTRAS[3]} need flat features" in str(error.value)


# --- A critic that sees what all agents see


class Reported(RandomLives):
    """Offers a state for the critic."""

    def _observe(self, noise, alive, p_act):
        state = jnp.array([0.5, -1.0])
        return super()._observe(noise, alive, p_act).replace(state=state)


def central(network, env):
    """`(slots, outputs_fn)`: three living agents, and slots to outputs and values `[A, ...]`."""
    spec = dict.fromkeys(EXTRAS, True)
    learner = learner_for(network, env, spec=spec)
    players = learner.players
    (group,) = players.policy_groups

    @quick_jit
    def begin(key):
        population = learner.init_population(key)
        slots = init_rollout_state(env, env.default_params, players, population.league, key, 1)
        return population.policy_groups[0], slots

    stack, slots = begin(jax.random.key(2))
    everyone = jnp.ones((1, 3), bool)
    features = jax.random.normal(jax.random.key(3), slots.obs.features.shape)
    obs = slots.obs.replace(alive=everyone, agent_mask=everyone, features=features)

    @quick_jit
    def outputs(slots):
        inputs, policy_index = group.interface(slots.obs, slots), group.members(slots.player)[0]
        args = (policy_index, slots.hidden[0], inputs, slots.is_first, everyone)
        _, _, outputs, value = group.network.forward(stack, *args)
        return outputs[0], value[0]

    return slots.replace(obs=obs, is_first=~everyone), outputs


def change(slots, agent, name="features"):
    """The same slots but for one agent's features or the like."""
    return slots.replace(
        obs=slots.obs.replace(**{name: getattr(slots.obs, name).at[0, agent].add(1.0)})
    )


def which_differ(before, after):
    """By agent, of what the actors and the critics say."""
    return tuple(
        (x != y).reshape(3, -1).any(-1).tolist() for x, y in zip(before, after, strict=True)
    )


NOBODY, ALL = [False] * 3, [True] * 3


@pytest.mark.parametrize(
    "network",
    [
        MLP(hidden_sizes=(8,), separate_critic=True),
        LSTM(hidden_sizes=(8,), lstm_size=6, separate_critic=True),
    ],
    ids=["mlp", "lstm"],
)
def test_a_central_critic_sees_all_agents_and_the_actor_its_own_inputs(network):
    slots, outputs = central(network, RandomLives())
    base = outputs(slots)
    for agent in range(3):
        alone = [slot == agent for slot in range(3)]
        assert which_differ(base, outputs(change(slots, agent))) == (alone, ALL)
        action = slots.last_action.at[0, agent].add(1)
        reward = slots.last_reward.at[0, agent].add(1.0)
        assert which_differ(base, outputs(slots.replace(last_action=action))) == (alone, alone)
        assert which_differ(base, outputs(slots.replace(last_reward=reward))) == (alone, alone)
    alike = slots.replace(obs=slots.obs.replace(features=jnp.ones_like(slots.obs.features)))
    logits = outputs(alike)[0]
    assert (logits[0] != logits[1]).any()  # who it is


def test_a_central_critic_sees_no_row_that_nobody_has():
    slots, outputs = central(MLP(hidden_sizes=(8,), separate_critic=True), RandomLives())
    alive = slots.obs.alive.at[0, 2].set(False)
    slots = slots.replace(obs=slots.obs.replace(alive=alive))
    without = outputs(slots)
    changed = which_differ(without, outputs(change(slots, 2)))
    assert changed == ([False, False, True], [False, False, True])  # its own row, if it were asked


def test_a_central_critic_sees_the_state_where_there_is_one():
    slots, outputs = central(MLP(hidden_sizes=(8,), separate_critic=True), Reported())
    base = outputs(slots)
    assert slots.obs.state.shape == (1, 2)
    assert which_differ(base, outputs(change(slots, 1, "state"))) == (NOBODY, ALL)
    assert which_differ(base, outputs(change(slots, 1)))[1] == [False, True, False]


@pytest.mark.parametrize("network", ["mlp", LSTM(), Own()])
def test_a_central_critic_has_to_be_a_separate_one(network):
    name = "MLP" if network == "mlp" else type(network).__name__
    with pytest.raises(ValueError, match=f"with separate_critic=True.*; {name} shares its layers"):
        learner_for(network, spec={"central_critic": True})


class Still(MultiAgentEnv):
    """Two agents see the same at every step, until both are truncated at every third."""

    name = "still"
    agents = ("left", "right")
    default_params = None

    def observation_space(self, agent, params):
        return Box(0.0, 2.0, (2,))

    def action_space(self, agent, params):
        return Discrete(2)

    def _observe(self, alive):
        features = jnp.array([[1.0, 0.5], [0.25, 2.0]])
        alive = jnp.full(2, alive)
        return Observation(features, jnp.ones((2, 2), bool), alive, alive)

    def reset_env(self, key, params):
        return self._observe(True), jnp.zeros((), jnp.int32)

    def step_env(self, key, state, action, params):
        over = state == 2
        truncated = jnp.full(2, over)
        return self._observe(~over), state + 1, jnp.zeros(2), jnp.zeros(2, bool), truncated, {}


def test_a_truncated_agent_is_still_seen_by_the_central_critic():
    """What is seen never changes, so neither does the value, and the last one is no exception."""
    network = MLP(hidden_sizes=(8,), separate_critic=True)
    learner = learner_for(network, env=Still(), spec={"central_critic": True})

    @quick_jit
    def play(key):
        return learner.play(learner.init(key), key)[1]

    record = play(jax.random.key(0))
    truncated, value = record.outcomes.truncated, record.decisions[0].value
    assert truncated.any()
    expected = np.where(truncated, np.broadcast_to(value[0, 0], value.shape), 0.0)
    assert (value[0, 0] != 0).all()
    np.testing.assert_allclose(record.outcomes.final_value, expected, rtol=1e-5)
