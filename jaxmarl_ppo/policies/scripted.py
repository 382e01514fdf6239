"""Scripted policies: random play and the baselines of an environment, as functions of one step."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box
from jaxmarl_envs.threefry import split, unrolled
from jaxmarl_ppo.config.policies import RANDOM, Scripted, ScriptFn
from jaxmarl_ppo.types import PyTree


def make_script(spec: Scripted, env: MultiAgentEnv, env_params: PyTree) -> ScriptFn:
    """Return the function of a scripted policy.

    Raises:
        ValueError: For an unknown name, or a function that does not return an action for every
            slot.
    """
    if spec.script == RANDOM:
        return make_random_script(env, env_params)
    if callable(spec.script):
        _check_script(spec.script, env, env_params)
        return spec.script
    baselines = env.baselines
    if spec.script not in baselines:
        raise ValueError(
            f"unknown scripted policy {spec.script!r}; environment {env.name!r} has "
            f"{', '.join([RANDOM, *baselines])}; or give a function of your own"
        )
    return baselines[spec.script]


def make_random_script(env: MultiAgentEnv, env_params: PyTree) -> ScriptFn:
    """Make a scripted policy that draws uniformly among legal actions, or within bounds."""
    spaces = env.action_spaces(env_params).values()
    width = env.action_width(env_params)

    def draw_discrete(state: Any, obs: Observation, params: Any, key: jax.Array) -> jax.Array:
        del state, params
        noise = jax.random.uniform(unrolled(key), obs.action_mask.shape)
        # Among identically distributed numbers every legal action is equally likely to be greatest.
        return jnp.argmax(jnp.where(obs.action_mask, noise, -1.0), axis=-1)

    def draw_continuous(state: Any, obs: Observation, params: Any, key: jax.Array) -> jax.Array:
        del state, obs, params
        keys = split(key, env.num_agents)
        rows = [
            jnp.pad(space.sample(key).ravel(), (0, width - space.size))
            for key, space in zip(keys, spaces, strict=True)
            if isinstance(space, Box)  # all are: `action_spaces` rejects mixtures
        ]
        return jnp.stack(rows)

    return draw_continuous if env.is_continuous(env_params) else draw_discrete


def _check_script(script: ScriptFn, env: MultiAgentEnv, env_params: PyTree) -> None:
    def call() -> Any:
        key = jax.random.key(0)
        obs, state = env.reset_env(key, env_params)
        return script(state, obs, env_params, key)

    # Traced as in a rollout, so that code that JAX cannot trace is rejected here.
    name = getattr(script, "__name__", repr(script))
    try:
        action = jax.eval_shape(call)
    except Exception as error:
        raise ValueError(f"scripted policy {name} cannot be called: {error}") from error
    expected = (env.num_agents,)
    if env.is_continuous(env_params):
        expected += (env.action_width(env_params),)
    if getattr(action, "shape", None) != expected:
        raise ValueError(
            f"scripted policy {name} must return actions of shape {expected}, got {action}"
        )
