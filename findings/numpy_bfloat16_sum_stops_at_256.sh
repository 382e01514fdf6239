#!/usr/bin/env bash
# NumPy 2.4.6 with ml_dtypes 0.6.0: a sum of bfloat16 ones stops at 256.
#
# `np.asarray` of a JAX array in bfloat16 is a NumPy array of the type that ml_dtypes adds. NumPy sums
# it in that very type, one number after the other. bfloat16 has 8 digits in base 2, so that 256 + 1 is
# 256 again, and whatever comes after adds nothing. The mean of 1,000 rewards of 1 is 0.256, and their
# standard deviation 0.5. JAX sums bfloat16 in float32, and NumPy does as much for its own float16. One
# would expect the same mean of the same array. `dtype=np.float32` helps. 1,000 ones, Python 3.11:
#
#     JAX, bfloat16: sum 1000, mean 1, deviation 0
#     NumPy, bfloat16: sum 256, mean 0.256, deviation 0.504
#     NumPy, float16: sum 1000, mean 1, deviation 0
#     NumPy, bfloat16 as float32: sum 1000, mean 1, deviation 0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    numpy==2.4.6 ml-dtypes==0.6.0 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax.numpy as jnp
import numpy as np

ones = jnp.ones(1000, jnp.bfloat16)
ways = {
    "JAX, bfloat16": (ones, {}),
    "NumPy, bfloat16": (np.asarray(ones), {}),
    "NumPy, float16": (np.asarray(ones.astype(jnp.float16)), {}),
    "NumPy, bfloat16 as float32": (np.asarray(ones), {"dtype": np.float32}),
}
for name, (numbers, options) in ways.items():
    found = (float(getattr(numbers, of)(**options)) for of in ("sum", "mean", "std"))
    print("{}: sum {:.3g}, mean {:.3g}, deviation {:.3g}".format(name, *found).replace("1e+03", "1000"))
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="JAX, bfloat16: sum 1000, mean 1, deviation 0
NumPy, bfloat16: sum 256, mean 0.256, deviation 0.504
NumPy, float16: sum 1000, mean 1, deviation 0
NumPy, bfloat16 as float32: sum 1000, mean 1, deviation 0"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
