"""Measure what training gains by devices and processes, and predict what it would by hosts.

    python benchmarks/process_scaling.py --out scaling.json

One device, two devices of one process and one device of each of two processes train the same
workload in turn, round by round, so that a machine whose speed changes treats them alike. Devices
are cores. From that, and from the time of an all-reduce by its size, comes the prediction:

    iteration on N hosts = fixed + per_env * envs / N + sum of reduce(N) over all all-reduces
    reduce(N) = 2 (N - 1) (hop + bytes / (N * bandwidth))

which is a ring, as gloo has it. `fixed` and `per_env` are fitted to one device at two sizes; `hop`
and `bandwidth` to all-reduces of two processes here, over the loopback, and another prediction has
those of a network that `--hop-us` and `--gbit` describe.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NUM_ENVS, NUM_STEPS = 256, 128
WORKLOAD = {
    "env": "crypto",
    "network_kwargs": {"hidden_sizes": (64, 64), "separate_critic": True},
    "mapping": "per_agent",
    "num_steps": NUM_STEPS,
}
# Processes, devices, environments: what is timed in turn.
SETUPS = ((1, 1, NUM_ENVS), (1, 1, NUM_ENVS // 2), (1, 2, NUM_ENVS), (2, 2, NUM_ENVS))
REDUCED_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
CHAIN = 50  # all-reduces one after the other in a compiled call
HOSTS = (1, 2, 4, 8, 16, 32, 64)
_SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8}


def work(setup: dict[str, Any]) -> None:
    """Be a process of a setup: do what lines on standard input say, and tell how long it took."""
    cores = sorted(os.sched_getaffinity(0))
    count, num_devices = setup["count"], setup["num_devices"]
    share = num_devices // count
    first = setup["index"] * share
    os.sched_setaffinity(0, {cores[(first + k) % len(cores)] for k in range(share)})
    from jaxmarl_ppo import join_processes, make_learner, use_cpu_cores
    from jaxmarl_ppo.bench.workload import Workload
    from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
    from jaxmarl_ppo.devices.sharding import Devices

    use_cpu_cores(share)
    join_processes(setup["coordinator"], count, setup["index"])
    import jax
    import numpy as np

    workload = Workload(**WORKLOAD, num_envs=setup["num_envs"], num_devices=num_devices)
    learner = make_learner(*workload.make())
    devices = Devices(num_devices)
    compiled = CompiledRuns(learner)
    state, empty = compiled.init([jax.random.key(0)])
    say({"reduced": reduced_bytes(compiled.compiled_train.as_text())})
    reduce = make_reduce(devices)
    for line in sys.stdin:
        what, amount = line.split()
        arguments = np.ones(int(amount) // 4, np.float32)
        if what == "reduce":
            reduce(arguments).block_until_ready()
        began = time.perf_counter()
        if what == "train":
            state, metrics = compiled.train(state, np.array([int(amount)]), empty)
            metrics.sums.env_steps.block_until_ready()
        else:
            reduce(arguments).block_until_ready()
        say({"seconds": time.perf_counter() - began})


def make_reduce(devices: Any) -> Any:
    """Make a function that reduces an array over all devices, many times one after the other."""
    import jax

    from jaxmarl_ppo.devices.sharding import SAME

    def chain(x: Any, axis_name: str | None) -> Any:
        if axis_name is None:
            return x
        count = jax.lax.axis_size(axis_name)
        return jax.lax.fori_loop(0, CHAIN, lambda _, x: jax.lax.psum(x, axis_name) / count, x)

    return devices.jit(chain, (SAME,), SAME)


def reduced_bytes(program: str) -> list[int]:
    """List the bytes of every all-reduce in the text of a compiled program."""
    found = []
    for line in program.splitlines():
        match = re.search(r"= (.*?) all-reduce(?:-start)?\(", line)
        if match is None:
            continue
        size = 0
        for kind, shape in re.findall(r"(\w+)\[([\d,]*)\]", match[1]):
            number = 1
            for length in filter(None, shape.split(",")):
                number *= int(length)
            size += number * _SIZES.get(kind, 4)
        found.append(size)
    return sorted(found, reverse=True)


def say(what: dict[str, Any]) -> None:
    """Write a line of JSON."""
    print(json.dumps(what), flush=True)


class Setup:
    """The processes of a setup, which wait until they are told what to do.

    Args:
        count: processes.
        num_devices: of all of them.
        num_envs: likewise.
    """

    def __init__(self, count: int, num_devices: int, num_envs: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            coordinator = f"127.0.0.1:{server.getsockname()[1]}"
        self.num_envs = num_envs
        self.processes = []
        for index in range(count):
            own = {
                "coordinator": coordinator,
                "count": count,
                "index": index,
                "num_devices": num_devices,
                "num_envs": num_envs,
            }
            command = [sys.executable, __file__, "--work", json.dumps(own)]
            self.processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )

    def wait(self) -> list[int]:
        """Wait until all have compiled; return the bytes of every all-reduce of the program."""
        return self._hear()["reduced"]

    def do(self, what: str, amount: int) -> float:
        """Have something done; return the seconds that it took."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{what} {amount}\n")
            process.stdin.flush()
        return self._hear()["seconds"]

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait()

    def _hear(self) -> dict[str, Any]:
        answers = []
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            while line and not line.startswith("{"):  # gloo says something of its own
                line = process.stdout.readline()
            if not line:
                raise RuntimeError("a process has ended; what it said stands above")
            answers.append(json.loads(line))
        return answers[0]


