"""A policy taken out of its run acts as it did in it, exported or not."""

import functools
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest
from decisive import decisive
from probe_envs import RandomLives, Reach, tiny_learner
from run_folders import leave_run

import jaxmarl_envs
from jaxmarl_ppo.config.mapping import Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.deploy import jax_export as policy_export
from jaxmarl_ppo.deploy.calling import AgentShape
from jaxmarl_ppo.deploy.exported import load_exported
from jaxmarl_ppo.deploy.forms import Form
from jaxmarl_ppo.deploy.policy import Policy
from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import CNN, LSTM, MLP
from jaxmarl_ppo.rollout.act import act
from jaxmarl_ppo.rollout.lives import begin_lives
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.rollout.start import init_rollout_state
from jaxmarl_ppo.rollout.step import step

T, E = 9, 5
EXTRAS = {"prev_action": True, "prev_reward": True, "append_agent_id": True}
NORMALISERS = {"normalise_observations": True, "normalise_rewards": True}


class Log(NamedTuple):
    """What the rollout's own functions saw and did, `[T, E, A, ...]`."""

    features: np.ndarray
    mask: np.ndarray
    acting: np.ndarray
    is_first: np.ndarray
    reward: np.ndarray  # since the last action
    action: np.ndarray  # drawn, and played
    best: np.ndarray  # most likely
    value: np.ndarray


class Case(NamedTuple):
    learner: Any
    population: Any
    log: Log
    group_keys: Any  # [T, policy groups], that actions were drawn by


def watch(learner):
    """A population and what it does for some steps."""
    population = decisive(learner)
    players, env, env_params = learner.players, learner.env, learner.env_params

    @jax.jit
    def run(population, key):
        key_start, key_steps = jax.random.split(key)
        start = init_rollout_state(env, env_params, players, population.league, key_start, E)

        def time_step(state, key):
            noise = draw_noise(players, (E,), key)
            best = act(players, population, state, env_params, noise, greedy=True)
            drawn = act(players, population, state, env_params, noise)
            value = jnp.zeros((E, env.num_agents))
            for group, own in zip(players.policy_groups, drawn.decisions, strict=True):
                value = group.interface.spread(own.value, value, own.acted, own.slot)
            after, stepped = step(env, env_params, state, drawn, noise)
            obs = state.obs
            before = (state.is_first, state.last_reward)
            seen = (obs.features, obs.action_mask, obs.agent_mask, *before)
            did = (drawn.env_action, best.env_action, value)
            league, alive = population.league, state.obs.alive
            return begin_lives(players, league, alive, after, stepped, noise), seen + did

        keys = jax.random.split(key_steps, T)
        group_keys = jax.vmap(
            lambda key: jax.random.split(key, 3 + len(players.policy_groups))[3:]
        )(keys)
        return jax.lax.scan(time_step, start, keys)[1], group_keys

    log, group_keys = run(population, jax.random.key(3))
    return Case(learner, population, Log(*map(np.asarray, log)), group_keys)


def make_case(name):
    if name == "mlp":
        return tiny_learner(*jaxmarl_envs.make("tic_tac_toe"))
    if name == "lstm":
        env = RandomLives()
        spec = {**EXTRAS, **NORMALISERS}
        return tiny_learner(env, env.default_params, memory=True, spec=spec)
    if name == "cnn":
        env, params = jaxmarl_envs.make("tic_tac_toe", planes=True)
        spec = PolicySpec(CNN(channels=(4,), hidden_sizes=(8,)), normalise_observations=True)
        config = TrainConfig(
            num_envs=3, num_steps=5, default_policy=spec, default_ppo=PPOConfig(num_minibatches=1)
        )
        return make_learner(env, params, config)
    if name == "continuous":
        env, params = jaxmarl_envs.make("crypto", continuous_actions=True)
        spec = {"prev_action": True, "prev_reward": True, "normalise_observations": True}
        return tiny_learner(env, params, memory="min_gru", spec=spec)
    if name == "bounds":
        return tiny_learner(Reach(), None)
    env, network = RandomLives(), {"separate_critic": True}
    spec = {"central_critic": True, "normalise_observations": True}
    return tiny_learner(env, env.default_params, mapping="per_agent", spec=spec, network=network)


CASES = ("mlp", "lstm", "cnn", "continuous", "bounds", "central")
_cases: dict[str, Case] = {}


