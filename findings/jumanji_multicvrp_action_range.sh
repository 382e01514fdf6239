#!/usr/bin/env bash
# jumanji 1.1.2: the action specification of MultiCVRP has one node more than there is.
#
# With 6 customers there are 7 nodes, 0 to 6, and the mask has 7 options, but the specification's
# maximum, which is included, is 7. So whoever draws actions from it, or counts options by it, plays
# node 7 as well. That is neither an error nor ignored: JAX reads the demand of node 6 there, and the
# vehicle pays for it with its capacity, but it does not deliver, since the write is dropped. One would
# expect a maximum of 6, as specifications of choices elsewhere in Jumanji have. Seen with Python 3.11:
#
#     options: mask 7 specification 8
#     node 6: capacity used True, delivered True
#     node 7: capacity used True, delivered False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jumanji==1.1.2 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
from jumanji.environments import MultiCVRP
from jumanji.environments.routing.multi_cvrp.generator import UniformRandomGenerator

env = MultiCVRP(UniformRandomGenerator(num_customers=6, num_vehicles=2))
print("options: mask", env.observation_spec.action_mask.shape[-1],
      "specification", 1 + int(env.action_spec.maximum))
state, _ = env.reset(jax.random.key(0))
for node in (6, 7):
    after, _ = env.step(state, jnp.array([node, 0], jnp.int16))
    used = (state.vehicles.capacities - after.vehicles.capacities)[0] > 0
    delivered = (state.nodes.demands - after.nodes.demands).sum() > 0
    print(f"node {node}: capacity used {bool(used)}, delivered {bool(delivered)}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected=$'options: mask 7 specification 8
node 6: capacity used True, delivered True
node 7: capacity used True, delivered False'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
