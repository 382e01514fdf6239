#!/usr/bin/env bash
# optax 0.2.8: Adam under `inject_hyperparams` makes bfloat16 parameters NaN at its first update.
#
# `inject_hyperparams` is there so that a learning rate can be read and set during training. It also
# keeps the other numbers of the optimiser in its state, in the type of the parameters. In bfloat16,
# Adam's b2 of 0.999 is 1: nothing is added to the second moment, its bias correction divides 0 by 0,
# and all parameters are NaN. Adam itself, with the same numbers, is fine, since a Python float takes
# no type of its own. `hyperparam_dtype=jnp.float32` helps. A gradient of 0.5, Python 3.11:
#
#     adam: update -0.001
#     inject_hyperparams(adam): b2 1.0, update nan
#     inject_hyperparams(adam, hyperparam_dtype=float32): b2 0.999, update -0.001
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    optax==0.2.8 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax.numpy as jnp
import optax

weights, gradient = jnp.ones(4, jnp.bfloat16), jnp.full(4, 0.5, jnp.bfloat16)
inject, float32 = optax.inject_hyperparams, jnp.float32
for name, optimiser in (
    ("adam", optax.adam(1e-3)),
    ("inject_hyperparams(adam)", inject(optax.adam)(1e-3)),
    (
        "inject_hyperparams(adam, hyperparam_dtype=float32)",
        inject(optax.adam, hyperparam_dtype=float32)(1e-3),
    ),
):
    state = optimiser.init(weights)
    update, state = optimiser.update(gradient, state, weights)
    b2 = f"b2 {float(state.hyperparams['b2']):.4}, " if "inject" in name else ""
    print(f"{name}: {b2}update {float(update[0]):.3f}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="adam: update -0.001
inject_hyperparams(adam): b2 1.0, update nan
inject_hyperparams(adam, hyperparam_dtype=float32): b2 0.999, update -0.001"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
