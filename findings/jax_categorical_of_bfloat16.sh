#!/usr/bin/env bash
# JAX 0.10.2: `jax.random.categorical` of bfloat16 logits prefers options that come first.
#
# An action is the largest of logits plus Gumbel noise, and the noise has the type of the logits. In
# bfloat16 it takes so few values that options often tie, and of those that tie the first one wins. So
# equally likely options are not drawn equally often: of 100, the first comes more than twice as often
# as the last. With `mode="high"`, for which rare options are the documented reason, they are equal
# again, as they are in float32. One would expect a policy in bfloat16 to have rounded probabilities,
# but no order among equal ones. Draws of an option, as multiples of its probability, 400,000 draws:
#
#     float32: first tenth 1.0, last tenth 1.0
#     bfloat16: first tenth 1.4, last tenth 0.7
#     bfloat16, mode="high": first tenth 1.0, last tenth 1.0
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

NUM_OPTIONS, NUM_DRAWS = 100, 400_000
for dtype, mode in (("float32", None), ("bfloat16", None), ("bfloat16", "high")):
    logits = jnp.zeros(NUM_OPTIONS, dtype)
    drawn = jax.random.categorical(jax.random.key(0), logits, shape=(NUM_DRAWS,), mode=mode)
    often = np.bincount(drawn, minlength=NUM_OPTIONS) * NUM_OPTIONS / NUM_DRAWS
    title = dtype if mode is None else f'{dtype}, mode="{mode}"'
    print(f"{title}: first tenth {often[:10].mean():.1f}, last tenth {often[-10:].mean():.1f}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected='float32: first tenth 1.0, last tenth 1.0
bfloat16: first tenth 1.4, last tenth 0.7
bfloat16, mode="high": first tenth 1.0, last tenth 1.0'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
