#!/usr/bin/env bash
# rlax 0.1.9 on a CPU: the inverse of its value transform gives small values the other sign.
#
# `signed_hyperbolic` squashes returns for value functions with rewards of all sizes, and
# `signed_parabolic`, documented as its inverse, brings predictions back. In float32 the inverse
# takes the difference of numbers around 500, whose digits end at 0.00003, and the square of the rest
# less 1. So it has steps of 0.00006: it turns 0.00001 into -0.00006, and 0.0001 into 0.00006. The
# transform itself is within 1% there. One would expect errors in the last digits of a number, as for
# large values. Where rewards are small or far away, a predicted gain can so become a loss, and the
# values of two actions the same. There and back, Python 3.11:
#
#     value 1e-05: transformed 5e-06, back -6.1e-05
#     value 0.0001: transformed 5e-05, back 6.1e-05
#     value 10: transformed 2.3, back 10
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    rlax==0.1.9 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax.numpy as jnp
import rlax

for value in (1e-5, 1e-4, 10.0):
    transformed = rlax.signed_hyperbolic(jnp.float32(value))
    back = rlax.signed_parabolic(transformed)
    print(f"value {value:g}: transformed {transformed:.2g}, back {back:.2g}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="value 1e-05: transformed 5e-06, back -6.1e-05
value 0.0001: transformed 5e-05, back 6.1e-05
value 10: transformed 2.3, back 10"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
