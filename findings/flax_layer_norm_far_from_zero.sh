#!/usr/bin/env bash
# flax 0.12.8: LayerNorm of features that are far from 0 has outputs of thousands.
#
# A layer norm's outputs have a standard deviation of 1, whatever the mean of the inputs. By default
# flax computes the variance as the mean of squares minus the square of the mean, in float32. For
# features around 10,000 with a deviation of 1, such as raw positions or times, all digits cancel:
# where the difference is 0 or below, inputs are divided by the root of epsilon and so multiplied by
# 1,000. No NaN shows it, and inputs around 1,000 are nearly right. `use_fast_variance=False` is right
# for all. The deviation and the largest of 64,000 outputs, each to one digit, Python 3.11:
#
#     mean 0: deviation 1, largest 4
#     mean 10000: deviation 800, largest 4000
#     mean 10000, use_fast_variance=False: deviation 1, largest 4
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    flax==0.12.8 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import flax.linen as nn
import jax
import jax.numpy as jnp

for mean, is_fast in ((0, True), (10_000, True), (10_000, False)):
    x = mean + jax.random.normal(jax.random.key(1), (1000, 64))
    norm = nn.LayerNorm(use_fast_variance=is_fast)
    y = norm.apply(norm.init(jax.random.key(0), x), x)
    deviation, largest = (float(f"{float(number):.1g}") for number in (y.std(), jnp.abs(y).max()))
    title = f"mean {mean}" if is_fast else f"mean {mean}, use_fast_variance=False"
    print(f"{title}: deviation {deviation:.0f}, largest {largest:.0f}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="mean 0: deviation 1, largest 4
mean 10000: deviation 800, largest 4000
mean 10000, use_fast_variance=False: deviation 1, largest 4"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
