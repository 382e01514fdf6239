#!/usr/bin/env bash
# safetensors 0.8.0: a transposed NumPy array is saved with its shape and another order of numbers.
#
# `safetensors.numpy.save_file` writes an array's memory as it lies, under the array's shape. A
# transposed array, or every second row of one, is a view of memory in another order, so that other
# numbers come back. The docstring asks for contiguous arrays, but nothing checks it: 0.7.0 wrote all
# arrays correctly, and `safetensors.torch` raises for such tensors. `kernel = weight.T` is what a
# conversion from PyTorch's layers to flax's does. `np.ascontiguousarray` before saving helps. What
# is loaded again, Python 3.11:
#
#     0.7.0: saved [[0, 3], [1, 4], [2, 5]], loaded [[0, 3], [1, 4], [2, 5]]
#     0.8.0: saved [[0, 3], [1, 4], [2, 5]], loaded [[0, 1], [2, 3], [4, 5]]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6
cat >"$place/try.py" <<'PY'
import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

weight = np.arange(6).reshape(2, 3)
save_file({"kernel": weight.T}, "policy.safetensors")
loaded = load_file("policy.safetensors")["kernel"]
print(f"{safetensors.__version__}: saved {weight.T.tolist()}, loaded {loaded.tolist()}")
PY
found=$(for version in 0.7.0 0.8.0; do
    "$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        safetensors=="$version" &&
        (cd "$place" && venv/bin/python -W ignore try.py)
done)
expected="0.7.0: saved [[0, 3], [1, 4], [2, 5]], loaded [[0, 3], [1, 4], [2, 5]]
0.8.0: saved [[0, 3], [1, 4], [2, 5]], loaded [[0, 1], [2, 3], [4, 5]]"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
