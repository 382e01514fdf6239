"""A workload compiled for an absent machine: its kernel launches, and whether it fits."""

import re
import time
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.backend import compiling_for
from jaxmarl_ppo.bench.flops import step_flops
from jaxmarl_ppo.bench.hlo import Body, read_program
from jaxmarl_ppo.bench.targets import Chip, Target, make_target
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.devices.sharding import SAME, Devices, state_specs
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner

# There is no device for autotuning.
_OPTIONS = {"gpu": {"xla_gpu_autotune_level": 0}, "tpu": {}}
# Seconds of the smallest kernel in a CUDA graph, measured on an H200; and of a host's read of a
# number from its GPU, a common figure, not measured.
LAUNCH_S, ROUND_TRIP_S = 1e-6, 12e-6


def compile_ahead(
    workload: Workload, target: str, num_devices: int | None = None
) -> dict[str, Any]:
    """Compile a training step for a target and count its operations.

    Args:
        workload: what to train.
        target: as `make_target` takes it.
        num_devices: as `make_target` takes it.

    Returns:
        `kernels` of a step, of a gradient and of a complete iteration; `round_trips` to the host of
        each; `loops` with a length known only at run time; `memory_mb` of one device and whether it
        `fits`; `collectives` of an iteration and their bytes; `floor_ms`, a lower bound of an
        iteration by arithmetic, memory and launches; seconds of tracing and compiling.

    Raises:
        ValueError: As `make_target` and `Workload.make`.
    """
    wanted = make_target(target, num_devices)
    env, env_params, config = replace(workload, num_devices=len(wanted.devices)).make()
    with compiling_for(wanted.chip.platform, wanted.devices):
        began = time.perf_counter()
        learner = make_learner(env, env_params, config)
        lowered = _lower(learner, wanted)
        traced = time.perf_counter()
        compiled = lowered.compile(compiler_options=_OPTIONS[wanted.chip.platform])
        compile_s = time.perf_counter() - traced
        body = read_program(compiled.as_text())
    memory = _memory(compiled.memory_analysis(), wanted.chip)
    return {
        "workload": asdict(workload),
        "target": target,
        "device": wanted.chip.name,
        "num_devices": len(wanted.devices),
        "jax": jax.__version__,
        **count(body, wanted.chip, config.rollout_unroll),
        **memory,
        "floor_ms": _floor(learner, body, wanted),
        "env_steps": config.env_steps(1),
        "trace_s": traced - began,
        "compile_s": compile_s,
    }


def _lower(learner: Learner, target: Target) -> Any:
    """Trace a training step for the devices of a target."""
    devices = Devices(len(target.devices))
    state = jax.eval_shape(learner.init, jax.eval_shape(lambda: jax.random.key(0)))
    specs = state_specs()
    state = jax.tree.map(
        lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
        state,
        devices.shardings(specs, state),
    )
    return devices.jit(learner.train_step, (specs,), (specs, SAME), donate=(0,)).lower(state)


def count(body: Body, chip: Chip, unroll: int = 1) -> dict[str, Any]:
    """Count kernels, round trips, loops of unknown length and collectives.

    Args:
        body: of a training step.
        chip: of the target. A TPU runs loops and branches without its host.
        unroll: environment steps in an iteration of the rollout's loop.
    """
    runs = _runs(body)
    asks = chip.platform == "gpu"
    env_steps = _bodies(body, "env_step")
    collectives: dict[str, dict[str, float]] = {}
    for own, times in runs:
        for kind, (calls, size) in own.collectives.items():
            before = collectives.setdefault(kind, {"count": 0, "bytes": 0})
            before["count"] += calls * times
            before["bytes"] += size * times
    return {
        "kernels": {
            "env_step": max(map(_total, env_steps), default=0) / unroll,
            "gradient": _of_gradients(body),
            "iteration": sum(own.kernels * times for own, times in runs),
        },
        "round_trips": {
            "env_step": asks * max(map(_waits, env_steps), default=0) / unroll,
            "iteration": asks * _waits(body),
        },
        "loops": [
            {"scope": loop.scope, "kernels": loop.body.kernels}
            for own, _ in runs
            for loop in own.loops
            if loop.trip_count is None
        ],
        "collectives": collectives,
    }


