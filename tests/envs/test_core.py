"""The contract's base class, the spaces, the registry, and what importing the package costs."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxmarl_envs
from jaxmarl_envs import (
    Box,
    Discrete,
    MultiAgentEnv,
    Observation,
    all_names,
    make,
    names,
    register,
    registry,
)
from jaxmarl_envs.spaces import from_uniform

NUM_ENVS = 3


@struct.dataclass
class CountdownParams:
    start: int = 3


@struct.dataclass
class CountdownState:
    left: jax.Array  # [] int
    coin: jax.Array  # [] float, drawn at the reset


class Countdown(MultiAgentEnv):
    """Two agents count down to 0; agent b's life is truncated, agent a's terminated."""

    name = "countdown"
    agents = ("a", "b")

    @property
    def default_params(self):
        return CountdownParams()

    def observation_space(self, agent, params):
        return Box(0.0, np.inf, (2,))

    def action_space(self, agent, params):
        return Discrete(2 + self.agent_index(agent))

    def reset_env(self, key, params):
        start = jnp.asarray(params.start, jnp.int32)
        state = CountdownState(left=start, coin=jax.random.uniform(key))
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        state = CountdownState(left=state.left - 1, coin=state.coin)
        over = state.left <= 0
        reward = action.astype(jnp.float32)
        info = {"metrics": {"steps": jnp.ones(2)}}
        return (
            self.observe(state),
            state,
            reward,
            jnp.stack([over, jnp.array(False)]),
            jnp.stack([jnp.array(False), over]),
            info,
        )

    def observe(self, state):
        alive = jnp.broadcast_to(state.left > 0, (2,))
        row = jnp.stack([state.left.astype(jnp.float32), state.coin])
        mask = jnp.array([[True, True, False], [True, True, True]])
        return Observation(jnp.stack([row, row]), mask, alive=alive, agent_mask=alive)


def equal(one, two):
    """Whether two pytrees are the same to the bit."""
    assert jax.tree.structure(one) == jax.tree.structure(two)
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(x.dtype == y.dtype and np.array_equal(raw(x), raw(y)) for x, y in pairs)


def raw(x):
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)


def random_actions(env, params, key, obs):
    """Uniform legal actions for every slot of `E` environments."""
    noise = jax.random.uniform(key, obs.action_mask.shape)
    return env.action_layout(params).pick(noise, obs.action_mask)


# ---- Registry ------------------------------------------------------------------------------------


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRY_POINTS", dict(registry._ENTRY_POINTS))


def test_names_are_sorted_and_unique():
    assert list(names()) == sorted(set(names()))
    libraries = {
        *("gymnasium", "gymnax", "jaxmarl", "jumanji", "openspiel", "pettingzoo", "pgx", "vmas")
    }
    assert set(all_names()) - set(names()) == libraries | {"grouped", "joined", "rllib"}
    assert {"crypto", "shuttle_grid", "tic_tac_toe"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_make_gives_the_environment_and_its_default_params(name):
    env, params = make(name)
    assert isinstance(env, MultiAgentEnv)
    assert env.name == name
    assert jax.tree.structure(params) == jax.tree.structure(env.default_params)


def test_make_passes_keywords_on():
    assert make("crypto", continuous_actions=True)[0].continuous_actions


def test_a_typo_names_the_closest_and_all_valid_names():
    with pytest.raises(ValueError, match="unknown environment 'cripto'") as error:
        make("cripto")
    assert "did you mean 'crypto'?" in str(error.value)
    assert ", ".join(all_names()) in str(error.value)


def test_a_name_that_resembles_none_gets_no_suggestion():
    with pytest.raises(ValueError, match="valid names: ") as error:
        make("zzzzzz")
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize("name", ["", "pettingzoo:", None, 3])
def test_what_cannot_be_a_name_is_unknown(name):
    with pytest.raises(
        ValueError, match=f"unknown environment {name!r}; .*valid names: asymmetric"
    ):
        make(name)


def test_an_unknown_keyword_lists_the_valid_ones():
    with pytest.raises(ValueError, match=r"'crypto' takes no option 'size'.*continuous_actions"):
        make("crypto", size=3)


@pytest.mark.usefixtures("own_registry")
def test_register_adds_a_name():
    register("countdown", Countdown)
    assert "countdown" in names()
    env, params = make("countdown")
    assert isinstance(env, Countdown)
    assert params == CountdownParams()


@pytest.mark.usefixtures("own_registry")
def test_a_factory_may_take_any_keyword():
    seen = {}

    def factory(**kwargs):
        seen.update(kwargs)
        return Countdown()

    register("anything", factory)
    make("anything", size=3)
    assert seen == {"size": 3}


@pytest.mark.usefixtures("own_registry")
def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match="'crypto' is registered already"):
        register("crypto", Countdown)
    register("countdown", Countdown)
    with pytest.raises(ValueError, match="'countdown' is registered already"):
        register("countdown", Countdown)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("gymnax", "env_id"), ("grouped", "env, groups"), ("jaxmarl", "env_id"), ("pgx", "env_id")],
)
def test_a_missing_option_is_named(name, missing):
    with pytest.raises(ValueError, match=f"'{name}' needs the option {missing}; its options: "):
        make(name)


# ---- Importing -----------------------------------------------------------------------------------


def test_importing_needs_no_trainer_no_gymnax_no_plotting_and_no_display():
    program = """
