"""An environment whose faults are injected, and a run on it that takes a moment."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.log import WALL_CLOCK_FIELDS
from jaxmarl_ppo.runs.run_folder import members_of
from jaxmarl_ppo.training.trainer import Trainer

OK, NAN_REWARD, INF_FEATURES, NO_ACTION = range(4)
FAULT_AGENT = 1


@struct.dataclass
class LampParams:
    fault: int | jax.Array = OK
    fault_time: int | jax.Array = 17  # the step that is faulty
    life: int | jax.Array = 5  # steps of a life
    pays: float | jax.Array = 1.0  # for the right switch
    shines: float | jax.Array = 1.0  # what is seen of it


@struct.dataclass
class LampState:
    time: jax.Array  # []: steps since the first reset, so that it counts through all lives
    goal: jax.Array  # [A] int


class Lamps(MultiAgentEnv[LampState, LampParams]):
    """Each agent is shown which of two switches pays; lives end every few steps and start anew."""

    name = "lamps"
    agents = ("ann_0", "bob_0")

    @property
    def default_params(self):
        return LampParams()

    def observation_space(self, agent, params):
        return Box(0.0, 1.0, (2,))

    def action_space(self, agent, params):
        return Discrete(2)

    def reset_env(self, key, params):
        state = LampState(jnp.zeros((), jnp.int32), jax.random.bernoulli(key, shape=(2,)) * 1)
        return self._observe(state, params), state

    def step_env(self, key, state, action, params):
        at_fault = (state.time == params.fault_time) & (jnp.arange(2) == FAULT_AGENT)
        reward = (action == state.goal) * jnp.asarray(params.pays, jnp.float32)
        reward = jnp.where(at_fault & (params.fault == NAN_REWARD), jnp.nan, reward)
        goal = jax.random.bernoulli(key, shape=(2,)) * 1
        state = LampState(state.time + 1, goal)
        ended = jnp.broadcast_to(state.time % params.life == 0, (2,))
        metrics = {"lit": reward}
        obs = self._observe(state, params)
        return obs, state, reward, ended, jnp.zeros(2, bool), {"metrics": metrics}

    def _observe(self, state, params):
        at_fault = (state.time == params.fault_time) & (jnp.arange(2) == FAULT_AGENT)
        features = jax.nn.one_hot(state.goal, 2) * params.shines
        infinite = at_fault & (params.fault == INF_FEATURES)
        features = jnp.where(infinite[:, None], jnp.inf, features)
        mask = jnp.broadcast_to(~(at_fault & (params.fault == NO_ACTION))[:, None], (2, 2))
        everyone = jnp.ones(2, bool)
        return Observation(features, mask, alive=everyone, agent_mask=everyone)


class Rounds(Lamps):
    """Both lives end the episode, so that somebody else may play the next one."""

    def step_env(self, key, state, action, params):
        obs, state, reward, ended, *rest = super().step_env(key, state, action, params)
        obs = obs.replace(alive=obs.alive & ~ended, agent_mask=obs.agent_mask & ~ended)
        return obs, state, reward, ended, *rest


class Unlucky(Lamps):
    """A few of the environments come to their fault; which ones is drawn as they begin."""

    name = "unlucky"

    def reset_env(self, key, params):
        unlucky = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.3)
        obs, state = super().reset_env(key, params)
        return obs, state.replace(time=jnp.where(unlucky, state.time, -(10**6)))


NUM_ENVS, NUM_STEPS = 4, 8
# As many points as the schedule of the run that diverges, so that both share a compilation.
STEADY = ((0.0, 1e-2), (120.0, 1e-2), (121.0, 1e-2))
EXPLODING = ((0.0, 1e-2), (120.0, 1e-2), (121.0, 3e38))
CONFIG = TrainConfig(
    total_env_steps=10 * NUM_ENVS * NUM_STEPS,
    num_envs=NUM_ENVS,
    num_steps=NUM_STEPS,
    mapping="per_agent",
    default_policy=PolicySpec(network=MLP(hidden_sizes=(4,)), normalise_observations=True),
    default_ppo=PPOConfig(num_epochs=2, num_minibatches=2, learning_rate=STEADY),
    log_interval=3,
)


def make_trainer(run_dir, params=None, env=None, callbacks=(), **changes):
    env = env or Lamps()
    config = dataclasses.replace(CONFIG, **changes)
    # Faults are injected on purpose, which the check at the start would find.
    return Trainer(
        env,
        params or env.default_params,
        config,
        run_dir,
        progress=False,
        check_env=False,
        callbacks=callbacks,
    )


def resume(run_dir, **kwargs):
    options = {"env": Lamps(), "progress": False, "check_env": False}
    return Trainer.resume(run_dir, **{**options, **kwargs})


def read_entries(run_dir, name="metrics.jsonl"):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    lines = (run_dir / name).read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def without_clock(history):
    return [{k: v for k, v in entry.items() if k not in WALL_CLOCK_FIELDS} for entry in history]


def assert_same(x, y):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(x), jax.device_get(y))


def assert_same_end(found, expected):
    for own, other in zip(found.members, expected.members, strict=True):
        assert_same_end(own, other)
    if not expected.members:  # in a group's own state there are replicas that nobody trains
        first, second = to_arrays(found.state), to_arrays(expected.state)
        for name in second:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert without_clock(found.history) == without_clock(expected.history)
    assert without_clock(read_entries(found.run_dir)) == without_clock(expected.history)
    assert without_clock(found.evaluations) == without_clock(expected.evaluations)


def cut_back(run_dir, copy, iteration):
    """Copy a group as it would be had it been killed when this iteration had been saved."""
    shutil.copytree(run_dir, copy)
    for folder in [copy, *members_of(copy)]:
        for checkpoint in checkpoints_of(folder):
            if int(checkpoint.name) > iteration:
                shutil.rmtree(checkpoint)
        shutil.rmtree(folder / "params", ignore_errors=True)
    return copy