def the_case(name) -> Case:
    if name not in _cases:
        _cases[name] = watch(make_case(name))
    return _cases[name]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return the_case(request.param)


def policy_of(case, slot=None, **kwargs):
    """The policy of a slot, or of all."""
    names, candidates = case.learner.players.names, case.learner.players.mapping.candidates
    name = names[candidates[0 if slot is None else slot][0]]
    return Policy.of(case.learner, case.population, name, **kwargs)


def assert_same_actions(action, expected):
    if np.asarray(expected).dtype == np.int32:
        np.testing.assert_array_equal(action, expected)
    else:
        np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)


# ---- The same as in the rollout ------------------------------------------------------------------


def play_agent(case, slot, on_step, fixed=False):
    """Step by step with one agent's own widths, memory held by the policy's answers alone."""
    log, env = case.log, case.learner.env
    agent = env.agents[slot]
    policy = policy_of(case, slot, agent=agent if fixed else None)
    shape = policy.signature.agent_shapes[agent]
    features = log.features[:, :, slot]
    if features.ndim == 3:
        features = features[..., : shape.feature_shape[0]]
    action = log.action[:, :, slot]
    is_numbers = shape.form.kind == "numbers"
    action = action[..., : shape.num_actions] if is_numbers else action
    hidden = policy.initial_hidden(E)
    prev_action = np.zeros_like(action[0])
    for t in range(T):
        acting = log.acting[t, :, slot]
        given: dict[str, Any] = {} if fixed else {"agent": agent}
        if policy.signature.prev_action:
            given |= {"prev_action": prev_action}
        if policy.signature.prev_reward:
            given |= {"prev_reward": log.reward[t, :, slot]}
        given |= {"reset": log.is_first[t, :, slot]}
        more = {"action_mask": log.mask[t, :, slot, : shape.num_actions], "acting": acting}
        hidden = on_step(t, policy, features[t], hidden, given, more, acting)
        prev_action = np.where(acting.reshape(E, *[1] * (action[t].ndim - 1)), action[t],
                               prev_action)  # fmt: skip


@pytest.mark.rare_cases("central", "continuous", "cnn", "bounds")
def test_greedy_actions_are_those_of_the_rollout(case):
    compared = 0
    for slot in range(case.learner.env.num_agents):

        def on_step(t, policy, observation, hidden, given, more, acting, slot=slot):
            nonlocal compared
            action, hidden = policy.act(observation, hidden, **given, **more)
            expected = case.log.best[t, :, slot]
            shape = policy.signature.agent_shapes[case.learner.env.agents[slot]]
            if shape.form.kind == "numbers":
                num_actions = shape.num_actions
                assert action.shape == (E, num_actions)
                expected = expected[:, :num_actions]
            assert_same_actions(action[acting], expected[acting])
            compared += acting.sum()
            return hidden

        play_agent(case, slot, on_step, fixed=slot == 1)
    assert compared == case.log.acting.sum() > 2 * T


@pytest.mark.rare_cases("continuous", "cnn", "bounds")
@pytest.mark.parametrize("name", [name for name in CASES if name != "central"])
def test_drawn_actions_are_those_of_the_rollout(name):
    """All rows of a policy group at once, in the widths of the widest, by the rollout's own key."""
    case = the_case(name)
    learner, log, policy = case.learner, case.log, policy_of(case)
    signature, num_agents = policy.signature, learner.env.num_agents
    one_acts = learner.env.max_actors == 1

    def rows(x):
        """`[E, M, ...]`: whoever acts, where only one can, else all."""
        slot = log.acting[t].argmax(-1)
        return x[t][np.arange(E), slot][:, None] if one_acts else x[t]

    hidden = policy.initial_hidden((E, 1 if one_acts else num_agents))
    for t in range(T):
        acting = rows(log.acting)
        given: dict[str, Any] = {"reset": rows(log.is_first), "acting": acting}
        if not one_acts:
            given |= {"agent": np.arange(num_agents)}
        if t == 0:
            prev_action = np.zeros_like(rows(log.action))
        if signature.prev_action:
            given |= {"prev_action": prev_action}
        if signature.prev_reward:
            given |= {"prev_reward": rows(log.reward)}
        mask, key = rows(log.mask), case.group_keys[t, 0]
        action, hidden = policy.act(rows(log.features), hidden, key, action_mask=mask, **given)
        expected = rows(log.action)
        assert_same_actions(action[acting], expected[acting])
        wide = acting.reshape(*acting.shape, *[1] * (prev_action.ndim - 2))
        prev_action = np.where(wide, expected, prev_action)
    assert not (log.action == log.best).all()


