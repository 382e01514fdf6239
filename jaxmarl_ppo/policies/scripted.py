"""Scripted policies: random play and the baselines of an environment, as functions of one step."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.check.quick import is_the_same_again
from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.config.policies import RANDOM, Scripted, ScriptFn
from jaxmarl_ppo.types import PyTree


def make_script(spec: Scripted, env: MultiAgentEnv, env_params: PyTree) -> ScriptFn:
    """Return the function of a scripted policy.

    Raises:
        ValueError: For an unknown name, or a function that does not return an action for every
            slot or depends on more than its arguments.
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
    """Make a scripted policy that draws uniformly among legal options, and within bounds."""
    return make_random_script_of(env.action_layout(env_params))


def make_random_script_of(layout: ActionLayout) -> ScriptFn:
    """Make `make_random_script`'s policy for actions of this layout.

    Bounds may depend on an environment's parameters, so the layout is made outside of functions
    that trace them.
    """

    def draw(state: Any, obs: Observation, params: Any, key: jax.Array) -> Any:
        del state, params
        noise = jax.random.uniform(unrolled(key), obs.action_mask.shape)
        return layout.pick(noise, obs.action_mask)

    return draw


def _check_script(script: ScriptFn, env: MultiAgentEnv, env_params: PyTree) -> None:
    key = jax.random.key(0)
    obs, state = jax.eval_shape(env.reset_env, key, env_params)

    def call(state: Any, obs: Observation, key: jax.Array) -> Any:
        return script(state, obs, env_params, key)

    # Traced as in a rollout, so that code that JAX cannot trace is rejected here.
    name = getattr(script, "__name__", repr(script))
    try:
        action = jax.eval_shape(call, state, obs, key)
        is_pure = is_the_same_again(call, state, obs, key)
    except Exception as error:
        raise ValueError(f"scripted policy {name} cannot be called: {error}") from error
    expected = jax.eval_shape(env.action_layout(env_params).zeros)
    if _shapes(action) != _shapes(expected):
        raise ValueError(
            f"scripted policy {name} must return actions of shape {_shapes(expected)}, got "
            f"{_shapes(action)}"
        )
    for found, wanted in zip(*map(jax.tree.leaves, (action, expected)), strict=True):
        if jnp.issubdtype(wanted.dtype, jnp.integer) and jnp.issubdtype(found.dtype, jnp.inexact):
            raise ValueError(
                f"scripted policy {name} must return choices as integers, got {found.dtype}"
            )
    if not is_pure:
        raise ValueError(
            f"scripted policy {name} becomes another program when it is traced again; it must "
            "depend on nothing but its arguments, so draw random numbers from its key"
        )


def _shapes(action: Any) -> Any:
    return jax.tree.map(lambda x: getattr(x, "shape", x), action)
