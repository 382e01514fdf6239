#!/usr/bin/env bash
# JAX 0.10.2: of 17 million entries, `jax.random.choice` with `p` never draws half.
#
# With probabilities, `choice` draws one number between 0 and 1 and looks it up in their sums. In
# float32 that number has only 2^23 different values, so that however often it is called, no more than
# 8 million entries are ever drawn. Of twice or four times as many, equally likely, the same ones are
# left out in every draw. Nothing warns. So part of a large replay buffer or data set that is sampled
# by priority is never seen. Without `p` all are drawn, and with `jax_enable_x64` too. One would expect
# every entry of positive probability to be drawn. Remainders, by 4, of the entries that were drawn,
# 100,000 draws, Python 3.11:
#
#     2^23 entries, equal p: [0, 1, 2, 3]
#     2^24 entries, equal p: [1, 3]
#     2^25 entries, equal p: [2, 3]
#     2^25 entries, no p: [0, 1, 2, 3]
#     2^25 entries, equal p, jax_enable_x64: [0, 1, 2, 3]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import numpy as np


def remainders(exponent, equal=True):
    entries = 2**exponent
    p = jnp.full(entries, 1 / entries) if equal else None
    drawn = jax.random.choice(jax.random.key(0), entries, (100_000,), p=p)
    return np.unique(np.asarray(drawn) % 4).tolist()


for exponent in (23, 24, 25):
    print(f"2^{exponent} entries, equal p: {remainders(exponent)}")
print(f"2^25 entries, no p: {remainders(25, equal=False)}")
jax.config.update("jax_enable_x64", True)
print(f"2^25 entries, equal p, jax_enable_x64: {remainders(25)}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="2^23 entries, equal p: [0, 1, 2, 3]
2^24 entries, equal p: [1, 3]
2^25 entries, equal p: [2, 3]
2^25 entries, no p: [0, 1, 2, 3]
2^25 entries, equal p, jax_enable_x64: [0, 1, 2, 3]"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
