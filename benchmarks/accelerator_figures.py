"""Training speed and utilisation of this machine's accelerator.

    python benchmarks/accelerator_figures.py
    python benchmarks/accelerator_figures.py crypto-8192 shuttle-lstm-4096 --matmul-precision tf32
    python benchmarks/accelerator_figures.py spread-8192 --jaxmarl ../JaxMARL

Each workload is trained for some iterations, the median of which counts; one more is traced, and
its kernels are added up. A figure is entered into benchmarks/speed-<device>.json in the place of an
earlier one of the same workload and precision. `--jaxmarl` also times JaxMARL's own IPPO, by its
own code out of a checkout, on the same game, with as many environments, steps, epochs and
minibatches; it needs `pip install 'jaxmarl[algs]'`.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from jaxmarl_ppo import make_learner
from jaxmarl_ppo.bench.timing import time_calls
from jaxmarl_ppo.bench.training import WARM_UP_STEPS, TrainingSteps
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.machine.hardware import describe_hardware

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jaxmarl_baseline

BENCHMARKS = Path(__file__).resolve().parent
SPREAD = "MPE_simple_spread_v3"
KINDS: Mapping[str, Mapping[str, Any]] = {
    "crypto": {"env": "crypto", "mapping": "per_agent"},
    "crypto-ensemble:3": {"env": "crypto", "mapping": "ensemble:3"},
    "tic_tac_toe": {"env": "tic_tac_toe"},
    "shuttle-lstm": {"env": "shuttle_grid", "network": "lstm"},
    "shuttle-min_gru": {"env": "shuttle_grid", "network": "min_gru"},
    "spread": {"env": "jaxmarl", "env_kwargs": {"env_id": SPREAD}},
}
WORKLOADS = (
    *("crypto-8192", "crypto-32768", "crypto-131072", "crypto-ensemble:3-8192"),
    *("tic_tac_toe-8192", "tic_tac_toe-32768", "tic_tac_toe-131072"),
    *("shuttle-lstm-4096", "shuttle-min_gru-4096", "spread-8192"),
)
WHAT = (
    "Iterations of training on one device, 128 steps, 4 epochs, 4 minibatches: the median of "
    "several and, in `trace`, what one more launched. Where there are `trials`, they are "
    "iterations timed in the same way by hand, with what `changed` says."
)
# Kernels of a workload that are recorded by name.
NUM_NAMED = 12


def make_workload(name: str, precision: str) -> Workload:
    """Make a workload from its name, a kind and a number of environments.

    Raises:
        ValueError: there is no such kind.
    """
    kind, _, num_envs = name.rpartition("-")
    if kind not in KINDS or not num_envs.isdecimal():
        raise ValueError(f"unknown workload {name!r}; a kind and environments, as in {WORKLOADS}")
    return Workload(**KINDS[kind], num_envs=int(num_envs), matmul_precision=precision)  # type: ignore


def measure(workload: Workload, repeats: int) -> dict[str, Any]:
    """Time iterations of a workload and trace one."""
    env, env_params, config = workload.make()
    learner = make_learner(env, env_params, config)
    devices = Devices(learner.num_devices)
    state = devices.place(jax.jit(learner.init)(jax.random.key(0)))
    began = time.perf_counter()
    steps = TrainingSteps(learner, devices, state)
    jax.block_until_ready(steps())
    compile_s = time.perf_counter() - began
    timing = time_calls(steps, repeats, WARM_UP_STEPS)
    decisions, flops = steps.work(repeats)
    env_steps = config.num_envs * config.num_steps
    return {
        "iteration_ms": 1e3 * timing.median,
        "iteration_ms_range": [1e3 * timing.min, 1e3 * timing.max],
        "env_steps_per_s": env_steps / timing.median,
        "decisions_per_s": decisions / timing.median,
        "tflops": flops / timing.median / 1e12,
        "compile_s": compile_s,
        "trace": trace(steps),
    }


def trace(step: Callable[[], Any]) -> dict[str, Any]:
    """Trace one iteration and add up what ran on the device.

    Returns:
        `kernels`; milliseconds from the first one's start to the last one's end, `span_ms`, of
        which one ran in `busy_ms`; and `longest`, by name the number and milliseconds of those
        kernels that took longest. Where nothing can be traced, no kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(step())
        (path,) = Path(folder).rglob("*.xplane.pb")
        planes = ProfileData.from_file(str(path)).planes
    spans, count, total = [], Counter[str](), Counter[str]()
    for plane in planes:
        streams = [line for line in plane.lines if line.name.startswith("Stream")]
        for event in (event for line in streams for event in line.events):
            spans.append((event.start_ns, event.start_ns + event.duration_ns))
            count[event.name] += 1
            total[event.name] += event.duration_ns
    if not spans:
        return {"kernels": 0}
    busy, reached = 0.0, 0.0
    for start, end in sorted(spans):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return {
        "kernels": len(spans),
        "span_ms": (reached - min(spans)[0]) / 1e6,
        "busy_ms": busy / 1e6,
        "longest": {
            name: {"count": count[name], "ms": round(ns / 1e6, 3)}
            for name, ns in total.most_common(NUM_NAMED)
        },
    }


