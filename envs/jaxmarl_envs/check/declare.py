"""Declarations of an environment, and its functions as JAX traces them."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.check.rules import DECLARED, TRACED
from jaxmarl_envs.check.types import STEP_FIELDS, Spec, Trace, breach, calling, describe
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.spaces import Box


def declare(env: MultiAgentEnv, params: Any = None) -> Spec:
    """Ask the rules on declarations and collect what an environment declares.

    Args:
        env: any `MultiAgentEnv`.
        params: its parameters, by default `env.default_params`.

    Raises:
        EnvContractError: If a rule is broken.
    """
    if params is None:
        with calling(env, "default_params"):
            params = env.default_params
    for declared in DECLARED:
        with calling(env, declared.__name__[1:]):
            _raise_first(env, declared(env, params))
    horizon = env.horizon(params)
    return Spec(
        env,
        params,
        horizon=None if horizon is None else int(horizon),
        features=_pad([env.observation_space(agent, params) for agent in env.agents]),
        layout=env.action_layout(params),
    )


def trace(spec: Spec, trace_fn: Callable[..., Any] = jax.eval_shape) -> Trace:
    """Trace both functions of an environment and ask the rules on what they return.

    Args:
        spec: the environment's declarations.
        trace_fn: from a function and its arguments to the shapes and dtypes of its results.

    Raises:
        EnvContractError: If a function raises, or a rule is broken.
    """
    env, key = spec.env, jax.eval_shape(jax.random.key, 0)
    with calling(env, "reset_env", " when traced by JAX"):
        reset = trace_fn(env.reset_env, key, spec.params)
    if not isinstance(reset, tuple) or len(reset) != 2:
        raise breach(env, f"reset_env returns {describe(reset)}, expected the tuple (obs, state)")
    with calling(env, "step_env", " when traced by JAX"):
        step = trace_fn(env.step_env, key, reset[1], example_action(spec), spec.params)
    if not isinstance(step, tuple) or len(step) != len(STEP_FIELDS):
        wanted = f"the tuple ({', '.join(STEP_FIELDS)})"
        raise breach(env, f"step_env returns {describe(step)}, expected {wanted}")
    traced = Trace(reset, step)
    for asked in TRACED:
        _raise_first(env, asked(spec, traced))
    return traced


def example_action(spec: Spec) -> Any:
    """Draw an action for every slot, `[A, ...]`, each within its own space."""
    return random_actions(spec, np.random.default_rng(0), spec.layout.exists)


def random_actions(spec: Spec, rng: np.random.Generator, mask: np.ndarray) -> Any:
    """Draw actions `[..., A, ...]` that `mask [..., A, W]` allows, uniformly."""
    return spec.layout.pick(rng.random(mask.shape), mask)


def impure(env: MultiAgentEnv, name: str) -> Exception:
    """Make the exception for a function that is another one when it is traced again."""
    return breach(
        env,
        f"{name} becomes another program when it is traced again, expected a pure function "
        "that depends on nothing but its arguments",
    )


def _pad(boxes: list[Box]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = np.max([box.shape for box in boxes], axis=0)
    own, low, high = (np.zeros((len(boxes), *shape)) for _ in range(3))
    for row, box in enumerate(boxes):
        inside = (row, *(slice(size) for size in box.shape))
        own[inside], low[inside], high[inside] = 1, box.low, box.high
    return own.astype(bool), low, high


def _raise_first(env: MultiAgentEnv, complaints: Iterator[str]) -> None:
    for complaint in complaints:
        raise breach(env, complaint)