@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_values_are_those_of_the_rollout_in_units_of_reward(name):
    case, compared = the_case(name), 0
    moments = case.population.policy_groups[0].return_moments
    scale = 1.0
    if moments is not None:
        count, var = moments.count[0], moments.var[0]
        scale = np.sqrt((10.0 + count * var) / (10.0 + count))

    def on_step(t, policy, observation, hidden, given, more, acting):
        nonlocal compared
        value = policy.value(observation, hidden, **given)
        expected = scale * case.log.value[t, :, 1]
        np.testing.assert_allclose(value[acting], expected[acting], rtol=1e-4, atol=1e-5)
        compared += acting.sum()
        return policy.act(observation, hidden, **given, **more)[1]

    play_agent(case, 1, on_step)
    assert compared > T


def test_a_greedy_game_ends_as_evaluation_says():
    case = the_case("mlp")
    env, params = case.learner.env, case.learner.env_params
    totals = play_episodes(case.learner, case.population, 1, jax.random.key(0), greedy=True)
    policy, key = policy_of(case), jax.random.key(0)
    obs, state = env.reset(key, params)
    total, length, over, play = np.zeros(2), 0, False, jax.jit(env.step)
    while not over:
        action, _ = policy.act(obs.features, (), action_mask=obs.action_mask)
        obs, state, reward, _, _, info = play(key, state, action, params)
        total, length, over = total + reward, length + 1, bool(info["episode_over"])
    np.testing.assert_array_equal(total, totals.returns[0])
    assert length == totals.num_steps


# ---- Batches -------------------------------------------------------------------------------------


