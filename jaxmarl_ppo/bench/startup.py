"""A process that starts, trains a few iterations and reports time and memory; `bench` runs it.

    python -m jaxmarl_ppo.bench.startup '{"workload": {...}, "started": 1700000000.0}'

`started` is when the command was given, in seconds since 1970.
"""

import json
import sys
import time

NUM_UPDATES = 3  # the peak of memory is reached by then


def main(request: str) -> None:
    """Print one line of JSON."""
    clock = time.perf_counter
    began = clock()
    import jax

    jax_imported = clock()
    from jaxmarl_envs import make  # noqa: F401
    from jaxmarl_ppo import Trainer, make_learner  # noqa: F401

    imported = clock()
    import numpy as np

    from jaxmarl_ppo.bench.workload import Workload
    from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
    from jaxmarl_ppo.machine import awake
    from jaxmarl_ppo.machine.cores import use_cpu_cores
    from jaxmarl_ppo.runs.log import peak_memory_mb

    asked = json.loads(request)
    use_cpu_cores()
    learner = make_learner(*Workload(**asked["workload"]).make())
    built = clock()
    with awake.cores_awake(awake.helps(learner.num_devices)):
        runs = CompiledRuns(learner)
        trace_s = runs.compile()
        compiled = clock()
        one = np.ones(1, np.int32)
        state, metrics = runs.init([jax.random.key(0)])
        state, metrics = jax.block_until_ready(runs.train(state, one, metrics))
        total_s = time.time() - asked["started"]
        for _ in range(NUM_UPDATES - 1):
            state, metrics = jax.block_until_ready(runs.train(state, one, metrics))
    result = {
        "import_jax_s": jax_imported - began,
        "import_s": imported - jax_imported,
        "build_s": built - imported,
        "trace_s": trace_s,
        "compile_s": compiled - built,
        "total_s": total_s,
        "peak_memory_mb": peak_memory_mb(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
