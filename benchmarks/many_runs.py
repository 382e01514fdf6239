"""Time to train many runs of one program: in turn, side by side, or dispatched by threads.

Prints a line of JSON for each size of member: the time of each way as a multiple of the cost of the
members' arithmetic, which is the time of a single run on one core that trains as much as a core's
share of the members. All ways take turns within one process. CPU seconds are summed over all cores;
other work on the machine changes them less than it changes wall-clock seconds.

Run with: python benchmarks/many_runs.py --env crypto --num-envs 16 256 512
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

import jaxmarl_envs
from jaxmarl_ppo import use_cpu_cores
from jaxmarl_ppo.config.presets import PRESETS
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.tuning import Layout, tuning


def main() -> None:
    """Measure an environment's preset with other numbers of environments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="crypto", help="an environment with a preset")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[16, 512], help="of a member")
    parser.add_argument("--num-members", type=int, default=8, help="runs")
    parser.add_argument("--env-steps", type=int, default=16_384, help="of a member in a timed call")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls")
    args = parser.parse_args()
    use_cpu_cores()
    for each in args.num_envs:
        found = measure(args.env, each, args.num_members, args.env_steps, args.repeats)
        print(json.dumps(found), flush=True)


def measure(
    env_name: str, num_envs: int, num_members: int, env_steps: int, repeats: int
) -> dict[str, Any]:
    """Time every way of training as many members."""
    preset = PRESETS[env_name]
    env, env_params = jaxmarl_envs.make(env_name, **preset.env_kwargs)
    config = dataclasses.replace(preset.config, num_envs=num_envs, num_devices=1)
    learner = make_learner(env, env_params, config)
    num_devices = jax.local_device_count()
    iterations = max(1, env_steps // (num_envs * config.num_steps))
    ways = {
        # As long as the others, since the first moments of a core that has slept are slow.
        "one": one_by_one(learner, 1, 1, iterations * num_members // num_devices),
        "in_turn": together(learner, num_members, "in_turn", iterations),
        "side_by_side": together(learner, num_members, "side_by_side", iterations),
        "threads": one_by_one(learner, num_members, num_devices, iterations),
    }
    clock, processor = time_both(ways, repeats)
    return {
        "env": env_name,
        "num_envs": num_envs,
        "num_members": num_members,
        "iterations": iterations,
        "backend": jax.default_backend(),
        "devices": num_devices,
        "seconds": {name: round(value, 4) for name, value in clock.items()},
        "of_arithmetic": of_arithmetic(clock, 1),
        "of_arithmetic_by_processor": of_arithmetic(processor, num_devices),
    }


def time_both(
    ways: dict[str, Callable[[], Any]], repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Time calls in turn: medians of seconds by the clock, and of the processor."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(2 + repeats):
        for name, call in ways.items():
            began = time.perf_counter(), time.process_time()
            jax.block_until_ready(call())
            found[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    median = {name: np.median(pairs[2:], axis=0) for name, pairs in found.items()}
    return {k: float(x[0]) for k, x in median.items()}, {k: float(x[1]) for k, x in median.items()}


def of_arithmetic(seconds: dict[str, float], share: float) -> dict[str, float]:
    """Compare every way with so many times what one member takes."""
    return {name: round(s / (share * seconds["one"]), 3) for name, s in seconds.items()}


def together(
    learner: Learner, num_members: int, layout: Layout, iterations: int
) -> Callable[[], Any]:
    """Make a call that trains members in one program."""
    compiled = CompiledRuns(learner, num_members, layout=layout)
    states, metrics = compiled.init([jax.random.key(seed) for seed in range(num_members)])
    counts = np.full(num_members, iterations)

    def call() -> Any:
        nonlocal states, metrics
        states, metrics = compiled.train(states, counts, metrics)
        return metrics

    return call


def one_by_one(
    learner: Learner, num_members: int, num_devices: int, iterations: int
) -> Callable[[], Any]:
    """Make a call in which a thread for each device trains its members, a program for each."""
    options = tuning().compiler_options | tuning().options_of_many
    train = jax.jit(learner.train_steps, donate_argnums=(0, 2), compiler_options=options or None)
    compiled = CompiledRuns(learner)
    devices = jax.local_devices()[:num_devices]
    runs = [
        jax.device_put(
            (compiled.begin(jax.random.key(seed)), compiled.no_metrics),
            devices[seed % num_devices],
            may_alias=False,
        )
        for seed in range(num_members)
    ]
    threads = ThreadPoolExecutor(num_devices)

    def train_own(device: int) -> None:
        for seed in range(device, num_members, num_devices):
            state, metrics = runs[seed]
            runs[seed] = jax.block_until_ready(train(state, np.int32(iterations), metrics))

    return lambda: list(threads.map(train_own, range(num_devices)))


if __name__ == "__main__":
    main()