def lstm_inputs(batch_shape, seed=0):
    """Of agent `c`, who has 4 features and 4 actions."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(*batch_shape, 4)).astype(np.float32)
    given = {
        "agent": "c",
        "action_mask": rng.random((*batch_shape, 4)) < 0.7,
        "prev_action": rng.integers(4, size=batch_shape),
        "prev_reward": rng.normal(size=batch_shape),
        "reset": rng.random(batch_shape) < 0.3,
    }
    given["action_mask"][..., 2] = True
    return features, given


def test_any_batch_shape_gives_the_rows_of_a_flat_one():
    policy = policy_of(the_case("lstm"))
    features, given = lstm_inputs((6,))
    hidden = tuple(h + 0.3 for h in policy.initial_hidden(6))
    action, moved = policy.act(features, hidden, **given)
    assert action.dtype == jnp.int32

    def shaped(shape, x):
        return x if isinstance(x, str) else np.reshape(x, (*shape, *np.shape(x)[1:]))

    for shape in ((2, 3), (1, 6, 1)):
        ours = {name: shaped(shape, x) for name, x in given.items()}
        other, other_moved = policy.act(
            shaped(shape, features), tuple(shaped(shape, h) for h in hidden), **ours
        )
        np.testing.assert_array_equal(other, action.reshape(shape))
        for a, b in zip(moved, other_moved, strict=True):
            np.testing.assert_allclose(b, shaped(shape, a), rtol=1e-6, atol=1e-6)
    one = {name: x if isinstance(x, str) else x[4] for name, x in given.items()}
    single, single_moved = policy.act(features[4], tuple(h[4] for h in hidden), **one)
    assert single.shape == ()
    assert single == action[4]
    assert single_moved[0].shape == policy.initial_hidden()[0].shape


def test_agents_in_one_batch_take_only_actions_that_they_have():
    policy = policy_of(the_case("lstm"))
    slots = np.tile([0, 2], 60)
    features = lstm_inputs((120,))[0]
    action, _ = policy.act(
        features, policy.initial_hidden(120), jax.random.key(0), agent=slots, reset=True
    )
    assert set(np.asarray(action[slots == 0])) == {0, 1, 2}
    assert set(np.asarray(action[slots == 2])) == {0, 1, 2, 3}


def test_rows_that_wait_keep_their_memory_and_rows_that_reset_lose_it():
    policy = policy_of(the_case("lstm"))
    features, given = lstm_inputs((4,))
    hidden = tuple(h + 0.3 for h in policy.initial_hidden(4))
    given["reset"] = np.array([True, True, False, False])
    acting = np.array([True, False, True, False])
    _, moved = policy.act(features, hidden, acting=acting, **given)
    for before, after in zip(hidden, moved, strict=True):
        np.testing.assert_array_equal(after[~acting], before[~acting])
        assert (after[acting] != before[acting]).any(-1).all()
    first = {"agent": "c", "action_mask": given["action_mask"][:1], "reset": True}
    _, begun = policy.act(features[:1], policy.initial_hidden(1), **first)
    for a, b in zip(begun, moved, strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-6, atol=1e-6)


def test_act_can_be_called_inside_compiled_functions():
    policy = policy_of(the_case("lstm"))
    features, given = lstm_inputs((3, 2))
    arrays = {name: x for name, x in given.items() if name != "agent"}
    hidden, keys = policy.initial_hidden((3, 2)), jax.random.split(jax.random.key(0), 3)

    @jax.jit
    @jax.vmap
    def inside(features, hidden, key, arrays):
        return policy.act(features, hidden, key, agent="c", **arrays)

    action, _ = inside(features, hidden, keys, arrays)
    for row in range(3):
        own = jax.tree.map(lambda x, row=row: x[row], (features, hidden, keys, arrays))
        expected, _ = policy.act(*own[:3], agent="c", **own[3])
        np.testing.assert_array_equal(action[row], expected)


def test_a_second_call_of_the_same_shape_compiles_nothing():
    policy = policy_of(the_case("mlp"))
    features = np.zeros((2, 27), np.float32)
    policy.act(features, ())
    with jax.log_compiles(), jax.no_tracing():
        policy.act(features + 1.0, ())


# ---- The document --------------------------------------------------------------------------------


def test_the_document_takes_a_policy_out(run_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "secret").symlink_to(run_dir)
    text = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text()
    blocks = re.findall(r"```py\n(.*?)```", text, flags=re.DOTALL)
    namespace = {}
    for block in blocks:
        exec(compile(block, "policies.md", "exec"), namespace)
    assert len(blocks) == 2
    np.testing.assert_array_equal(namespace["action"], namespace["raw_action"])


# ---- Which policy --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def league():
    env, params = jaxmarl_envs.make("tic_tac_toe")
    config = TrainConfig(
        num_envs=4,
        num_steps=8,
        mapping=Matchups(({"x": "main", "o": "past"}, {"x": "random", "o": "main"})),
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_minibatches=1),
        policies={"past": Snapshots("main", size=3, add_every=1), "random": Scripted("random")},
    )
    learner = make_learner(env, params, config)
    population = decisive(learner)
    pool = population.league.pools[0].replace(count=jnp.int32(2), added_at=jnp.array([0, 5, 0]))
    return learner, population.replace(league=population.league.replace(pools=(pool,)))


def test_a_snapshot_is_taken_by_its_name(league):
    learner, population = league
    policy = Policy.of(learner, population, "past@it5")
    assert policy.signature.policy == "past@it5"
    row = learner.players.names.index("past@1")
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a[0], b[row]),
        policy.params,
        population.policy_groups[0],
    )
    assert policy.agents == ("x", "o")
    by_place = Policy.of(learner, population, "past@1")
    assert by_place.signature == policy.signature
    assert Policy.of(learner, population).signature.policy == "main"
    assert Policy.of(learner, population, agent="o").agents == ("o",)


@pytest.mark.parametrize(
    ("policy", "agent", "message"),
    [
        ("nobody", None, "unknown policy 'nobody'; valid: main, past@it0, past@it5"),
        ("past", None, "unknown policy 'past'; valid: main, past@it0, past@it5"),
        ("past@2", None, "unknown policy 'past@2'; valid: main, past@it0, past@it5"),
        ("random", None, "unknown policy 'random'; valid: main, past@it0, past@it5"),
        ("main", "z", "unknown agent 'z'"),
    ],
)
def test_an_unknown_policy_is_told_the_names(league, policy, agent, message):
    with pytest.raises(ValueError, match=message):
        Policy.of(*league, policy, agent)


def test_one_of_several_policies_has_to_be_named():
    case = the_case("central")
    with pytest.raises(ValueError, match=r"name the policy, since .* valid: a, b, c"):
        Policy.of(case.learner, case.population)
    with pytest.raises(ValueError, match="unknown policy 'a' that plays agent 'b'; valid: b"):
        Policy.of(case.learner, case.population, "a", "b")
    assert Policy.of(case.learner, case.population, agent="b").signature.policy == "b"
    policy = Policy.of(case.learner, case.population, "b")
    assert policy.signature.agent_shapes == {"b": AgentShape(1, (4,), Form("choice", (3,)))}
    assert repr(policy) == "Policy('b' of random_lives, plays b, discrete)"


@pytest.fixture(scope="module")
def crypto():
    config = TrainConfig(
        mapping="per_agent",
        num_envs=3,
        num_steps=5,
        default_policy=PolicySpec(network=LSTM(hidden_sizes=(4,), lstm_size=3)),
        default_ppo=PPOConfig(num_minibatches=1),
    )
    learner = make_learner(*jaxmarl_envs.make("crypto"), config)
    return learner, decisive(learner), config


@pytest.fixture(scope="module")
def run_dir(crypto, tmp_path_factory):
    """What training would leave."""
    learner, population, config = crypto
    return leave_run(tmp_path_factory.mktemp("run"), learner, config, population)


def test_a_policy_is_loaded_from_a_run(crypto, run_dir):
    features = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)

    def actions(policy):
        return policy.act(features, policy.initial_hidden(16))[0]

    loaded = actions(Policy.load(run_dir, "bob_0"))
    np.testing.assert_array_equal(loaded, actions(Policy.of(*crypto[:2], "bob_0")))
    assert (loaded != actions(Policy.load(run_dir, "alice_0"))).any()
    with pytest.raises(ValueError, match="unknown policy 'bob'; valid: eve_0, bob_0, alice_0"):
        Policy.load(run_dir, "bob")
    with pytest.raises(ValueError, match="does not exist"):
        Policy.load(run_dir / "nowhere")


# ---- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": np.zeros((5, 3))}, r"observation has shape \(5, 3\), but .*\(..., 4\)"),
        ({"observation": np.zeros((0, 4))}, r"observation has shape \(0, 4\), but .*one row"),
        ({"observation": np.float32(1)}, r"observation has shape \(\), but .*\(..., 4\)"),
        ({"action_mask": np.ones((5, 3))}, r"action_mask has shape \(5, 3\), but .*\(5, 4\)"),
        ({"action_mask": np.ones((2, 4))}, r"action_mask has shape \(2, 4\), but .*\(5, 4\)"),
        ({"agent": "a"}, r"action_mask has shape \(5, 4\), but .*\(5, 3\)"),
        ({"agent": None}, "acts differently for each of its agents: pass agent=, one of a, b, c"),
        ({"agent": "d"}, "does not play agent 'd'; it plays a, b, c"),
        ({"agent": np.array([0, 1, 2, 3, 0])}, r"plays a, b, c in the slots \[0, 1, 2\], got"),
        ({"prev_action": None}, "was trained with prev_action: pass prev_action="),
        ({"prev_reward": None}, "was trained with prev_reward: pass prev_reward="),
        ({"prev_reward": np.zeros(4)}, r"prev_reward has shape \(4,\), but .*\(5,\)"),
        ({"reset": np.zeros((5, 1), bool)}, r"reset has shape \(5, 1\), but .*\(5,\)"),
        ({"acting": np.zeros(2, bool)}, r"acting has shape \(2,\), but .*\(5,\)"),
        ({"hidden": ()}, r"hidden has the shapes \[\], but .*\[\(5, 6\), \(5, 6\)\] .*initial_hid"),
        ({"hidden": (np.zeros((4, 6)),) * 2}, r"hidden has the shapes \[\(4, 6\), \(4, 6\)\]"),
        ({"key": 3}, r"key must be one key such as jax.random.key\(0\), got int64"),
        ({"key": jax.random.split(jax.random.key(0))}, r"must be one key .* of shape \(2,\)"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(changes, message):
    policy = policy_of(the_case("lstm"))
    observation, given = lstm_inputs((5,))
    call = {"observation": observation, "hidden": policy.initial_hidden(5), **given, **changes}
    with pytest.raises(ValueError, match=message):
        policy.act(**call)


def test_rows_that_nobody_can_act_on_are_named():
    """Unless they wait; what lies on a device or is traced is not looked at."""
    policy = policy_of(the_case("mlp"))
    features, mask = np.zeros((2, 3, 27)), np.ones((2, 3, 9), bool)
    mask[1, 2] = False
    with pytest.raises(ValueError, match="action_mask leaves no legal action in row 1, 2"):
        policy.act(features, (), action_mask=mask)
    acting = np.ones((2, 3), bool)
    acting[1, 2] = False
    policy.act(features, (), action_mask=mask, acting=acting)
    features[0, 1, 5] = np.nan
    with pytest.raises(ValueError, match=r"holds a number that is not finite in row 0, 1$"):
        policy.act(features, ())
    with pytest.raises(ValueError, match=r"holds a number that is not finite$"):
        policy.act(features[0, 1], ())
    policy.act(jax.numpy.asarray(features), ())


def test_inputs_without_effect_are_refused():
    policy = policy_of(the_case("mlp"))
    with pytest.raises(ValueError, match="prev_reward has no effect on policy 'shared'"):
        policy.act(np.zeros((2, 27)), (), prev_reward=np.zeros(2))
    with pytest.raises(ValueError, match="has a centralised critic"):
        policy_of(the_case("central"), 1).value(np.zeros((2, 4)), ())


# ---- Export --------------------------------------------------------------------------------------

EXPORTED = ("mlp", "lstm", "cnn", "continuous")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """From the name of a case to its policy's file, made once."""
    folder = tmp_path_factory.mktemp("exported")

    @functools.cache
    def path_of(name):
        path = folder / f"{name}.jaxexport"
        returned = policy_of(the_case(name)).export(path)
        assert returned.header == load_exported(path).header
        return path

    return path_of


