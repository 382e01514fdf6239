"""Environments of JAX libraries' interfaces that are given as objects, not by registered names."""

import functools
import re
import types
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import status_of
from flax import struct
from probe_envs import quick_jit

import jaxmarl_envs
from jaxmarl_envs import (
    Box,
    Discrete,
    check_against_original,
    check_env,
    from_gymnax,
    from_jaxmarl,
    from_jumanji,
    from_pgx,
    make,
)
from jaxmarl_envs.observations import flatten
from jaxmarl_ppo import load_run

# A class of Craftax's interface, which is gymnax's before 1.0 without its classes, and a factory.
WALK = '''
import types

import jax.numpy as jnp
from flax import struct

from jaxmarl_envs import from_gymnax


@struct.dataclass
class State:
    place: int
    timestep: int


@struct.dataclass
class Params:
    max_timesteps: int = 6
    pay: float = 2.0


class Walk:
    """Walk to the right; place 3 is the goal."""

    name = "walk"
    default_params = Params()

    def step(self, *arguments):
        raise AssertionError("it would reset itself")

    def reset_env(self, key, params):
        return jnp.float32([0, 0]), State(0, 0)

    def step_env(self, key, state, action, params):
        state = State(state.place + action, state.timestep + 1)
        seen = jnp.stack([state.place, state.timestep]).astype(jnp.float32)
        reward = jnp.where(state.place == 3, params.pay, 0.0)
        return seen, state, reward, self.is_terminal(state, params), {"discount": 1.0}

    def is_terminal(self, state, params):
        return (state.timestep >= params.max_timesteps) | (state.place >= 3)

    def observation_space(self, params):
        return types.SimpleNamespace(low=0.0, high=9.0, shape=(2,), dtype=jnp.float32)

    def action_space(self, params):
        return types.SimpleNamespace(n=2, shape=(), dtype=jnp.int32)


def walk(num_agents=1):
    return from_gymnax(Walk(), num_agents=num_agents)
'''


@pytest.fixture(scope="module")
def own():
    """The module of `WALK`."""
    module = types.ModuleType("walk")
    exec(WALK, vars(module))
    return module


def play(env, choose, params=None, num_steps=8):
    """Step until the end; the rewards and edges of every step, `[T, A]`, and the observations."""
    params = env.default_params if params is None else params
    step, key = quick_jit(env.step_env), jax.random.key(3)
    obs, state = quick_jit(env.reset_env)(key, params)
    seen, results = [obs], []
    while obs.alive.any() and len(results) < num_steps:
        obs, state, *result, _ = step(key, state, choose(obs, len(results)), params)
        seen.append(obs)
        results.append(result)
    return seen, *(np.stack(values) for values in zip(*results, strict=True))


def same(found, expected):
    """The same observations, rewards and edges."""
    jax.tree.map(np.testing.assert_array_equal, found, expected)


# ---- Images --------------------------------------------------------------------------------------

PIXELS = np.arange(256, dtype=np.uint8).reshape(16, 16)


def pixels(dtype=np.uint8, high=255, shape=PIXELS.shape):
    return types.SimpleNamespace(low=0, high=high, shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        (pixels(), 255),
        (pixels(jnp.uint8, np.full(PIXELS.shape, 255)), 255),
        (pixels(jnp.float32), 1),  # as of Overcooked, whose numbers are small
        (pixels(high=1), 1),  # as of the coin game
        (pixels(shape=(256,)), 1),
    ],
)
def test_bytes_of_images_are_scaled_where_the_space_says_that_they_are(own, space, divisor):
    image = jnp.asarray(PIXELS).reshape(space.shape)

    class Shown(own.Walk):
        def reset_env(self, key, params):
            return image, super().reset_env(key, params)[1]

        def step_env(self, *arguments):
            return image, *super().step_env(*arguments)[1:]

        def observation_space(self, params):
            return space

    scaled = PIXELS.ravel() / np.float32(divisor)
    for env in (from_gymnax(Shown()), from_jaxmarl(shots(image, space))):
        params, agent = env.default_params, env.agents[0]
        for obs in play(env, lambda obs, t, env=env: np.ones(env.num_agents, np.int32))[0]:
            np.testing.assert_allclose(obs.features[0], scaled, rtol=1e-6)
        assert np.all(env.observation_space(agent, params).high >= np.max(space.high) / divisor)
        found = flatten(env.observation_parts(agent, params), np.asarray(image))
        np.testing.assert_allclose(found, scaled, rtol=1e-6)
        assert check_against_original(env, num_episodes=1).num_episodes == 1
    few = from_gymnax(Shown(), observed=[0, 255])
    np.testing.assert_allclose(few.reset(jax.random.key(0))[0].features, [[0, 255 / divisor]])
    highest = few.observation_space("agent_0", few.default_params).high
    np.testing.assert_allclose(highest, np.full(2, np.max(space.high) / divisor))
    assert few.observation_parts("agent_0", few.default_params)[0].divisor == divisor


