#!/usr/bin/env bash
# brax 0.14.2: an environment that resets itself begins every episode in the same state.
#
# `reset(key)` draws a first state, and `auto_reset=True`, the default of `envs.create`, goes back to
# that very state at each end, without another draw. Each copy of a batch thus trains on one first
# state for as long as nobody calls `reset` again. The observation that an episode ended with is
# lost, too. Ends by the time limit can be told: `info["truncation"]` is 1 at them. Random actions,
# 60 steps, Python 3.11:
#
#     ends: 12, begun from the first state of all: 12, different first states of new resets: 12
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    brax==0.14.2 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from brax import envs

env = envs.create("inverted_pendulum", episode_length=30)
step = jax.jit(env.step)
state = env.reset(jax.random.key(0))
first, draw, ends, same = np.asarray(state.obs), np.random.default_rng(0), 0, 0
for _ in range(60):
    state = step(state, jnp.asarray(draw.uniform(-1, 1, env.action_size)))
    ends += bool(state.done)
    same += bool(state.done) and np.array_equal(state.obs, first)
others = {np.asarray(env.reset(jax.random.key(seed)).obs).tobytes() for seed in range(ends)}
print(
    f"ends: {ends}, begun from the first state of all: {same}, "
    f"different first states of new resets: {len(others)}"
)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep ^ends)
echo "$found"
[[ "$found" =~ ^ends:\ ([0-9]+),\ begun\ from\ the\ first\ state\ of\ all:\ ([0-9]+),\ different\ first\ states\ of\ new\ resets:\ ([0-9]+)$ ]] &&
    [ "${BASH_REMATCH[1]}" -gt 3 ] && [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ] &&
    [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[3]}" ] ||
    { echo "the behaviour has changed" >&2; exit 1; }
