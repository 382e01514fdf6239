"""Classes of PettingZoo and Gymnasium that are named by their code."""

import jax
import pytest

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.own_class import adapter_of
from jaxmarl_envs.user_envs import load

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)

CODE = """
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
"""


@pytest.fixture
def path(tmp_path):
    pytest.importorskip("pettingzoo")
    (tmp_path / "own_games.py").write_text(CODE)
    return f"{tmp_path}/own_games.py"


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
    factories = {
        name: load(f"{path}:{name}") for name in ("Together", "InTurn", "Alone", "LikeRLlib")
    }
    names = {
        name: getattr(adapter_of(factory), "__name__", None) for name, factory in factories.items()
    }
    assert names == {
        "Together": "from_pettingzoo",
        "InTurn": "from_pettingzoo",
        "Alone": "from_gymnasium",
        "LikeRLlib": None,
    }


def test_an_option_of_neither_is_refused(path):
    message = r"Together takes no option 'sice'; valid options: size, horizon_of_mine, horizon, fl"
    with pytest.raises(ValueError, match=message):
        made(f"{path}:Together", sice=4)
    with pytest.raises(ValueError, match=r"Alone.*missing 1 required positional argument: 'size'"):
        made(f"{path}:Alone", horizon=4)