def measure_jaxmarl(checkout: Path, num_envs: int, repeats: int) -> dict[str, Any]:
    """Time JaxMARL's IPPO on its game of spread, as much work as ours.

    It runs all iterations in one call, after which it is timed again, so nothing is compiled then.
    """
    module, config = jaxmarl_baseline.load_baseline(checkout, "ippo_ff_mpe")
    ours = Workload()
    env_steps = num_envs * ours.num_steps
    config |= {
        "ENV_NAME": SPREAD,
        "NUM_ENVS": num_envs,
        "NUM_STEPS": ours.num_steps,
        "UPDATE_EPOCHS": ours.num_epochs,
        "NUM_MINIBATCHES": ours.num_minibatches,
        "TOTAL_TIMESTEPS": repeats * env_steps,
    }
    key = jax.random.PRNGKey(0)
    began = time.perf_counter()
    train = jax.jit(module.make_train(config)).lower(key).compile()
    compile_s = time.perf_counter() - began
    timing = time_calls(lambda: train(key), repeats)
    return {
        "iteration_ms": 1e3 * timing.median / repeats,
        "iteration_ms_range": [1e3 * seconds / repeats for seconds in (timing.min, timing.max)],
        "env_steps_per_s": repeats * env_steps / timing.median,
        "compile_s": compile_s,
    }


def record(name: str, precision: str, figures: Mapping[str, Any]) -> None:
    """Enter figures into the device's record."""
    hardware = describe_hardware()
    device = re.sub(r"[^a-z0-9]+", "-", hardware["device"].lower().removeprefix("nvidia "))
    path = BENCHMARKS / f"speed-{device}.json"
    entries = json.loads(path.read_text()) if path.exists() else {"what": WHAT, "runs": []}
    said = {"workload": name, "matmul_precision": precision}
    runs = [run for run in entries["runs"] if not said.items() <= run.items()]
    runs.append({**said, **figures, "hardware": hardware})
    entries["runs"] = sorted(runs, key=lambda run: (run["workload"], run["matmul_precision"]))
    path.write_text(json.dumps(entries, indent=1) + "\n")


def main() -> None:
    """Measure what the options say; a workload that fails does not stop the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--matmul-precision", default="float32", help="float32, tf32 or bfloat16")
    parser.add_argument("--jaxmarl", type=Path, metavar="CHECKOUT", help="time its IPPO, too")
    parser.add_argument("--repeats", type=int, default=9, help="iterations that are timed")
    options = parser.parse_args()
    if jax.default_backend() == "cpu":
        raise ValueError("there is no accelerator here; for a CPU there is `jaxmarl-ppo bench`")
    precision, failed = options.matmul_precision, []
    workloads = {name: make_workload(name, precision) for name in options.workloads or WORKLOADS}
    jobs: list[tuple[str, str, Callable[[], dict[str, Any]]]] = []
    for name, workload in workloads.items():
        jobs.append((name, precision, lambda workload=workload: measure(workload, options.repeats)))
        if options.jaxmarl and name.startswith("spread-"):
            jobs.append(
                (
                    f"{name}, JaxMARL",
                    "JAX's default",
                    lambda workload=workload: measure_jaxmarl(
                        options.jaxmarl, workload.num_envs, options.repeats
                    ),
                )
            )
    for name, said, job in jobs:
        try:
            figures = job()
        except (RuntimeError, ValueError, MemoryError) as error:
            failed.append(name)
            print(f"{name}: {error}", file=sys.stderr)
            continue
        finally:
            jax.clear_caches()
        record(name, said, figures)
        print(
            f"{name} ({said}): {figures['iteration_ms']:.1f} ms an iteration, "
            f"{figures['env_steps_per_s'] / 1e6:.2f} M environment steps/s",
            flush=True,
        )
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
