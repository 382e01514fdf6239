"""Policies of several choices never take an illegal option, over 100,000 steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig, make_learner
from jaxmarl_ppo.evaluation.episodes import play_episodes

NUM_STEPS = 100_000


class Watched(MultiAgentEnv):
    """An environment with further options hidden at random, that counts illegal actions.

    The state is that of the environment, and its observation.
    """

    def __init__(self, env):
        self.env, self.name, self.agents = env, f"watched_{env.name}", env.agents

    @property
    def default_params(self):
        return self.env.default_params

    @property
    def max_actors(self):
        return self.env.max_actors

    def horizon(self, params):
        return self.env.horizon(params)

    def observation_space(self, agent, params):
        return self.env.observation_space(agent, params)

    def action_space(self, agent, params):
        return self.env.action_space(agent, params)

    def _hide(self, key, obs, params):
        """Hide half of the options, and leave one of every choice."""
        layout = self.action_layout(params)
        key_kept, key_hidden = jax.random.split(key)
        noise = jax.random.uniform(key_kept, obs.action_mask.shape)
        choices, _ = layout.split(layout.pick(noise, obs.action_mask))
        kept = [jax.nn.one_hot(choices[:, i], n, dtype=bool) for i, n in enumerate(layout.counts)]
        numbers = jnp.ones((len(self.agents), layout.num_numbers), bool)
        shown = jax.random.bernoulli(key_hidden, 0.5, obs.action_mask.shape)
        return obs.replace(
            action_mask=obs.action_mask & (shown | jnp.concatenate([*kept, numbers], axis=-1))
        )

    def reset_env(self, key, params):
        obs, state = self.env.reset_env(key, params)
        obs = self._hide(jax.random.fold_in(key, 1), obs, params)
        return obs, (state, obs)

    def step_env(self, key, state, action, params):
        inner, before = state
        layout = self.action_layout(params)
        choices, numbers = layout.split(action)
        low, high = layout.bounds
        legal = ((low <= numbers) & (numbers <= high)).all(-1)
        for choice, (start, count) in enumerate(zip(layout.starts, layout.counts, strict=False)):
            options = before.action_mask[:, start : start + count]
            own = choices[:, choice]
            legal &= (own >= 0) & (own < count)
            legal &= jnp.take_along_axis(options, own[:, None].clip(0, count - 1), 1)[:, 0]
        obs, inner, reward, terminated, truncated, _ = self.env.step_env(key, inner, action, params)
        obs = self._hide(jax.random.fold_in(key, 1), obs, params)
        counts = {"illegal": (before.agent_mask & ~legal) * 1.0, "acts": before.agent_mask * 1.0}
        return obs, (inner, obs), reward, terminated, truncated, {"metrics": counts}


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", ["combination_lock", "convoy"])
def test_no_illegal_option_is_ever_taken(name, greedy):
    env = Watched(jaxmarl_envs.make(name)[0])
    config = TrainConfig(
        num_envs=64,
        num_steps=8,
        total_env_steps=10**6,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(16,))),
        default_ppo=PPOConfig(learning_rate=0.03, entropy_coef=0.0),
    )
    learner = make_learner(env, env.default_params, config)
    state = jax.jit(learner.init)(jax.random.key(0))
    state, _ = jax.jit(learner.train_steps)(state, np.int32(50))
    episodes = NUM_STEPS // env.horizon(env.default_params)
    totals = play_episodes(learner, state.population, episodes, jax.random.key(1), greedy)
    assert totals.metrics["acts"].sum() >= NUM_STEPS
    assert totals.metrics["illegal"].sum() == 0