import sys, jaxmarl_envs
for name in jaxmarl_envs.names():
    assert not any(module.endswith("." + name) for module in sys.modules), name
for name in jaxmarl_envs.names():
    jaxmarl_envs.make(name)
unwanted = {"jaxmarl_ppo", "gymnax", "gymnasium", "matplotlib", "distrax", "pygame", "tkinter"}
print(sorted(unwanted & {module.partition(".")[0] for module in sys.modules}))
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")},
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


# ---- Spaces --------------------------------------------------------------------------------------


def test_discrete_samples_all_and_only_its_numbers():
    space = Discrete(3)
    samples = jax.vmap(space.sample)(jax.random.split(jax.random.key(0), 200))
    assert set(np.asarray(samples).tolist()) == {0, 1, 2}
    assert samples.dtype == space.dtype
    assert [bool(space.contains(jnp.array(x))) for x in (-1, 0, 2, 3)] == [False, True, True, False]
    assert space.shape == ()


def test_box_samples_inside_its_bounds():
    space = Box(np.array([-1.0, 5.0]), np.array([1.0, 7.0]), (2,))
    samples = np.asarray(jax.vmap(space.sample)(jax.random.split(jax.random.key(0), 200)))
    assert samples.shape == (200, 2)
    assert (samples >= [-1, 5]).all()
    assert (samples <= [1, 7]).all()
    assert (samples.max(0) - samples.min(0) > 1.5).all()
    assert space.contains(jnp.array([0.0, 6.0]))
    assert not space.contains(jnp.array([0.0, 4.0]))
    assert Box(0.0, 1.0, (2, 3, 4)).size == 24


def test_impossible_spaces_are_refused():
    with pytest.raises(ValueError, match=r"Discrete\(n=0\): n must be at least 1"):
        Discrete(0)
    with pytest.raises(ValueError, match="low must not exceed high"):
        Box(1.0, 0.0, (2,))


# ---- The base class ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def countdown():
    env = Countdown()
    return jax.jit(env.step), jax.jit(env.step_env), jax.jit(env.reset_env)


def test_step_begins_a_new_episode_when_nobody_is_alive(countdown):
    step, step_env, reset_env = countdown
    params = CountdownParams(start=2)
    key = jax.random.key(1)
    action = jnp.array([1, 2])
    obs, state = reset_env(key, params)
    obs, state, reward, terminated, truncated, info = step(key, state, action, params)
    np.testing.assert_array_equal(reward, [1, 2])
    assert not info["episode_over"]
    assert not (terminated | truncated).any()
    assert equal(info["final_observation"], obs)
    assert int(state.left) == 1

    before = state
    obs, state, _, terminated, truncated, info = step(key, before, action, params)
    key_step, key_reset = jax.random.split(key)
    assert info["episode_over"]
    np.testing.assert_array_equal(terminated, [True, False])
    np.testing.assert_array_equal(truncated, [False, True])
    assert equal((obs, state), reset_env(key_reset, params))
    assert equal(info["final_observation"], step_env(key_step, before, action, params)[0])
    assert not info["final_observation"].alive.any()
    assert obs.alive.all()
    np.testing.assert_array_equal(info["metrics"]["steps"], [1, 1])