@pytest.mark.rare_cases(
    "1-None-continuous",
    "1-None-cnn",
    "6-None-cnn",
    "6-key2-continuous",
    "6-None-continuous",
    "6-key2-cnn",
)
@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.parametrize(("num_rows", "key"), [(1, None), (6, None), (6, jax.random.key(5))])
def test_an_exported_policy_acts_as_the_original(exported, name, num_rows, key):
    policy, loaded = policy_of(the_case(name)), load_exported(exported(name))
    inputs, hidden = policy_export.random_inputs(policy, num_rows)
    observation = inputs.pop("features")
    action, moved = policy.act(observation, hidden, key, **inputs)
    other, other_moved = loaded.act(observation, hidden, key, **inputs)
    assert action.dtype == other.dtype
    assert_same_actions(other, action)
    for a, b in zip(moved, other_moved, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert len(moved) == len(other_moved) == len(policy.signature.hidden)


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_policy_has_the_signature_of_the_original(exported, name):
    policy, loaded = policy_of(the_case(name)), load_exported(exported(name))
    assert loaded.signature == policy.signature
    assert loaded.agents == policy.agents
    assert loaded.header["platforms"] == ["cpu", "cuda", "tpu"]
    shapes = [h.shape for h in policy.initial_hidden((2, 3))]
    assert [h.shape for h in loaded.initial_hidden((2, 3))] == shapes


def test_an_exported_policy_takes_an_agents_own_widths_and_any_batch_shape(tmp_path):
    learner = tiny_learner(*jaxmarl_envs.make("multi_spaces"), spec={"prev_action": True})
    policy = Policy.of(learner, decisive(learner))
    loaded = policy.export(tmp_path / "shared", platforms=("cpu",))
    rng = np.random.default_rng(0)
    for agent, width in (("agent_0", 10), ("agent_1", 20)):
        for shape in ((), (2, 3)):
            features = rng.normal(size=(*shape, width)).astype(np.float32)
            action, _ = policy.act(features, (), agent=agent, reset=True)
            other, _ = loaded.act(features, (), agent=agent, reset=True)
            np.testing.assert_array_equal(action, other)
            assert other.shape == shape
    with pytest.raises(ValueError, match=r"\(20,\), but here policy 'shared' takes \(..., 10\)"):
        loaded.act(np.zeros(20), loaded.initial_hidden(), agent="agent_0", reset=True)


RAW = """
import json, sys, zipfile
import jax, numpy as np
import jax.export

path, inputs, out = sys.argv[1:]
with zipfile.ZipFile(path) as file:
    header = json.loads(file.read("header.json"))
    greedy, sampled = (
        jax.export.deserialize(bytearray(file.read(name))) for name in ("greedy", "sampled")
    )
given = dict(np.load(inputs))
assert set(given) == set(header["inputs"])
hidden = [np.zeros((7, *leaf["shape"][1:]), leaf["dtype"]) for leaf in header["hidden"]]
results = {}
for _ in range(2):
    action, hidden = jax.jit(greedy.call)(given, hidden)
results["greedy"] = action
results["sampled"], _ = sampled.call(given, hidden, jax.random.key_data(jax.random.key(2)))
np.savez(out, *hidden, **results)
foreign = {"jaxmarl_ppo", "jaxmarl_envs", "flax", "distrax", "optax", "chex"}
assert not foreign & set(sys.modules), foreign & set(sys.modules)

from jaxmarl_ppo import load_exported

policy = load_exported(path)
agent = given.pop("agent")
action, _ = policy.act(given.pop("features"), hidden, jax.random.key(2), agent=agent, **given)
assert (action == results["sampled"]).all()
foreign.remove("jaxmarl_ppo")
assert not foreign & set(sys.modules), foreign & set(sys.modules)
"""


def test_a_file_is_read_with_jax_and_numpy_alone(exported, tmp_path):
    policy = policy_of(the_case("lstm"))
    inputs, _ = policy_export.random_inputs(policy, 7)
    np.savez(tmp_path / "inputs.npz", **inputs)
    files = [str(exported("lstm")), *(str(tmp_path / name) for name in ("inputs.npz", "out.npz"))]
    done = subprocess.run([sys.executable, "-c", RAW, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out, features = np.load(tmp_path / "out.npz"), inputs.pop("features")
    hidden = policy.initial_hidden(7)
    for _ in range(2):
        action, hidden = policy.act(features, hidden, **inputs)
    np.testing.assert_array_equal(out["greedy"], action)
    np.testing.assert_allclose(out["arr_1"], hidden[1], rtol=1e-5, atol=1e-6)
    action, _ = policy.act(features, hidden, jax.random.key(2), **inputs)
    np.testing.assert_array_equal(out["sampled"], action)


def test_a_fixed_batch_takes_so_many_rows_and_no_others(tmp_path):
    policy = policy_of(the_case("mlp"))
    loaded = policy.export(tmp_path / "two", platforms=("cpu",), batch=2)
    assert loaded.header["inputs"]["features"]["shape"] == [2, 27]
    assert loaded.act(np.zeros((2, 27)), ())[0].shape == (2,)
    with pytest.raises(ValueError, match="for batches of 2, got 3 observations"):
        loaded.act(np.zeros((3, 27)), ())


def changed(case, factor):
    """The case's policy with other parameters."""
    groups = [
        group.replace(params=jax.tree.map(lambda x: factor * x, group.params))
        for group in case.population.policy_groups
    ]
    return Policy.of(case.learner, case.population.replace(policy_groups=tuple(groups)))


@pytest.mark.parametrize(
    ("name", "factor"), [("mlp", -1), ("lstm", 0.9), ("continuous", -1), ("continuous", np.nan)]
)
def test_a_policy_that_acts_differently_is_noticed(exported, name, factor):
    loaded, policy = load_exported(exported(name)), changed(the_case(name), factor)
    with pytest.raises(ValueError, match=r"differently from 'shared' on \d+ of 33 random inputs"):
        policy_export.check_same(policy, loaded)


def test_an_export_that_acts_differently_is_not_written(tmp_path, monkeypatch):
    make, wrong = policy_export.make_programs, changed(the_case("mlp"), -1)
    monkeypatch.setattr(policy_export, "make_programs", lambda _, *args: make(wrong, *args))
    with pytest.raises(ValueError, match="nothing was written"):
        policy_of(the_case("mlp")).export(tmp_path / "wrong", platforms=("cpu",))
    assert not list(tmp_path.iterdir())


def test_actions_that_are_liked_alike_may_be_swapped():
    case = the_case("mlp")
    group = case.population.policy_groups[0]
    bias = jnp.array([[5.0, 5.0, *range(7)]])
    head = {"kernel": 0.0 * group.params["policy_head"]["kernel"], "bias": bias}
    group = group.replace(params={**group.params, "policy_head": head})
    policy = Policy.of(case.learner, case.population.replace(policy_groups=(group,)))
    inputs = {"features": np.zeros((3, 27), np.float32), "action_mask": np.ones((3, 9), bool)}
    actions = np.array([[0], [8], [8]]), np.array([[1], [1], [8]])
    wrong = policy_export.prefers(policy, (inputs, (), None), actions, 1e-5)
    np.testing.assert_array_equal(wrong, [False, True, False])
    inputs["action_mask"][0, 1] = False
    wrong = policy_export.prefers(policy, (inputs, (), None), actions, 1e-5)
    np.testing.assert_array_equal(wrong, [True, True, False])


def test_a_number_drawn_on_the_edge_of_two_actions_may_mean_either(monkeypatch):
    case = the_case("mlp")
    group = case.population.policy_groups[0]
    head = jax.tree.map(jnp.zeros_like, group.params["policy_head"])
    group = group.replace(params={**group.params, "policy_head": head})
    policy = Policy.of(case.learner, case.population.replace(policy_groups=(group,)))
    inputs = {"features": np.zeros((4, 27), np.float32), "action_mask": np.ones((4, 9), bool)}
    inputs["action_mask"][3, 3] = False  # of eight actions each has an eighth
    drawn = np.array([3 / 9 - 1e-7, 3 / 9 + 1e-7, 3 / 9 + 1e-3, 3 / 8])
    monkeypatch.setattr(type(policy.network.distribution), "noise", lambda *_: drawn)
    call = (inputs, (), jax.random.key(0))
    actions = np.full((4, 1), 5), np.array([[3], [2], [2], [3]])
    wrong = policy_export.prefers(policy, call, actions, 1e-5)
    np.testing.assert_array_equal(wrong, [False, False, True, True])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"platforms": ("cpu", "gpu")}, "platforms must be some of cpu, cuda, rocm, tpu, got"),
        ({"platforms": "cpu"}, "platforms must be some of"),
        ({"platforms": ()}, "platforms must be some of"),
        ({"batch": 0}, "batch must be a name such as 'b' or a number of rows from 1, got 0"),
        ({"batch": "b c"}, "batch must be a name such as 'b'"),
    ],
)
def test_options_of_an_export_are_checked(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        policy_of(the_case("mlp")).export(tmp_path / "policy", **arguments)
    assert not list(tmp_path.iterdir())


def test_no_file_is_overwritten(tmp_path):
    path = tmp_path / "policy"
    path.write_text("mine")
    with pytest.raises(ValueError, match="exists; choose another name or remove it"):
        policy_of(the_case("mlp")).export(path)
    assert path.read_text() == "mine"


def test_damaged_files_are_told(exported, tmp_path):
    path = tmp_path / "policy"
    with pytest.raises(ValueError, match="does not exist"):
        load_exported(path)
    content = exported("mlp").read_bytes()
    for damaged in (b"", content[:-9], content.replace(b"features", b"futures!", 1)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged or no exported policy"):
            load_exported(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.json", json.dumps({"format": 9}))
        file.writestr("greedy", b"")
        file.writestr("sampled", b"")
    with pytest.raises(ValueError, match="has format 9; this version reads 1 and 2"):
        load_exported(path)


@pytest.mark.parametrize("target", ["xla_ffi_python_cpu_callback", "a kernel of somebody's"])
def test_a_program_that_calls_something_else_is_refused(exported, tmp_path, target):
    path = tmp_path / "policy"
    with zipfile.ZipFile(exported("mlp")) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    program = jax.export.deserialize(bytearray(parts["greedy"]))

    def calls(*args):
        action, hidden = program.call(*args)
        return jax.ffi.ffi_call(target, action)(action), hidden

    (batch,) = jax.export.symbolic_shape(str(program.in_avals[0].shape[0]))
    inputs = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in program.in_avals]
    args, _ = jax.tree.unflatten(program.in_tree, inputs)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(target)]
    exporting = jax.export.export(jax.jit(calls), platforms=["cpu"], disabled_checks=allowed)
    parts["greedy"] = bytes(exporting(*args).serialize())
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(zipfile.ZipInfo(name), content)
    with pytest.raises(ValueError, match=f"greedy calls {target}, which no exported policy may do"):
        load_exported(path)


def test_keys_of_another_kind_are_refused_by_an_exported_policy(exported):
    loaded = load_exported(exported("mlp"))
    features, key = np.zeros((2, 27)), jax.random.key(1)
    drawn = loaded.act(features, (), key)[0]
    np.testing.assert_array_equal(loaded.act(features, (), jax.random.key_data(key))[0], drawn)
    with pytest.raises(ValueError, match=r"threefry keys, of shape \(2,\), got \(4,\)"):
        loaded.act(features, (), jax.random.key(1, impl="rbg"))
