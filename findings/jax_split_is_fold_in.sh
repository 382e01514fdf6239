#!/usr/bin/env bash
# JAX 0.10.2: `split(key, n)[i]` is the same key as `fold_in(key, i)`.
#
# Both are ways to make new keys of one, and code mixes them: `split` for environments and `fold_in`
# with the number of the step, of the same key. Then environment 3 and step 3 draw the same numbers.
# With `jax_threefry_partitionable=False`, the default before JAX 0.5, no key is the same. The check
# that is there to find keys that are used twice, `jax_debug_key_reuse`, says nothing. One would expect
# two functions to make different keys. Pairs that are equal, of eight, Python 3.11:
#
#     equal keys: 8 of 8, with jax_threefry_partitionable=False: 0 of 8
#     drawn with jax_debug_key_reuse: -0.6219, -0.6219
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import jax
import numpy as np


def count_equal():
    key = jax.random.key(0)
    split = jax.random.key_data(jax.random.split(key, 8))
    folded = [jax.random.key_data(jax.random.fold_in(key, index)) for index in range(8)]
    return sum(np.array_equal(*pair) for pair in zip(split, folded, strict=True))


equal = count_equal()
with jax.threefry_partitionable(False):
    equal_before = count_equal()
print(f"equal keys: {equal} of 8, with jax_threefry_partitionable=False: {equal_before} of 8")
with jax.debug_key_reuse(True):
    key = jax.random.key(0)
    of_environment, of_step = jax.random.split(key, 8)[3], jax.random.fold_in(key, 3)
    drawn = (f"{float(jax.random.normal(each)):.4f}" for each in (of_environment, of_step))
    print("drawn with jax_debug_key_reuse:", ", ".join(drawn))
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="equal keys: 8 of 8, with jax_threefry_partitionable=False: 0 of 8
drawn with jax_debug_key_reuse: -0.6219, -0.6219"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
