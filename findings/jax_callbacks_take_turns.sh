#!/usr/bin/env bash
# JAX 0.10.2 on a CPU: two independent host callbacks of one compiled program never run at once.
#
# XLA may run what does not depend on each other in any order, and a callback that waits releases the
# interpreter, so two `pure_callback` without a common value could wait side by side. They do not: on
# one device they take turns, also as the bodies of two loops. The same two callbacks on two CPU
# devices of one program, by `shard_map`, wait at the same time. Seconds for callbacks that sleep .3
# seconds each, rounded to multiples of .3:
#
#     one: 1, two on a device: 2, two on two devices: 1
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SLEEP_S = 0.3
jax.config.update("jax_num_cpu_devices", 2)


def wait(x):
    time.sleep(SLEEP_S)
    return np.asarray(x) + 1


def call(x):
    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def sleeps(function, *args):
    """Return how many times the sleep a call takes, at best of three."""
    jax.block_until_ready(function(*args))
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        seconds.append(time.perf_counter() - began)
    return round(min(seconds) / SLEEP_S)


x = jnp.zeros(2)
mesh = Mesh(np.array(jax.devices()), ("d",))
spread = jax.device_put(jnp.zeros((2, 2)), NamedSharding(mesh, PartitionSpec("d")))
on_two = jax.shard_map(
    call, mesh=mesh, in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d"), check_vma=False
)
both = jax.jit(lambda a, b: (call(a), call(b)))
print(
    f"one: {sleeps(jax.jit(call), x)}, two on a device: {sleeps(both, x, x + 1)}, "
    f"two on two devices: {sleeps(jax.jit(on_two), spread)}"
)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected='one: 1, two on a device: 2, two on two devices: 1'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
