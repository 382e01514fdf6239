#!/usr/bin/env bash
# jaxmarl 0.2.0: the two versions of Overcooked number the directions of an action otherwise.
#
# `overcooked` has up, down, right, left, as has the game that it is made after; `overcooked_v2`,
# which a warning of the first recommends in its place, has right, down, left, up. Both go on with
# stay and interact, and both have six actions. A policy, a script or a recording of the one plays in
# the other without an error, and goes elsewhere. Python 3.11:
#
#     overcooked: 0 up, 1 down, 2 right, 3 left
#     overcooked_v2: 0 right, 1 down, 2 left, 3 up
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jaxmarl==0.2.0 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import jaxmarl
from jaxmarl.environments.overcooked_v2.common import Direction

NAMES = {(0, -1): "up", (0, 1): "down", (1, 0): "right", (-1, 0): "left"}
FACING = {  # where the first agent looks to after it has moved
    "overcooked": lambda state: NAMES[tuple(state.agent_dir[0].tolist())],
    "overcooked_v2": lambda state: Direction(int(state.agents.dir[0])).name.lower(),
}
for env_id, facing in FACING.items():
    env = jaxmarl.make(env_id)
    step = jax.jit(env.step_env)
    _, state = env.reset(jax.random.key(0))
    found = []
    for action in range(4):
        actions = {"agent_0": jnp.int32(action), "agent_1": jnp.int32(4)}
        found.append(f"{action} {facing(step(jax.random.key(0), state, actions)[1])}")
    print(f"{env_id}:", ", ".join(found))
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep ^overcooked)
expected="overcooked: 0 up, 1 down, 2 right, 3 left
overcooked_v2: 0 right, 1 down, 2 left, 3 up"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
