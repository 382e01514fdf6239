#!/usr/bin/env bash
# rlax 0.1.9: a squashed Gaussian cannot act near the bounds, however large its mean.
#
# `squashed_gaussian` draws from a Gaussian and maps the number into the action's bounds by tanh. Before
# it does, it also takes the tanh of the mean that it is given. So the Gaussian lies between -1 and 1,
# and the action is tanh of that: at most 0.76 of the way to a bound, but for the noise. Where the best
# action is a bound, such as full throttle, a policy gradient raises the mean for ever; only more noise
# reaches further. One would expect the mean to be squashed once. Actions in [-2, 2] by mean, with the
# least noise that it allows, 1,000 draws, rounded, Python 3.11:
#
#     mean 1: action 1.3, tanh once 1.5
#     mean 10: action 1.5, tanh once 2.0
#     mean 1000: action 1.5, tanh once 2.0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    rlax==0.1.9 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
import rlax
from dm_env.specs import BoundedArray

bounds = BoundedArray((1,), np.float32, minimum=-2, maximum=2)
policy = rlax.squashed_gaussian()
for mean in (1, 10, 1000):
    means, log_deviations = jnp.full((1000, 1), float(mean)), jnp.full((1000, 1), -10.0)
    actions = policy.sample(jax.random.key(0), means, log_deviations, bounds)
    print(f"mean {mean}: action {actions.mean():.1f}, tanh once {2 * np.tanh(mean):.1f}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="mean 1: action 1.3, tanh once 1.5
mean 10: action 1.5, tanh once 2.0
mean 1000: action 1.5, tanh once 2.0"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
