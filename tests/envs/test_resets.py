"""Resets of a batch: the episodes that they begin, and which of them are computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.experimental import io_callback
from probe_envs import quick_jit

from jaxmarl_envs import Box, Discrete, MultiAgentEnv, Observation
from jaxmarl_envs.resets import COSTLY_ON_CPU, work_of


@struct.dataclass
class World:
    cave: jax.Array  # [side, side] uint32
    left: jax.Array  # () int32: steps until the end
    key: jax.Array  # () a key, as states may hold


class Caves(MultiAgentEnv):
    """An agent in a cave that is dug in many rounds, for one to six steps; counts the caves."""

    name = "caves"
    agents = ("digger",)

    def __init__(self, rounds):
        self.rounds = rounds
        self.dug = 0

    @property
    def default_params(self):
        return {"most_steps": 6}

    def observation_space(self, agent, params):
        return Box(-np.inf, np.inf, (2,))

    def action_space(self, agent, params):
        return Discrete(2)

    def reset_env(self, key, params):
        def dig(cave, _):
            return (cave * 1664525 + 1013904223) ^ jnp.roll(cave, 1, axis=0), None

        def count(_):
            self.dug += 1

        rock, length, kept = jax.random.split(key, 3)
        cave, _ = jax.lax.scan(dig, jax.random.bits(rock, (8, 8)), None, self.rounds)
        left = jax.random.randint(length, (), 1, params["most_steps"] + 1)
        io_callback(count, None, left)
        world = World(cave, left, kept)
        return self.observe(world), world

    def step_env(self, key, world, action, params):
        world = world.replace(left=world.left - 1)
        over = (world.left <= 0)[None]
        return self.observe(world), world, jnp.ones(1), over, jnp.zeros(1, bool), {}

    def observe(self, world):
        features = jnp.stack([world.cave[0, 0] / 2.0**32, world.left]).astype(jnp.float32)
        alive = (world.left > 0)[None]
        return Observation(features[None], jnp.ones((1, 2), bool), alive, alive)


def assert_trees_equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, plain(left), plain(right))


def plain(tree):
    def numbers(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return jax.tree.map(numbers, tree)


CHEAP, COSTLY = 2, COSTLY_ON_CPU // 64


@pytest.mark.parametrize(
    ("rounds", "num_envs", "at_once"),
    [(CHEAP, 8, 8), (COSTLY, 8, 1), (COSTLY, 259, 2)],
    ids=["cheap", "costly", "costly, two at once"],
)
def test_a_batch_resets_like_single_environments(rounds, num_envs, at_once):
    env = Caves(rounds)
    params = env.default_params
    keys = jax.random.split(jax.random.key(0), num_envs)
    _, state = quick_jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, params)
    step = quick_jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    step_batch = quick_jit(env.step_batch)
    action, endings = jnp.zeros((num_envs, 1), jnp.int32), []
    for time_step in range(9):
        keys = jax.random.split(jax.random.key(time_step), num_envs)
        if time_step == 4:  # all at once
            state = state.replace(left=jnp.ones_like(state.left))
        if time_step == 5:  # none
            state = state.replace(left=jnp.full_like(state.left, 3))
        jax.effects_barrier()
        env.dug = 0
        result = step_batch(keys, state, action, params)
        jax.block_until_ready(result)
        jax.effects_barrier()
        ended = int(result[5]["episode_over"].sum())
        assert env.dug == (-(-ended // at_once) * at_once)
        assert_trees_equal(result, step(keys, state, action, params))
        endings.append(ended)
        state = result[1]
    assert endings[4] == num_envs
    assert endings[5] == 0
    assert any(0 < ended < num_envs for ended in endings)


def test_work_counts_the_rounds_of_loops():
    def work(function):
        return work_of(jax.make_jaxpr(function)(jnp.zeros(300)).jaxpr)

    def scanned(x):
        return jax.lax.scan(lambda x, _: (jax.jit(jnp.sin)(x), None), x, None, 100)[0]

    assert work(jnp.sin) == 300
    assert work(jax.jit(jnp.sin)) == 300
    assert work(scanned) == 30_000
    assert 3_000 <= work(lambda x: jax.lax.while_loop(lambda x: x[0] < 9, jnp.cos, x)) < 3_100
    both = work(lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x))
    assert both == pytest.approx(600, abs=10)