def _runs(body: Body, times: float = 1.0) -> list[tuple[Body, float]]:
    """List every body of a step with its number of runs; loops of unknown length count once."""
    found = [(body, times)]
    for loop in body.loops:
        found += _runs(loop.body, times * (loop.trip_count or 1))
    for ways in body.branches:
        found += _runs(max(ways, key=_total), times)
    return found


def _of_gradients(body: Body) -> list[int]:
    """Count the kernels of a gradient of each policy group, loops within it by one pass."""
    # Loops over time have further names behind.
    loops = [loop for own, _ in _runs(body) for loop in own.loops]
    walks = [loop.body.kernels for loop in loops if loop.scope.endswith("gradients/while")]
    if walks:
        return walks
    # A single one needs no loop, and is part of its minibatch.
    scopes = [scope for own, _ in _runs(body) for scope in own.launched]
    found = [
        re.findall(r"policy_group\d+", scope)[-1:]
        for scope in scopes
        if _within(scope, "gradients")
    ]
    return list(Counter(group for groups in found for group in groups).values())


def _bodies(body: Body, scope: str) -> list[Body]:
    """Find the bodies of the outermost loops with a name in the source."""
    found = []
    for loop in body.loops:
        found += [loop.body] if _within(loop.scope, scope) else _bodies(loop.body, scope)
    return found


def _within(path: str, scope: str) -> bool:
    return scope in re.split(r"[/()]", path)


def _total(body: Body) -> int:
    return sum(own.kernels for own, _ in _runs(body))


def _waits(body: Body) -> float:
    """Count how often the host must read a number before it continues.

    It does so at each condition, and before each pass and after the last of a loop of unknown
    length, which counts as one pass.
    """
    return sum(
        times * (len(own.branches) + 2 * sum(loop.trip_count is None for loop in own.loops))
        for own, times in _runs(body)
    )


def _memory(analysis: Any, chip: Chip) -> dict[str, Any]:
    """Return the memory needed on one device, and whether it suffices."""
    parts = {
        "arguments": analysis.argument_size_in_bytes,
        "results": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "temporary": analysis.temp_size_in_bytes,
        "code": analysis.generated_code_size_in_bytes,
    }
    total = sum(parts.values())
    return {
        "memory_mb": {name: size / 1e6 for name, size in (parts | {"all": total}).items()},
        "device_mb": 1e3 * chip.memory_gb,
        "fits": total < 1e9 * chip.memory_gb,
    }


def _floor(learner: Learner, body: Body, target: Target) -> dict[str, float]:
    """Bound an iteration from below, in milliseconds, as if nothing overlapped.

    All agents that can act do.
    """
    decisions = np.zeros(len(learner.players.policies))
    env_steps = learner.num_envs * learner.num_steps
    for group in learner.players.policy_groups:
        ids = np.unique(np.array(learner.players.policy_of)[np.array(group.players)])
        decisions[ids] += env_steps * group.num_active_rows / len(ids)
    flops = step_flops(learner, decisions, decisions) / len(target.devices)
    network = learner.players.policy_groups[0].network  # all networks of a workload are alike
    # Layers that compute in bfloat16 multiply only in it.
    is_coarse = getattr(network.module, "dtype", "float32") == "bfloat16"
    rate = target.chip.tflops["bfloat16" if is_coarse else network.matmul_precision]
    runs = _runs(body)
    moved = sum(own.moved * times for own, times in runs)
    found = {
        "arithmetic": flops / (1e9 * rate),
        "memory": moved / (1e6 * target.chip.gb_per_s),
    }
    if target.chip.platform == "gpu":
        found["launches"] = 1e3 * LAUNCH_S * sum(own.kernels * times for own, times in runs)
        found["round_trips"] = 1e3 * ROUND_TRIP_S * _waits(body)
    return found
