#!/usr/bin/env bash
# chex 0.1.92: NaN passes `assert_scalar_positive`, and also `assert_scalar_negative`.
#
# The assertion is documented to raise unless its argument is strictly positive. It raises where the
# argument is at most 0, which is not the same for NaN, of which neither is true. `assert_scalar_in`
# asks the other way round and does raise. So a learning rate, a step size or a temperature that was
# divided by 0 passes the check that stands there to stop it. Whether each accepts NaN, Python 3.11:
#
#     assert_scalar_positive: accepts nan True, accepts -1.0 False
#     assert_scalar_non_negative: accepts nan True, accepts -1.0 False
#     assert_scalar_negative: accepts nan True, accepts -1.0 True
#     assert_scalar_in(0, inf): accepts nan False, accepts -1.0 False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    chex==0.1.92 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import math

import chex


def accepts(check, number):
    try:
        check(number)
    except AssertionError:
        return False
    return True


for name, check in (
    ("assert_scalar_positive", chex.assert_scalar_positive),
    ("assert_scalar_non_negative", chex.assert_scalar_non_negative),
    ("assert_scalar_negative", chex.assert_scalar_negative),
    ("assert_scalar_in(0, inf)", lambda x: chex.assert_scalar_in(x, 0.0, math.inf)),
):
    print(f"{name}: accepts nan {accepts(check, math.nan)}, accepts -1.0 {accepts(check, -1.0)}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="assert_scalar_positive: accepts nan True, accepts -1.0 False
assert_scalar_non_negative: accepts nan True, accepts -1.0 False
assert_scalar_negative: accepts nan True, accepts -1.0 True
assert_scalar_in(0, inf): accepts nan False, accepts -1.0 False"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