def measure(repeats: int, iterations: int) -> dict[str, Any]:
    """Time all setups in turn, and the all-reduces of those with two devices."""
    import numpy as np

    setups = [Setup(*each) for each in SETUPS]
    reduced = [setup.wait() for setup in setups]
    seconds: list[list[float]] = [[] for _ in setups]
    reduces: dict[tuple[int, int], list[float]] = {}
    for setup in setups:
        setup.do("train", 2)
    for _ in range(repeats):
        for setup, own in zip(setups, seconds, strict=True):
            own.append(setup.do("train", iterations) / iterations)
        for which in (2, 3):
            for size in REDUCED_BYTES:
                took = setups[which].do("reduce", size) / CHAIN
                reduces.setdefault((which, size), []).append(took)
    for setup in setups:
        setup.close()
    result: dict[str, Any] = {"reduced_bytes": reduced[3], "setups": [], "reduce_s": {}}
    for (count, num_devices, num_envs), own in zip(SETUPS, seconds, strict=True):
        ratios = np.divide(seconds[0], own)
        result["setups"].append(
            {
                "processes": count,
                "devices": num_devices,
                "envs": num_envs,
                "iteration_s": float(np.median(own)),
                "env_steps_per_s": num_envs * NUM_STEPS / float(np.median(own)),
                "times_one_device": float(np.median(ratios)) * num_envs / NUM_ENVS,
            }
        )
    for which, name in ((2, "one process"), (3, "two processes")):
        result["reduce_s"][name] = {
            size: float(np.median(reduces[which, size])) for size in REDUCED_BYTES
        }
    return result


def fit(result: dict[str, Any]) -> dict[str, float]:
    """Find the numbers of the model in what was measured."""
    import numpy as np

    whole, half = (result["setups"][index]["iteration_s"] for index in (0, 1))
    per_env = max(0.0, (whole - half) / (NUM_ENVS / 2))
    sizes = np.array(REDUCED_BYTES, float)
    times = np.array([result["reduce_s"]["two processes"][size] for size in REDUCED_BYTES])
    # Of relative errors, so that small messages count as much as large ones.
    slope, offset = np.polyfit(sizes, times, 1, w=1 / times)
    gradient, *others = result["reduced_bytes"]
    return {
        "per_env_s": per_env,
        "fixed_s": max(0.0, whole - per_env * NUM_ENVS),
        "hop_s": max(0.0, offset / 2),
        "bandwidth": 1 / slope,
        "gradient_bytes": gradient,
        "gradients": 16,  # four epochs of four minibatches, the workload's default
        "other_bytes": sum(others),
        "others": len(others),  # once in an iteration
    }


def predict(model: dict[str, float], hosts: int, envs: float) -> float:
    """Predict the seconds of an iteration."""
    count = model["gradients"] + model["others"]
    size = model["gradients"] * model["gradient_bytes"] + model["other_bytes"]
    waits = 2 * (hosts - 1) * (count * model["hop_s"] + size / (hosts * model["bandwidth"]))
    return model["fixed_s"] + model["per_env_s"] * envs / hosts + waits


def curve(model: dict[str, float], envs: int, grows: bool) -> dict[int, float]:
    """Predict environment steps per second on hosts, of which each has `envs` or a share of it."""
    found = {}
    for hosts in HOSTS:
        all_envs = envs * hosts if grows else envs
        found[hosts] = all_envs * NUM_STEPS / predict(model, hosts, all_envs)
    return found


def main() -> int:
    """Measure, predict, and print both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="rounds")
    parser.add_argument("--iterations", type=int, default=4, help="of a setup in a round")
    parser.add_argument("--hop-us", type=float, default=30.0, help="of the network, microseconds")
    parser.add_argument("--gbit", type=float, default=25.0, help="of the network, per second")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
        return 0
    result = measure(options.repeats, options.iterations)
    here = result["model"] = fit(result)
    network = {"hop_s": options.hop_us / 1e6, "bandwidth": options.gbit / 8 * 1e9}
    there = result["model_of_network"] = {**here, **network}
    result["predicted"] = {
        "two processes here": NUM_ENVS * NUM_STEPS / predict(here, 2, NUM_ENVS),
        "hosts, envs for each": curve(there, NUM_ENVS, grows=True),
        "hosts, envs shared out": curve(there, NUM_ENVS, grows=False),
        "hosts, 16 times the envs shared out": curve(there, 16 * NUM_ENVS, grows=False),
    }
    print(json.dumps(result, indent=2))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
