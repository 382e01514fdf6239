"""`check_env`: does an environment keep the contract? Everything is run, and run again."""

from collections.abc import Callable
from typing import Any

import jax

from jaxmarl_envs.check.declare import declare, example_action, impure, trace
from jaxmarl_envs.check.run import Run
from jaxmarl_envs.check.types import EnvReport, Spec, Trace, calling
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_code import host_errors

_MAX_STEPS = 1024
_STEPS_WITHOUT_HORIZON = 128
_OPERATIONS_WITHOUT_JIT = 100  # beyond, compiling them one by one takes long


@host_errors()
def check_env(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    num_steps: int | None = None,
    num_envs: int = 4,
    key: jax.Array | None = None,
) -> EnvReport:
    """Run an environment on random legal actions and raise at the first breach of the contract.

    Declarations and traced shapes come first, then every observation and every step. Results must
    repeat: from the same key, with other actions in the slots that do not act, when traced again,
    and, for an environment of up to 100 operations, without `jit`. Where an environment overrides
    `step` or `step_batch`, they must do as `step_env` and, where the episode is over, `reset_env`,
    with the two keys of `jax.random.split(key)`. Programs that were compiled separately may differ
    in floats by rounding (1e-5), and in nothing else.

    Args:
        env: any `MultiAgentEnv`.
        params: its parameters, by default `env.default_params`.
        num_steps: steps for each seed; by default the horizon and 8 more, at most 1,024, or 128
            where there is no horizon.
        num_envs: number of seeds, run in parallel.
        key: random key, by default `jax.random.key(0)`.

    Returns:
        Counts of what has been seen.

    Raises:
        EnvContractError: One sentence with the field, the value found and what was expected; where
            they apply, also the seed, the episode, its step (0 is the reset) and the agent.
        ValueError: If `num_steps` or `num_envs` is below 1.
    """
    if num_envs < 1 or (num_steps is not None and num_steps < 1):
        raise ValueError(f"num_envs={num_envs}, num_steps={num_steps}: both must be at least 1")
    spec = declare(env, params)
    num_operations = _expect_same_program(spec, trace(spec))

    run = Run(spec, num_envs, jax.random.key(0) if key is None else key)
    if num_steps is None:
        steps = _STEPS_WITHOUT_HORIZON if spec.horizon is None else spec.horizon + 8
        num_steps = min(steps, _MAX_STEPS)
    for _ in range(num_steps):
        run.step()
    if num_operations <= _OPERATIONS_WITHOUT_JIT:
        run.compare_without_jit()
    if any(
        getattr(type(env), name) is not getattr(MultiAgentEnv, name)
        for name in ("step", "step_batch", "_step")
    ):
        run.compare_step_functions()
    return run.report()


def _expect_same_program(spec: Spec, traced: Trace) -> int:
    """Trace both functions twice, compare the programs, and count the operations of a step.

    Whatever is not a function of the arguments, such as an attribute that counts calls or NumPy's
    random numbers, is a constant of the program, and another one the next time.
    """
    key, action = jax.random.key(0), example_action(spec)
    _trace_twice(spec.env, "reset_env", (key, spec.params))
    return _trace_twice(spec.env, "step_env", (key, traced.reset[1], action, spec.params))


def _trace_twice(env: MultiAgentEnv, name: str, args: tuple[Any, ...]) -> int:
    function: Callable[..., Any] = getattr(env, name)
    with calling(env, name, " when traced by JAX"):
        # A new lambda each time, because JAX remembers what it has traced.
        one, two = (jax.jit(lambda *args: function(*args)).trace(*args) for _ in range(2))
    if one.lower().as_text() != two.lower().as_text():
        raise impure(env, name)
    return len(one.jaxpr.eqns)