def shots(seen, space):
    """A game of JaxMARL's interface in which everyone sees the same."""
    game = Pair()
    game._seen = lambda time: dict.fromkeys(game.agents, seen)
    game.observation_space = lambda agent: space
    return game


def test_images_are_scaled_also_as_planes_and_in_dictionaries():
    image = jnp.asarray(PIXELS).reshape(8, 8, 4)
    space = pixels(shape=image.shape)
    env = from_jaxmarl(shots(image, space), planes=True)
    obs, _ = env.reset(jax.random.key(0))
    np.testing.assert_allclose(obs.features[1], np.asarray(image) / np.float32(255), rtol=1e-6)
    assert env.observation_space("b", env.default_params).high == 1.0

    seen = {"speed": jnp.array([30.0, 40.0]), "camera": image}
    speed = types.SimpleNamespace(low=0.0, high=90.0, shape=(2,))
    both = types.SimpleNamespace(spaces={"speed": speed, "camera": space})
    env = from_jaxmarl(shots(seen, both))
    obs, _ = env.reset(jax.random.key(0))
    expected = np.append(PIXELS.ravel() / np.float32(255), [30.0, 40.0])
    np.testing.assert_allclose(obs.features[1], expected, rtol=1e-6)
    parts = env.observation_parts("b", env.default_params)
    np.testing.assert_allclose(flatten(parts, seen), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="sees 1 arrays, but its observation space has 2 parts"):
        from_jaxmarl(shots(image, both))


# ---- gymnax --------------------------------------------------------------------------------------


