"""The compiled functions of a run: one that begins it, one that trains."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo import metrics as metrics_lib
from jaxmarl_ppo.learner import Learner
from jaxmarl_ppo.metrics import Metrics
from jaxmarl_ppo.parallel import SAME, Devices, state_specs
from jaxmarl_ppo.types import TrainState

InitFn = Callable[[jax.Array], tuple[TrainState, Metrics]]
TrainFn = Callable[[TrainState, np.int32, Metrics], tuple[TrainState, Metrics]]


class CompiledRun(NamedTuple):
    """What `compile_run` made.

    Attributes:
        init: from a key to a state on all devices and to metrics of nothing.
        train: `Learner.train_steps`; it takes the memory of the state and of the metrics.
        trace_s: seconds that tracing took.
    """

    init: InitFn
    train: TrainFn
    trace_s: float


def compile_run(learner: Learner, devices: Devices, key: jax.Array) -> CompiledRun:
    """Compile both functions of a run."""
    began = time.perf_counter()

    def start(key: jax.Array) -> tuple[TrainState, Metrics]:
        state = learner.init(key)
        # Copied, since leaves that share a buffer could not be donated.
        metrics = metrics_lib.empty(learner.players, state.episode_stats, state.league)
        return state, jax.tree.map(jnp.copy, metrics)

    init = jax.jit(start).lower(key)
    state, metrics = init.out_info
    specs = state_specs(state)
    # The number of iterations is an argument, so slices of any size share one compilation.
    train = devices.jit(learner.train_steps, (specs, SAME, SAME), (specs, SAME), donate=(0, 2))
    lowered = train.lower(state, np.int32(1), metrics)
    trace_s = time.perf_counter() - began
    begin = init.compile()

    def place(key: jax.Array) -> tuple[TrainState, Metrics]:
        state, metrics = begin(key)
        return devices.place(state), metrics

    return CompiledRun(place, lowered.compile(), trace_s)
