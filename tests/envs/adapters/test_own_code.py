"""Environments with other libraries' interfaces that are named by their code."""

import jax
import pytest

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.own_code import interface_of
from jaxmarl_envs.user_envs import load

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)

CODE = """
import functools

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Together(ParallelEnv):
    metadata = {"name": "together"}
    render_mode = None

    def __init__(self, size=2, horizon_of_mine=None):
        self.possible_agents, self.size = ["a", "b"], size

    def observation_space(self, agent):
        return spaces.Box(-1.0, 1.0, (self.size,))

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        seen = {a: np.zeros(self.size, np.float32) for a in self.agents}
        return seen, {a: {} for a in seen}

    def step(self, actions):
        seen = {a: np.full(self.size, x / 3, np.float32) for a, x in actions.items()}
        nobody, rewards = dict.fromkeys(actions, False), {a: float(x) for a, x in actions.items()}
        return seen, rewards, nobody, nobody, {a: {} for a in seen}


class InTurn(AECEnv):
    pass


class Alone(gymnasium.Env):
    action_space = spaces.Box(-np.inf, np.inf, (1,))

    def __init__(self, size, horizon):
        self.observation_space, self.ends = spaces.Box(-1.0, 1.0, (size,)), horizon

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        self.time += 1
        return self.observation_space.low, float(action[0]), self.time == self.ends, False, {}


class LikeRLlib(gymnasium.Env):
    possible_agents = ["a"]


class OfRLlib:
    agents = possible_agents = ["a"]
    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"a": np.zeros(2, np.float32)}, {}

    def step(self, actions):
        seen, over = {"a": np.ones(2, np.float32)}, {"a": False, "__all__": False}
        return seen, {"a": float(actions["a"])}, over, over, {}


def wrapped(size):
    from pettingzoo.utils import BaseParallelWrapper

    return BaseParallelWrapper(Together(size))


def limited(size=1):
    return gymnasium.wrappers.TimeLimit(Alone(size, 9), 3)


def of_rllib():
    return OfRLlib()


def late():
    env = Later()
    env.possible_agents = ["a"]
    return env


class Later(gymnasium.Env):
    observation_space, action_space = OfRLlib.observation_space, OfRLlib.action_space
    reset, step = OfRLlib.reset, OfRLlib.step


short = functools.partial(limited, size=2)


def dictionary():
    return {}
"""
JAX_CODE = """
import functools

import gymnax
import jaxmarl
import jumanji
import pgx
from jumanji.environments import Snake


class Small(Snake):
    def __init__(self, rows=4):
        super().__init__(num_rows=rows, num_cols=4)


def spread():
    return jaxmarl.make("MPE_simple_spread_v3")


def cart():
    return gymnax.make("CartPole-v1")[0]


def snake(rows=4):
    return Small(rows)


def three_in_a_row():
    return pgx.make("tic_tac_toe")
"""


@pytest.fixture
def path(tmp_path):
    pytest.importorskip("pettingzoo")
    (tmp_path / "library_games.py").write_text(CODE)
    return f"{tmp_path}/library_games.py"


def made(name, **kwargs):
    return jaxmarl_envs.make(name, num_workers=0, **kwargs)


def test_a_class_of_pettingzoo(path):
    env, params = made(f"{path}:Together", size=4, horizon=2)
    assert isinstance(env, HostEnv)
    assert (env.name, env.agents, env.horizon(params)) == ("Together", ("a", "b"), 2)
    assert env.made_as == (f"{path}:Together", {"size": 4, "horizon": 2, "num_workers": 0})
    obs, state = env.reset(jax.random.key(0), params)
    assert obs.features.shape == (2, 4)
    _, _, reward, *_ = env.step(jax.random.key(1), state, jax.numpy.array([2, 1]), params)
    assert reward.tolist() == [2.0, 1.0]


def test_a_class_of_gymnasium_keeps_the_arguments_that_it_names(path):
    env, params = made(f"{path}:Alone", size=3, horizon=2)
    assert env.horizon(params) is None
    _, state = env.reset(jax.random.key(0), params)
    ends = []
    for _ in range(4):
        _, state, reward, terminated, *_ = env.step(
            jax.random.key(1), state, jax.numpy.array([[-70.5]]), params
        )
        assert reward.tolist() == [-70.5]
        ends.append(bool(terminated[0]))
    assert ends == [False, True, False, True]