def test_methods_are_enough_and_time_is_told_from_the_game_s_own_end(own):
    env = from_gymnax(own.Walk(), num_agents=2)
    params = env.default_params
    assert (env.name, env.agents, env.horizon(params)) == ("walk", ("agent_0", "agent_1"), 6)
    assert env.action_space("agent_0", params) == Discrete(2)
    space = env.observation_space("agent_1", params)
    assert isinstance(space, Box)
    np.testing.assert_array_equal(space.high, [9, 9])
    seen, reward, terminated, truncated = play(env, lambda obs, t: np.array([1, 0]))
    np.testing.assert_array_equal(reward, [[0, 0], [0, 0], [2, 0], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(terminated.argmax(0)[0], 2)
    np.testing.assert_array_equal(terminated.sum(0), [1, 0])
    np.testing.assert_array_equal(truncated.sum(0), [0, 1])
    assert truncated[5, 1]
    np.testing.assert_array_equal(seen[-1].features, [[3, 3], [0, 6]])
    # The goal at the last step is the goal.
    seen, _, terminated, truncated = play(env, lambda obs, t: np.full(2, t >= 3))
    assert (len(seen), terminated[-1].all(), truncated.any()) == (7, True, False)
    check_env(env, params, num_steps=16, num_envs=4)


def test_without_a_limit_in_the_parameters_an_end_is_a_termination(own):
    class Bare(own.Walk):
        def is_terminal(self, state, params):
            return state.timestep >= 2

    class Pay(NamedTuple):
        pay: float = 1.0

    env = from_gymnax(Bare(), Pay())
    assert env.horizon(env.default_params) is None
    _, _, terminated, truncated = play(env, lambda obs, t: np.array([0]))
    assert (len(terminated), terminated[-1].all(), truncated.any()) == (2, True, False)


def test_parameters_that_are_given_are_the_default_ones(own):
    env = from_gymnax(own.Walk(), own.Params(pay=5.0, max_timesteps=4), observed=[1])
    assert env.horizon(env.default_params) == 4
    seen, reward, *_ = play(env, lambda obs, t: np.array([1]))
    np.testing.assert_array_equal(reward[:, 0], [0, 0, 5])
    np.testing.assert_array_equal(seen[-1].features, [[3]])
    with pytest.raises(ValueError, match=r"num_agents=0: .* at least 1"):
        from_gymnax(own.Walk(), num_agents=0)


def test_an_object_of_gymnax_is_what_its_id_makes():
    import gymnax

    game, params = gymnax.make("CartPole-v1")
    params = params.replace(max_steps_in_episode=5)
    by_id, _ = make("gymnax", env_id="CartPole-v1", num_agents=2)
    env = from_gymnax(game, params, num_agents=2)
    assert (env.name, env.made_as) == ("CartPole-v1", None)
    found, expected = (play(e, lambda obs, t: np.array([0, t % 2]), params) for e in (env, by_id))
    same(found, expected)
    assert found[3][-1].all()


def test_a_run_of_an_object_is_trained_and_evaluated_by_its_factory(tmp_path, capsys):
    file = tmp_path / "walk.py"
    file.write_text(WALK)
    name, run_dir = f"{file}:walk", str(tmp_path / "run")
    sizes = "--num-envs 4 --num-steps 8 --total-env-steps 96 --hidden-sizes 8 --no-progress"
    for words in (
        ["train", name, "--env-kwargs", "num_agents=2", *sizes.split(), "--run-dir", run_dir],
        ["evaluate", run_dir, "--env", name, "--episodes", "8"],
    ):
        assert status_of(*words) == 0, capsys.readouterr().err
    assert "agent_1" in capsys.readouterr().out
    assert load_run(run_dir, env=name).env.agents == ("agent_0", "agent_1")
    with pytest.raises(ValueError, match=r"walk\.py:walk"):
        load_run(run_dir)


# ---- JaxMARL -------------------------------------------------------------------------------------


@struct.dataclass
class Count:
    time: jax.Array


class Pair:
    """JaxMARL's interface without its base class; a pays its action, b twice that."""

    agents = ("a", "b")

    def reset(self, key):
        return self._seen(jnp.int32(0)), Count(jnp.int32(0))

    def step_env(self, key, state, actions):
        time = state.time + 1
        reward = {"a": actions["a"] * 1.0, "b": actions["b"] * 2.0}
        done = dict.fromkeys((*self.agents, "__all__"), time >= 3)
        return self._seen(time), Count(time), reward, done, {}

    def _seen(self, time):
        return {agent: jnp.float32(time)[None] for agent in self.agents}

    def observation_space(self, agent):
        return types.SimpleNamespace(low=0.0, high=3.0, shape=(1,))

    def action_space(self, agent):
        return types.SimpleNamespace(n=3)


class Masked(Pair):
    def get_avail_actions(self, state):
        return {"a": jnp.array([1, 1, 0]), "b": jnp.arange(3) != state.time}


def test_a_class_of_ones_own_of_jaxmarl_s_interface_is_played():
    env = from_jaxmarl(Pair())
    assert (env.name, env.agents, env.horizon(env.default_params)) == ("Pair", ("a", "b"), None)
    seen, reward, terminated, truncated = play(env, lambda obs, t: np.array([t, 1]))
    np.testing.assert_array_equal(reward, [[0, 2], [1, 2], [2, 2]])
    np.testing.assert_array_equal(terminated.sum(0), [1, 1])
    assert not truncated.any()
    assert all(obs.action_mask.all() for obs in seen)
    check_env(env, env.default_params, num_steps=8, num_envs=2)


def test_masks_of_ones_own_class_are_found_where_it_has_them():
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv

    seen, *_ = play(from_jaxmarl(Masked()), lambda obs, t: np.array([0, 0]))
    for t, obs in enumerate(seen):
        np.testing.assert_array_equal(obs.action_mask, [[1, 1, 0], np.arange(3) != t])

    class Based(Pair, MultiAgentEnv):
        def __init__(self):
            pass

    assert from_jaxmarl(Based()).reset(jax.random.key(0))[0].action_mask.all()


def test_an_object_of_jaxmarl_is_what_its_id_makes():
    import jaxmarl

    by_id, _ = make("jaxmarl", env_id="switch_riddle", num_agents=3)
    env = from_jaxmarl(jaxmarl.make("switch_riddle", num_agents=3))
    assert env.horizon(env.default_params) == by_id.horizon(by_id.default_params) == 6
    # Nobody announces anything until the time is up.
    found, expected = (play(e, lambda obs, t: np.full(3, t % 2, np.int32)) for e in (env, by_id))
    same(found, expected)
    assert found[3][-1].all()
    coins = from_jaxmarl(jaxmarl.make("coin_game", num_inner_steps=3, num_outer_steps=2))
    assert coins.horizon(coins.default_params) == 6
    storm = from_jaxmarl(jaxmarl.make("storm_2p", num_inner_steps=9))
    assert storm.horizon(storm.default_params) == 9


@pytest.mark.parametrize(
    ("options", "last", "truncated"),
    [
        ({}, 3, False),
        ({"horizon": 3}, 3, False),
        ({"horizon": 3, "at_time_limit": "truncates"}, 3, True),
        ({"horizon": 9, "at_time_limit": "truncates"}, 3, False),
        ({"horizon": 2}, 2, True),
        ({"horizon": 2, "at_time_limit": "terminates"}, 2, False),
    ],
)
def test_the_end_of_an_unknown_class_is_what_the_user_says(own, options, last, truncated):
    class Bare(own.Walk):
        """Ends at step 3, and nobody knows why."""

        default_params = None
        is_terminal = None

        def step_env(self, key, state, action, params):
            state = own.State(state.place, state.timestep + 1)
            seen = jnp.zeros(2) + state.timestep
            return seen, state, jnp.float32(1), state.timestep >= 3, {}

    for env in (from_jaxmarl(Pair(), **options), from_gymnax(Bare(), (), 2, **options)):
        params = env.default_params
        assert env.horizon(params) == options.get("horizon")
        seen, _, *edges = play(env, lambda obs, t: np.zeros(2, np.int32))
        assert len(seen) == last + 1
        assert not np.any([edge[:-1] for edge in edges])
        assert [edge[-1].tolist() for edge in edges] == [[not truncated] * 2, [truncated] * 2]
        check_env(env, params, num_steps=8, num_envs=2)


def test_a_time_limit_that_is_known_can_be_read_as_a_termination(own):
    import jaxmarl

    def stay(obs, t):
        return np.zeros(len(obs.alive), np.int32)

    walk = from_gymnax(own.Walk(), at_time_limit="terminates")
    riddle = from_jaxmarl(jaxmarl.make("switch_riddle"), at_time_limit="terminates")
    for env in (walk, riddle):
        _, _, terminated, truncated = play(env, stay)
        assert (len(terminated), terminated[-1].all(), truncated.any()) == (6, True, False)
    # A goal at the last step remains a termination where the game tells it from the time limit.
    walk = from_gymnax(own.Walk(), horizon=6, at_time_limit="truncates")
    _, _, terminated, truncated = play(walk, lambda obs, t: np.array([t >= 3]))
    assert (len(terminated), terminated[-1].all(), truncated.any()) == (6, True, False)
    # An earlier horizon counts beside the limit of the parameters.
    walk = from_gymnax(own.Walk(), horizon=4)
    assert walk.horizon(own.Params()) == walk.horizon(own.Params(max_timesteps=jnp.int32(9))) == 4
    assert play(walk, stay)[3][-1].all()


def test_ids_take_a_horizon_and_a_reading_of_the_time_limit_too():
    for name, env_id in (("jaxmarl", "switch_riddle"), ("gymnax", "CartPole-v1")):
        env, params = make(name, env_id=env_id, horizon=2, at_time_limit="terminates")
        assert env.horizon(params) == 2
        assert env.made_as[1] == {"env_id": env_id, "horizon": 2, "at_time_limit": "terminates"}
        _, _, terminated, truncated = play(env, lambda obs, t: np.zeros(len(obs.alive), np.int32))
        assert (len(terminated), terminated[-1].all(), truncated.any()) == (2, True, False)


def test_a_reading_of_a_limit_that_nobody_knows_is_refused(own):
    for reading in ("truncates", "terminates"):
        with pytest.raises(ValueError, match=f"at_time_limit='{reading}' has no effect.*'Pair'"):
            from_jaxmarl(Pair(), at_time_limit=reading)
        with pytest.raises(ValueError, match=f"at_time_limit='{reading}' has no effect.*'walk'"):
            from_gymnax(own.Walk(), (), at_time_limit=reading)
    for wrong in ({"horizon": 0}, {"at_time_limit": "ends"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.*(at least 1|valid choices)"):
            from_jaxmarl(Pair(), **wrong)
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.*(at least 1|valid choices)"):
            from_gymnax(own.Walk(), **wrong)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("start", r"Discrete\(3, start=5\) does not consist of the integers from 0 to n - 1"),
        ("binary", r"MultiBinary\(3\) does not consist of the integers from 0 to n - 1"),
        ("integer", r"Box\(0, 3, .* must hold floats"),
    ],
)
def test_spaces_that_would_be_read_as_others_are_refused(own, kind, complaint):
    spaces = pytest.importorskip("gymnasium.spaces")
    space = {
        "start": spaces.Discrete(3, start=5),
        "binary": spaces.MultiBinary(3),
        "integer": spaces.Box(0, 3, (2,), np.int32),
    }[kind]
    walk, pair = own.Walk(), Pair()
    walk.action_space = pair.action_space = lambda _: space
    for bring_in, game in ((from_gymnax, walk), (from_jaxmarl, pair)):
        with pytest.raises(ValueError, match=complaint):
            bring_in(game)
    if kind != "integer":  # a Box of integers is observed as it is
        walk = own.Walk()
        walk.observation_space = lambda _: space
        with pytest.raises(ValueError, match=complaint):
            from_gymnax(walk)


def test_what_resets_itself_is_refused():
    game = Pair()
    game.auto_reset = True
    with pytest.raises(ValueError, match=r"Pair resets itself.*auto_reset=False"):
        from_jaxmarl(game)


# ---- pgx -----------------------------------------------------------------------------------------


def test_an_object_of_pgx_is_what_its_id_makes():
    import pgx

    by_id, _ = make("pgx", env_id="tic_tac_toe")
    env = from_pgx(pgx.make("tic_tac_toe"))
    params = env.default_params
    assert (env.name, env.stones_in_a_row, env.horizon(params)) == ("tic_tac_toe", 3, 9)
    choose = functools.partial(lambda obs, t: np.asarray(obs.action_mask).argmax(1))
    found, expected = (play(e, choose) for e in (env, by_id))
    same(found, expected)
    assert found[2][-1].all()
    limited = from_pgx(pgx.make("tic_tac_toe"), planes=True, horizon=2)
    seen, _, terminated, truncated = play(limited, choose)
    assert (seen[0].features.shape, len(truncated)) == ((2, 3, 3, 2), 2)
    assert truncated[-1].all()
    assert not terminated.any()


def test_nothing_that_is_known_of_pgx_s_games_is_believed_of_ones_own():
    from pgx.tic_tac_toe import TicTacToe

    class Longer(TicTacToe):
        """Goes by the same id."""

    env = from_pgx(Longer())
    assert (env.name, env.stones_in_a_row, env.action_names) == ("tic_tac_toe", None, None)
    assert env.horizon(env.default_params) is None


@pytest.mark.parametrize("bring_in", [from_gymnax, from_jaxmarl, from_pgx, from_jumanji])
def test_an_object_of_another_interface_is_refused_by_name(bring_in):
    class Foreign:
        def __repr__(self):
            return "Foreign()"

    library = bring_in.__name__.partition("_")[2]
    pytest.importorskip(library)
    with pytest.raises(ValueError, match=rf"(?i){library}.*Foreign\(\)"):
        bring_in(Foreign())


def test_every_adapter_s_function_is_a_name_of_the_package():
    modules = (Path(jaxmarl_envs.__file__).parent / "adapters" / "incoming").glob("*.py")
    found = {x for path in modules for x in re.findall(r"(?m)^def (from_\w+)", path.read_text())}
    assert "from_gymnasium" in found
    assert found <= set(jaxmarl_envs.__all__)
