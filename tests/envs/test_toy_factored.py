"""Convoy and the combination lock, against their rules by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_envs import Action, Box, Discrete, MultiDiscrete, Tuple, make
from jaxmarl_envs.toy.factored import SITES, CombinationLock


def test_convoy_by_hand():
    env, params = make("convoy")
    layout = env.action_layout(params)
    assert (layout.counts, layout.num_numbers, layout.width) == ((4,), 2, 6)
    assert isinstance(env.action_space("carrier", params), Tuple)
    obs, state = env.reset(jax.random.key(3), params)
    np.testing.assert_array_equal(obs.agent_mask, [True, False, False, False])
    site, order, sold_out = int(state.site), int(state.order), int(state.sold_out)
    np.testing.assert_array_equal(obs.features[0, :4], np.eye(4)[site])
    assert not obs.features[1:, :4].any()
    np.testing.assert_array_equal(obs.features[3, 4:], np.eye(3)[order])
    np.testing.assert_array_equal(obs.action_mask[3, :3], np.arange(3) != sold_out)
    assert sold_out != order
    # Robots have one legal option, since they have no choice.
    np.testing.assert_array_equal(obs.action_mask[1], [1, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(obs.action_mask[0], [1, 1, 1, 1, 0, 0])

    call = (site + 1) % 4
    action = layout.from_own({"commander": call})
    obs, state, reward, terminated, *_ = env.step_env(jax.random.key(0), state, action, params)
    assert not reward.any()
    assert not terminated.any()
    np.testing.assert_array_equal(obs.agent_mask, [False, True, True, True])
    np.testing.assert_array_equal(obs.features[1, :4], np.eye(4)[call])

    target = np.asarray(SITES[site])
    own = {"robot_0": target, "robot_1": target + np.array([0.3, 0.0]), "carrier": (order, target)}
    action = layout.from_own(own)
    _, _, reward, terminated, truncated, _ = env.step_env(jax.random.key(0), state, action, params)
    np.testing.assert_allclose(reward, 1 - 0.09 / 3, rtol=1e-5)
    assert terminated.all()
    assert not truncated.any()


def test_uniform_play_of_a_convoy_earns_what_its_docstring_says():
    env, params = make("convoy")

    def play(key):
        keys = jax.random.split(key, 5)
        obs, state = env.reset(keys[0], params)
        layout = env.action_layout(params)
        for step in range(2):
            noise = jax.random.uniform(keys[1 + step], obs.action_mask.shape)
            action = layout.pick(noise, obs.action_mask)
            obs, state, reward, *_ = env.step_env(keys[3 + step], state, action, params)
        return reward[0]

    earned = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 20_000))
    assert earned.mean() == pytest.approx(0.5 - 7 / 6, abs=0.02)


def test_the_combination_lock_pays_the_share_of_wheels_that_are_right():
    env, params = make("combination_lock", num_wheels=3, num_options=4)
    assert env.action_space("agent", params) == MultiDiscrete((4, 4, 4))
    obs, code = env.reset(jax.random.key(0), params)
    np.testing.assert_array_equal(obs.features[0].reshape(3, 4).argmax(-1), code)
    wheels = np.asarray(code).copy()
    for expected in (1, 2 / 3):
        action = Action(jnp.asarray(wheels[None]))
        _, _, reward, terminated, *_ = env.step_env(jax.random.key(0), code, action, params)
        assert float(reward[0]) == pytest.approx(expected)
        assert terminated.all()
        wheels[1] = (wheels[1] + 1) % 4


def test_a_joint_lock_counts_combinations_as_numpy_does():
    env = CombinationLock(num_wheels=2, num_options=3, joint=True)
    assert env.action_space("agent", env.default_params) == Discrete(9)
    code = jnp.array([2, 1])
    for number, wheels in enumerate(np.ndindex(3, 3)):
        _, _, reward, *_ = env.step_env(
            jax.random.key(0), code, jnp.array([number]), env.default_params
        )
        assert float(reward[0]) == np.mean(np.array(wheels) == np.array(code))


@pytest.mark.parametrize("options", [{"num_wheels": 0}, {"num_options": 1.5}])
def test_sizes_of_a_lock_are_checked(options):
    with pytest.raises(ValueError, match=r"give a whole number of at least 1"):
        make("combination_lock", **options)


def test_own_actions_there_and_back():
    env, params = make("convoy")
    layout = env.action_layout(params)
    own = {
        "commander": 3,
        "robot_0": np.array([0.5, -1.0], np.float32),
        "robot_1": np.array([0.0, 0.25], np.float32),
        "carrier": (2, np.array([1.0, -0.5], np.float32)),
    }
    action = layout.from_own(own)
    assert action.choices.tolist() == [[3], [0], [0], [2]]
    for slot, (agent, expected) in enumerate(own.items()):
        found = layout.own(action, slot)
        space = env.action_space(agent, params)
        assert type(found) is type(expected)
        assert isinstance(space, Box | Discrete | Tuple)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    for agent, wrong in {
        "commander": 4, "robot_0": np.zeros(3), "carrier": np.zeros(2), "robot_1": 1
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match="is not of"):
            layout.from_own({agent: wrong})