def test_which_adapter_a_class_has(path):
    names = ("Together", "InTurn", "Alone", "LikeRLlib", "OfRLlib")
    found = {name: interface_of(load(f"{path}:{name}")) for name in names}
    assert {name: interface.adapter for name, interface in found.items()} == {
        "Together": "from_pettingzoo",
        "InTurn": "from_pettingzoo",
        "Alone": "from_gymnasium",
        "LikeRLlib": "from_rllib_env",
        "OfRLlib": "from_rllib_env",
    }
    assert interface_of(dict) is None


@pytest.mark.parametrize("stem", ["json", "my.games"])
def test_a_file_whose_name_stands_for_something_else_is_played_in_processes(tmp_path, stem):
    pytest.importorskip("pettingzoo")
    (tmp_path / f"{stem}.py").write_text(CODE)
    for name, options in (("wrapped", {"size": 3}), ("OfRLlib", {"horizon": 4})):
        env, params = jaxmarl_envs.make(f"{tmp_path}/{stem}.py:{name}", num_workers=1, **options)
        obs, _ = env.reset(jax.random.key(0), params)
        assert not obs.features.any()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_function_that_makes_another_librarys_environment(path, num_workers):
    env, params = jaxmarl_envs.make(f"{path}:wrapped", size=3, horizon=7, num_workers=num_workers)
    assert (env.name, env.agents, env.horizon(params)) == ("wrapped", ("a", "b"), 7)
    kwargs = {"size": 3, "horizon": 7, "num_workers": num_workers}
    assert env.made_as == (f"{path}:wrapped", kwargs)
    obs, state = env.reset(jax.random.key(0), params)
    assert obs.features.shape == (2, 3)
    _, _, reward, *_ = env.step(jax.random.key(1), state, jax.numpy.array([2, 1]), params)
    assert reward.tolist() == [2.0, 1.0]


def test_functions_of_gymnasium_and_rllib(path):
    env, params = made(f"{path}:limited")
    assert (env.agents, env.horizon(params)) == (("agent",), 3)
    env, params = made(f"{path}:short", horizon=2)
    assert (env.name, env.horizon(params)) == ("partial", 2)
    for name in ("of_rllib", "late"):
        env, _ = made(f"{path}:{name}", horizon=5)
        assert (env.name, env.agents) == (name, ("a",))


@pytest.mark.parametrize(
    ("name", "agents", "options"),
    [
        ("Small", ("agent",), {"rows": 5, "planes": True}),
        ("snake", ("agent",), {"rows": 5}),
        ("spread", ("agent_0", "agent_1", "agent_2"), {"horizon": 9}),
        ("cart", ("agent_0",), {}),
        ("three_in_a_row", ("player_0", "player_1"), {}),
    ],
)
def test_environments_of_jax_libraries(tmp_path, name, agents, options):
    for library in ("gymnax", "jaxmarl", "jumanji", "pgx"):
        pytest.importorskip(library)
    (tmp_path / "own_jax_games.py").write_text(JAX_CODE)
    env, params = jaxmarl_envs.make(f"{tmp_path}/own_jax_games.py:{name}", **options)
    assert env.agents == agents
    obs, _ = jax.eval_shape(env.reset, jax.random.key(0), params)
    assert obs.alive.shape == (len(agents),)
    if name == "Small":
        assert obs.features.shape[:3] == (1, 5, 4)


def test_what_is_no_environment_is_refused(path):
    message = (
        r"dictionary\(\) returns a dict, expected a MultiAgentEnv or \(env, params\), or an en"
    )
    with pytest.raises(ValueError, match=message):
        jaxmarl_envs.make(f"{path}:dictionary")


def test_an_option_of_neither_is_refused(path):
    message = r"Together takes no option 'sice'; valid options: size, horizon_of_mine, horizon, fl"
    with pytest.raises(ValueError, match=message):
        made(f"{path}:Together", sice=4)
    message = r"wrapped takes no option 'sice'; valid options: size, horizon, flatten"
    with pytest.raises(ValueError, match=message):
        made(f"{path}:wrapped", size=2, sice=4)
    with pytest.raises(ValueError, match=r"Alone' needs the option size; its options: size, hor"):
        made(f"{path}:Alone", horizon=4)
