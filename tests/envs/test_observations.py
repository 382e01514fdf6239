"""Parts of observations say what adapters make of an environment's own observations."""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from jaxmarl_envs import make
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, read_spaces
from jaxmarl_envs.observations import Part, flatten

IMAGE = spaces.Box(0, 255, (2, 3, 3), np.uint8)
SPACES = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "float64": spaces.Box(-9, 9, (), np.float64),
    "whole numbers": spaces.Box(-5, 5, (4,), np.int16),
    "image": IMAGE,
    "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "symbol": spaces.Discrete(4, start=-2),
    "symbols": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [5, 0]]),
    "bits": spaces.MultiBinary((2, 2)),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Tuple([IMAGE, spaces.Box(0, 1, (2,))])]),
    "dict": spaces.Dict({"z": spaces.Box(0, 9, (2,)), "a": spaces.Dict({"b": IMAGE, "a": IMAGE})}),
}
ACTIONS = spaces.Discrete(3)


def masked(key, space):
    return spaces.Dict({MASK: spaces.MultiBinary(3), key: space})


SPACES |= {
    "masked": masked("observation", SPACES["tuple"]),
    "masked by RLlib's key": masked("observations", SPACES["box"]),
    "masked by another key": masked("own", SPACES["symbol"]),
    "masked beside others": spaces.Dict(
        {"observation": IMAGE, "more": ACTIONS, MASK: spaces.MultiBinary(3)}
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_parts_make_the_features_that_the_adapter_makes(name):
    space = SPACES[name]
    (own,) = read_spaces({"a": (space, ACTIONS)})
    space.seed(0)
    for _ in range(5):
        seen = space.sample()
        row = flatten(own.observation_parts, seen)
        assert row.dtype == np.float32
        np.testing.assert_array_equal(row, own.features(seen).ravel())


def test_a_vector_takes_any_shape_of_its_size():
    np.testing.assert_array_equal(flatten([Part(shape=(6,))], np.ones((2, 3))), np.ones(6))
    with pytest.raises(ValueError, match=r"observation has shape \(6,\), but .* shape \(2, 3\)"):
        flatten([Part(shape=(2, 3))], np.ones(6))


def test_a_symbol_is_a_whole_number():
    part = Part(options=(3,), first=(0,))
    assert flatten([part], 2.0).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"observation is \[1.5\], but its space has 0 to 2"):
        flatten([part], 1.5)


def test_observations_of_compiled_environments_are_arrays():
    env, params = make("crypto")
    for agent in env.agents:
        shape = env.observation_space(agent, params).shape
        assert env.observation_parts(agent, params) == (Part(shape=shape),)


def test_a_discrete_observation_of_gymnax_is_a_symbol():
    env, params = make("gymnax", env_id="FrozenLake-misc")
    parts, (obs, _) = env.observation_parts("agent_0", params), env.reset(jax.random.key(0))
    seen, _ = env.game.reset_env(jax.random.key(0), params)
    assert parts == (Part(options=(env.game.n_states,), first=(0,)),)
    np.testing.assert_array_equal(flatten(parts, seen), obs.features[0])