def test_params_default_to_the_environments_own():
    env = Countdown()
    key = jax.random.key(0)
    obs, state = env.reset(key)
    assert equal((obs, state), env.reset(key, CountdownParams()))
    action = jnp.zeros(2, jnp.int32)
    assert equal(env.step(key, state, action), env.step(key, state, action, CountdownParams()))


def test_an_environments_own_final_observation_is_kept():
    class Marked(Countdown):
        def step_env(self, key, state, action, params):
            *rest, info = super().step_env(key, state, action, params)
            marked = rest[0].replace(features=rest[0].features + 100)
            return (*rest, {**info, "final_observation": marked})

    env = Marked()
    obs, state = env.reset(jax.random.key(0))
    obs, *_, info = env.step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
    np.testing.assert_array_equal(info["final_observation"].features, obs.features + 100)


def test_step_batch_resets_only_the_environments_that_are_over():
    env, params = Countdown(), CountdownParams()
    keys = jax.random.split(jax.random.key(0), NUM_ENVS)
    _, state = jax.vmap(env.reset_env, (0, None))(keys, params)
    state = state.replace(left=jnp.array([1, 2, 3], jnp.int32))
    obs, after, *_, info = jax.jit(env.step_batch)(keys, state, jnp.zeros((3, 2), int), params)
    np.testing.assert_array_equal(info["episode_over"], [True, False, False])
    np.testing.assert_array_equal(after.left, [3, 1, 2])
    np.testing.assert_array_equal(after.coin[1:], state.coin[1:])
    assert after.coin[0] != state.coin[0]
    assert obs.alive.all()


def test_helpers_tell_agents_and_spaces():
    env = Countdown()
    params = env.default_params
    assert (env.num_agents, env.max_actors, env.horizon(params)) == (2, 2, None)
    assert env.agent_index("b") == 1
    assert env.action_spaces(params) == {"a": Discrete(2), "b": Discrete(3)}
    layout = env.action_layout(params)
    assert (layout.width, layout.is_choice, layout.is_numbers) == (3, True, False)
    with pytest.raises(ValueError, match="unknown agent 'c' in 'countdown': the agents are a, b"):
        env.agent_index("c")


def test_continuous_spaces_are_told_by_their_dimensions():
    class Continuous(Countdown):
        def action_space(self, agent, params):
            return Box(-1.0, 1.0, (2 + self.agent_index(agent),))

    env = Continuous()
    layout = env.action_layout(env.default_params)
    assert (layout.width, layout.is_choice, layout.is_numbers) == (3, False, True)


def test_what_a_subclass_must_implement_is_refused_by_the_base():
    class Empty(MultiAgentEnv):
        name = "empty"
        agents = ("a",)

    env = Empty()
    for call in (
        lambda: env.default_params,
        lambda: env.reset_env(jax.random.key(0), None),
        lambda: env.step_env(jax.random.key(0), None, jnp.zeros(1), None),
        lambda: env.observation_space("a", None),
        lambda: env.action_space("a", None),
    ):
        with pytest.raises(NotImplementedError):
            call()


# ---- Every registered environment ----------------------------------------------------------------


# Made small, so that its episodes end within the test.
SMALL = {"flex_agents": ({"num_slots": 3}, {"max_age": 3, "p_join": 0.5, "p_leave": 0.3})}


