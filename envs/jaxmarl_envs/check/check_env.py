"""`check_env`: does an environment keep the contract? The rules are in `check_rules`."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.check.rules import DECLARED, TRACED
from jaxmarl_envs.check.run import Run, random_actions
from jaxmarl_envs.check.types import (
    STEP_FIELDS,
    EnvContractError,
    EnvReport,
    Spec,
    Trace,
    breach,
    calling,
    describe,
)
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.spaces import Box, Discrete

_MAX_TICKS = 1024
_TICKS_WITHOUT_HORIZON = 128
_OPERATIONS_WITHOUT_JIT = 100  # beyond, compiling them one by one takes long
__all__ = ["EnvContractError", "EnvReport", "check_env"]


def check_env(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    num_steps: int | None = None,
    num_envs: int = 4,
    key: jax.Array | None = None,
) -> EnvReport:
    """Run an environment on random legal actions and raise at the first breach of the contract.

    Declarations and traced shapes come first, then every observation and every tick. Results must
    repeat: from the same key, with other actions in the slots that do not act, when traced again,
    and, for an environment of up to 100 operations, without `jit`. Where an environment overrides
    `step` or `step_batch`, they must do as `step_env` and, where the episode is over, `reset_env`,
    with the two keys of `jax.random.split(key)`. Programs that were compiled separately may differ
    in floats by rounding (1e-5), and in nothing else.

    Args:
        env: any `MultiAgentEnv`.
        params: its parameters, by default `env.default_params`.
        num_steps: ticks for each seed; by default the horizon and 8 more, at most 1,024, or 128
            where there is no horizon.
        num_envs: number of seeds, run in parallel.
        key: random key, by default `jax.random.key(0)`.

    Returns:
        Counts of what has been seen.

    Raises:
        EnvContractError: one sentence with the field, the value found and what was expected, and
            where they apply the seed, the episode, its tick (0 is the reset) and the agent.
        ValueError: `num_steps` or `num_envs` is below 1.
    """
    if num_envs < 1 or (num_steps is not None and num_steps < 1):
        raise ValueError(f"num_envs={num_envs}, num_steps={num_steps}: both must be at least 1")
    if params is None:
        with calling(env, "default_params"):
            params = env.default_params
    for declared in DECLARED:
        with calling(env, declared.__name__[1:]):
            _raise_first(env, declared(env, params))
    spec = _declare(env, params)
    trace = _trace(spec)
    for traced in TRACED:
        _raise_first(env, traced(spec, trace))
    num_operations = _expect_same_program(spec, trace)

    run = Run(spec, num_envs, jax.random.key(0) if key is None else key)
    if num_steps is None:
        ticks = _TICKS_WITHOUT_HORIZON if spec.horizon is None else spec.horizon + 8
        num_steps = min(ticks, _MAX_TICKS)
    for _ in range(num_steps):
        run.tick()
    if num_operations <= _OPERATIONS_WITHOUT_JIT:
        run.compare_without_jit()
    if any(
        getattr(type(env), name) is not getattr(MultiAgentEnv, name)
        for name in ("step", "step_batch", "_step")
    ):
        run.compare_step_functions()
    return run.report()


def _declare(env: MultiAgentEnv, params: Any) -> Spec:
    actions = [
        Box(0.0, 0.0, (space.n,)) if isinstance(space, Discrete) else space
        for space in env.action_spaces(params).values()
    ]
    horizon = env.horizon(params)
    return Spec(
        env,
        params,
        horizon=None if horizon is None else int(horizon),
        continuous=env.is_continuous(params),
        features=_pad([env.observation_space(agent, params) for agent in env.agents]),
        actions=_pad(actions),
    )


def _pad(boxes: list[Box]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = np.max([box.shape for box in boxes], axis=0)
    own, low, high = (np.zeros((len(boxes), *shape)) for _ in range(3))
    for row, box in enumerate(boxes):
        inside = (row, *(slice(size) for size in box.shape))
        own[inside], low[inside], high[inside] = 1, box.low, box.high
    return own.astype(bool), low, high


def _trace(spec: Spec) -> Trace:
    env, key = spec.env, jax.random.key(0)
    with calling(env, "reset_env", " when traced by JAX"):
        reset = jax.eval_shape(env.reset_env, key, spec.params)
    if not isinstance(reset, tuple) or len(reset) != 2:
        raise breach(env, f"reset_env returns {describe(reset)}, expected the tuple (obs, state)")
    with calling(env, "step_env", " when traced by JAX"):
        step = jax.eval_shape(env.step_env, key, reset[1], _example_action(spec), spec.params)
    if not isinstance(step, tuple) or len(step) != len(STEP_FIELDS):
        wanted = f"the tuple ({', '.join(STEP_FIELDS)})"
        raise breach(env, f"step_env returns {describe(step)}, expected {wanted}")
    return Trace(reset, step)


def _expect_same_program(spec: Spec, trace: Trace) -> int:
    """Trace both functions twice and compare the programs; how many operations a tick takes.

    Whatever is not a function of the arguments, such as an attribute that counts calls or NumPy's
    random numbers, is a constant of the program, and another one the next time.
    """
    key, action = jax.random.key(0), _example_action(spec)
    _trace_twice(spec.env, "reset_env", (key, spec.params))
    return _trace_twice(spec.env, "step_env", (key, trace.reset[1], action, spec.params))


def _trace_twice(env: MultiAgentEnv, name: str, args: tuple[Any, ...]) -> int:
    function: Callable[..., Any] = getattr(env, name)
    with calling(env, name, " when traced by JAX"):
        # A new lambda each time, because JAX remembers what it has traced.
        one, two = (jax.jit(lambda *args: function(*args)).trace(*args) for _ in range(2))
    if one.lower().as_text() != two.lower().as_text():
        raise breach(
            env,
            f"{name} becomes another program when it is traced again, expected a pure function "
            "that depends on nothing but its arguments",
        )
    return len(one.jaxpr.eqns)


def _example_action(spec: Spec) -> np.ndarray:
    return random_actions(spec, np.random.default_rng(0), spec.actions[0][None])[0]


def _raise_first(env: MultiAgentEnv, complaints: Iterator[str]) -> None:
    for complaint in complaints:
        raise breach(env, complaint)
