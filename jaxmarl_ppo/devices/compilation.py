"""The compiled functions of a run: initialisation and training."""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.devices.sharding import BY_ENV, SAME, Devices, rollout_specs, state_specs
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.collectives import split_key
from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import PyTree, RolloutState, TrainState

TrainFn = Callable[[TrainState, np.int32, Metrics], tuple[TrainState, Metrics]]


class InitFn(Protocol):
    """Makes a state on all devices, and empty metrics."""

    def __call__(
        self, key: jax.Array, env_params: PyTree | None = None
    ) -> tuple[TrainState, Metrics]:
        """Begin from a key, with parameters of the environment; None for the learner's."""
        ...


class CompiledRun(NamedTuple):
    """The compiled functions of a run, from `compile_run`.

    Attributes:
        init: makes the state that a run begins with.
        train: `Learner.train_steps`; it donates the memory of state and metrics.
        trace_s: seconds that tracing took.
    """

    init: InitFn
    train: TrainFn
    trace_s: float


def compile_run(learner: Learner, devices: Devices, key: jax.Array) -> CompiledRun:
    """Compile the initialisation and the training function of a run."""
    began = time.perf_counter()
    learner.env.prepare(learner.num_envs)

    def start(key: jax.Array, env_params: PyTree) -> tuple[TrainState, Metrics]:
        state = dataclasses.replace(learner, env_params=env_params).init(key)
        # Copied, since leaves that share a buffer could not be donated.
        lives = state.per_env.running.lives
        metrics = metrics_lib.empty(learner.players, lives, state.population.league)
        return state, jax.tree.map(jnp.copy, metrics)

    init = jax.jit(start, compiler_options=init_options()).lower(key, learner.env_params)
    state, metrics = init.out_info
    specs = state_specs()
    with ThreadPoolExecutor(1) as beside:
        # The compiler releases Python, which traces the other function meanwhile.
        compilation = beside.submit(init.compile)
        # The number of iterations is an argument, so slices of any size share one compilation.
        train = devices.jit(learner.train_steps, (specs, SAME, SAME), (specs, SAME), donate=(0, 2))
        lowered = train.lower(state, np.int32(1), metrics)
        trace_s = time.perf_counter() - began
        compiled = lowered.compile()
        begin = compilation.result()

    def place(key: jax.Array, env_params: PyTree | None = None) -> tuple[TrainState, Metrics]:
        state, metrics = begin(key, learner.env_params if env_params is None else env_params)
        return devices.place(state), metrics

    return CompiledRun(place, compiled, trace_s)


def init_options() -> dict[str, Any] | None:
    """Return the compiler options for the initialisation."""
    # The compiler of JAX 0.11 no longer accepts CPU options.
    return (jax.__version_info__ < (0, 11) and tuning().options_of_once) or None


def jit_rollout(learner: Learner, devices: Devices) -> Any:
    """Make a function of the first half of an iteration, from a state, which stays, and a key."""

    def play(
        state: TrainState, key: jax.Array, axis_name: str | None
    ) -> tuple[RolloutState, Rollout]:
        return learner.play(state, split_key(key, 1, axis_name)[1][0])

    return devices.jit(play, (state_specs(), SAME), (BY_ENV, rollout_specs()))
