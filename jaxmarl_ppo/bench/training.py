"""Benchmark of training a workload: speed, and fraction of the machine's arithmetic throughput.

Everything is measured in one process and one run, with the machine's rate of matrix products
measured in between. So ratios hold on a machine whose speed changes.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.bench.flops import matmul_gflops, step_flops
from jaxmarl_ppo.bench.stepping import Share, time_env
from jaxmarl_ppo.bench.timing import time_calls
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compilation import jit_rollout
from jaxmarl_ppo.devices.sharding import BY_ENV, SAME, Devices, rollout_specs, state_specs
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine import awake
from jaxmarl_ppo.machine.hardware import describe_hardware
from jaxmarl_ppo.types import PolicyGroupTraining, PyTree, TrainState

# Training steps before the timing: the second one is still slow, since it touches new memory.
WARM_UP_STEPS = 2


def measure(workload: Workload, repeats: int = 5, startup: bool = True) -> dict[str, Any]:
    """Measure a workload.

    Args:
        workload: what to train.
        repeats: timed runs of everything in this process, after an untimed one.
        startup: also start it in fresh processes, with an empty compilation cache and with a full
            one.

    Returns:
        Steps and decisions per second as medians, with `*_range` for the slowest and the fastest
        run; `time_shares` of a training step; `fraction_of_limit`, the arithmetic done per second
        over the rate of `matmul_gflops`; and with `startup` seconds and memory of a fresh process.

    Raises:
        ValueError: If there are no repeats, or as `Workload.make`.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    env, env_params, config = workload.make()
    learner = make_learner(env, env_params, config)
    # First, since this process's memory slows another one.
    fresh_process = measure_startup(workload) if startup else {}
    # As in a run.
    with awake.cores_awake(awake.helps(learner.num_devices)):
        here = _measure_here(learner, env, env_params, config, repeats)
    return {
        "workload": asdict(workload),
        **here,
        "hardware": describe_hardware(),
        **fresh_process,
    }


def _measure_here(
    learner: Learner, env: MultiAgentEnv, env_params: PyTree, config: TrainConfig, repeats: int
) -> dict[str, Any]:
    """Measure everything that can be measured in this process."""
    devices = Devices(learner.num_devices)
    state = devices.place(jax.jit(learner.init)(jax.random.key(0)))
    machine = [matmul_gflops(learner)]
    parts = {
        name: time_calls(call, repeats)
        for name, call in training_parts(learner, devices, state).items()
    }
    machine.append(matmul_gflops(learner))
    steps = TrainingSteps(learner, devices, state)
    step = time_calls(steps, repeats, WARM_UP_STEPS)
    decisions, flops = steps.work(repeats)
    machine.append(matmul_gflops(learner))
    share = Share(learner.num_devices, config.num_envs // learner.num_devices)
    env_only = time_env(env, env_params, share, config.num_steps, repeats)
    env_steps = config.env_steps(1)
    gflops = float(np.median(machine))
    rollout, learn = parts["rollout"].median, parts["learn"].median
    # A part cannot take longer than the total, but noise can make it seem so.
    advantages = min(parts["advantages"].median, learn)
    update, whole = learn - advantages, rollout + learn
    return {
        "env_steps_per_s": step.rate(env_steps)["median"],
        "env_steps_per_s_range": step.rate(env_steps),
        "decisions_per_s": step.rate(decisions)["median"],
        "env_only_steps_per_s": env_only.rate(env_steps)["median"],
        "rollout_steps_per_s": parts["rollout"].rate(env_steps)["median"],
        "update_ns_per_decision": 1e9 * update / max(decisions, 1.0),
        "time_shares": {
            "rollout": rollout / whole,
            "advantages_and_packing": advantages / whole,
            "update": update / whole,
        },
        "gflop_per_step": flops / 1e9,
        "matmul_gflops": gflops,
        "fraction_of_limit": flops / step.median / 1e9 / gflops,
    }


def training_parts(
    learner: Learner, devices: Devices, state: TrainState
) -> dict[str, Callable[[], Any]]:
    """Make calls that run the halves of a training step, compiled separately.

    `advantages` is `learn` without any epochs, so the difference of the two is the update.
    """
    key, specs = jax.random.key(1), state_specs()
    played_specs = (BY_ENV, rollout_specs())
    play = jit_rollout(learner, devices)
    after, played = play(state, key)
    learn = devices.jit(learner.learn, (specs, *played_specs, SAME, SAME), (specs, SAME))
    idle = _without_epochs(state)
    usable, keys = jnp.ones((), bool), jax.random.split(key, len(learner.players.policy_groups))
    return {
        "rollout": lambda: play(state, key),
        "learn": lambda: learn(state, after, played, usable, keys),
        "advantages": lambda: learn(idle, after, played, usable, keys),
    }


def _without_epochs(state: TrainState) -> TrainState:
    """Copy a state without epochs: acting, credit, packing and bookkeeping remain."""

    def idle(group: PolicyGroupTraining) -> PolicyGroupTraining:
        none = jnp.zeros_like(group.hyperparams.num_epochs)
        return group.replace(hyperparams=group.hyperparams.replace(num_epochs=none))

    return state.replace(training=tuple(map(idle, state.training)))


class TrainingSteps:
    """Takes training steps, one per call, and records their decisions.

    Args:
        learner: of the steps.
        devices: to run on.
        state: to begin from; it is copied.
    """

    def __init__(self, learner: Learner, devices: Devices, state: TrainState) -> None:
        specs = state_specs()
        self._learner = learner
        self._step = devices.jit(learner.train_step, (specs,), (specs, SAME), donate=(0,))
        self._state = jax.tree.map(jnp.copy, state)
        self._sums: list[Any] = []

    def __call__(self) -> TrainState:
        """Take a step; the next step donates the returned state."""
        self._state, metrics = self._step(self._state)
        self._sums.append(metrics.sums)
        return self._state

    def without_epochs(self) -> "TrainingSteps":
        """Make a copy that starts from the same state and skips the update: no epochs."""
        other = copy.copy(self)
        other._state = jax.tree.map(jnp.copy, _without_epochs(self._state))
        other._sums = []
        return other

    def work(self, num_steps: int) -> tuple[float, float]:
        """Return decisions and FLOPs of one step, as medians over the last `num_steps`."""
        last = self._sums[-num_steps:]
        decisions = [float(sums.decisions.sum()) for sums in last]
        flops = [step_flops(self._learner, sums.decisions, sums.trained) for sums in last]
        return float(np.median(decisions)), float(np.median(flops))


def measure_startup(workload: Workload) -> dict[str, float]:
    """Time fresh processes up to the first update, without and with a full compilation cache.

    Returns:
        `import_s` of the trainer beyond that of jax; `compile_s`, tracing included;
        `first_update_s` from the command to the end of the first update; the last two again with a
        full cache, `*_warm_s`; and `peak_memory_mb` of a process that did nothing else.
    """
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (_start(workload, cache) for _ in range(2))
    return {
        "import_s": float(np.median([cold["import_s"], warm["import_s"]])),
        "trace_s": warm["trace_s"],
        "compile_s": cold["compile_s"],
        "compile_warm_s": warm["compile_s"],
        "first_update_s": cold["total_s"],
        "first_update_warm_s": warm["total_s"],
        "peak_memory_mb": cold["peak_memory_mb"],
    }


def _start(workload: Workload, cache: str) -> dict[str, float]:
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
    request = json.dumps({"workload": asdict(workload), "started": time.time()})
    command = [sys.executable, "-m", "jaxmarl_ppo.bench.startup", request]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the fresh process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