@pytest.fixture(scope="module", params=names())
def playthrough(request):
    """A whole episode and some steps more, by `step_batch` and by `vmap(step)`."""
    structure, numbers = SMALL.get(request.param, ({}, {}))
    env, params = make(request.param, **structure)
    params = params.replace(**numbers)
    horizon = env.horizon(params)
    num_steps = 40 if horizon is None else int(horizon) + 5

    def play(step_fn):
        def time_step(carry, key):
            obs, state = carry
            key_action, key_step = jax.random.split(key)
            action = random_actions(env, params, key_action, obs)
            keys = jax.random.split(key_step, NUM_ENVS)
            obs, state, *rest = step_fn(keys, state, action, params)
            return (obs, state), (obs, state, *rest)

        def run(key):
            key_reset, key_play = jax.random.split(key)
            first = jax.vmap(env.reset, (0, None))(jax.random.split(key_reset, NUM_ENVS), params)
            return first, jax.lax.scan(time_step, first, jax.random.split(key_play, num_steps))[1]

        return jax.jit(run)

    batch = play(env.step_batch)
    mapped = play(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    return batch, batch(jax.random.key(0)), mapped(jax.random.key(0))


@pytest.mark.rare_cases(
    "shuttle_grid", "multi_spaces", "relay", "crypto", "early_done", "round_robin", "basic"
)
def test_step_batch_is_vmap_of_step_to_the_bit(playthrough):
    _, by_batch, by_vmap = playthrough
    assert np.asarray(by_batch[1][-1]["episode_over"]).any(), "no reset was compared"
    assert equal(by_batch, by_vmap)


@pytest.mark.rare_cases(
    "shuttle_grid", "multi_spaces", "relay", "crypto", "round_robin", "early_done", "basic"
)
def test_the_same_key_gives_the_same_episode_and_another_key_another(playthrough):
    batch, one, _ = playthrough
    assert equal(one, batch(jax.random.key(0)))
    assert not equal(one, batch(jax.random.key(1)))


def test_an_episode_is_over_exactly_when_nobody_is_alive(playthrough, request):
    _, (first, steps), _ = playthrough
    obs, _, *rest = steps
    obs, (_, terminated, truncated, info) = jax.tree.map(np.asarray, (obs, rest))
    alive = np.concatenate([np.asarray(first[0].alive)[None], obs.alive])
    assert alive.any(-1).all(), "an episode without agents was not followed by a new one"
    final_alive = info["final_observation"].alive
    np.testing.assert_array_equal(info["episode_over"], ~final_alive.any(-1))
    edges = terminated | truncated
    assert (edges <= alive[:-1]).all()
    # An agent that is gone has had an edge; one with an edge is gone, unless it is reborn at once.
    np.testing.assert_array_equal(alive[:-1] & ~final_alive, edges & ~final_alive)
    assert (edges & final_alive).any() == (request.node.callspec.id == "flex_agents")


def test_the_package_exports_what_it_says():
    for name in jaxmarl_envs.__all__:
        assert getattr(jaxmarl_envs, name) is not None


LOW = np.array([-2.0, 3.0, -np.inf, -np.inf, -3.4e38], np.float32)
HIGH = np.array([1.0, np.inf, -5.0, np.inf, 3.4e38], np.float32)


@pytest.mark.parametrize("xp", [np, jnp])
def test_numbers_may_lack_a_bound(xp):
    noise = (np.arange(4000, dtype=np.float32)[:, None] + 0.5) / 4000
    drawn = from_uniform(xp.asarray(noise), LOW, HIGH)
    assert isinstance(drawn, xp.ndarray)
    assert ((drawn >= LOW) & (drawn <= HIGH)).all()
    means, deviations = np.mean(drawn, axis=0), np.std(drawn, axis=0)
    logistic = np.pi / np.sqrt(3)
    np.testing.assert_allclose(means, [-0.5, 4.0, -6.0, 0.0, 0.0], atol=0.01)
    np.testing.assert_allclose(deviations, [np.sqrt(9 / 12), 1, 1, logistic, logistic], rtol=0.01)
    for end in (0.0, np.nextafter(np.float32(1), np.float32(0))):
        assert np.isfinite(from_uniform(xp.full(5, end, np.float32), LOW, HIGH)).all()


def test_a_box_without_bounds_can_be_drawn_from():
    box = Box(-np.inf, np.inf, (3,))
    drawn = box.sample(jax.random.key(0))
    assert drawn.shape == (3,)
    assert box.contains(drawn)
    assert not np.isnan(drawn).any()
