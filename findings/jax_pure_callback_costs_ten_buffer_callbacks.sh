#!/usr/bin/env bash
# JAX 0.10.2 on a CPU: a call of `pure_callback` costs over ten times one of `buffer_callback`.
#
# Both call the same Python function from a compiled loop, with a few numbers to and fro. One would
# expect the call into Python to be most of it. It is not: `pure_callback` first makes JAX arrays of
# its arguments by `device_put`, which for this loop takes about a tenth of a millisecond per call,
# while `jax.experimental.buffer_callback` hands over the program's own memory as arrays that NumPy
# reads and writes in place, in a few microseconds. The results are the same. Prints whether a call
# costs over ten times as much, medians of seven in turn:
#
#     same results: True, over ten times as much: True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

NUM_CALLS = 500


def add_one(x, y):
    return np.asarray(x) + 1, np.asarray(y) * 2


def write(context, out, x, y):
    for place, found in zip(out, add_one(x, y)):
        np.asarray(place)[...] = found


def by_pure_callback(x, y):
    return jax.pure_callback(add_one, (like(x), like(y)), x, y)


def by_buffer_callback(x, y):
    return buffer_callback(write, (like(x), like(y)))(x, y)


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def loop(call):
    return jax.jit(
        lambda x, y: jax.lax.fori_loop(0, NUM_CALLS, lambda _, both: call(*both), (x, y))
    )


args = jnp.zeros(8, jnp.int32), jnp.ones(8, jnp.int32)
loops = [loop(by_pure_callback), loop(by_buffer_callback)]
first, second = (jax.device_get(run(*args)) for run in loops)
same = all(np.array_equal(a, b) for a, b in zip(first, second))
seconds = [[], []]
for _ in range(7):
    for run, own in zip(loops, seconds):
        began = time.perf_counter()
        jax.block_until_ready(run(*args))
        own.append(time.perf_counter() - began)
ratio = statistics.median(seconds[0]) / statistics.median(seconds[1])
print(f"same results: {same}, over ten times as much: {ratio > 10}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected='same results: True, over ten times as much: True'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
