#!/usr/bin/env bash
# jumanji 1.1.2: an agent of Connector whose discount is 0 goes on losing rewards.
#
# Rewards and discounts of Connector are one for each agent. A discount of 0 says that nothing follows
# for this agent, and Connector gives it to those that are connected or blocked while the others go
# on. But a blocked agent still gets -0.03 at every step until the episode ends. Whoever stops an
# agent's return where its discount is 0 therefore learns from other returns than whoever sums its
# rewards, as Jumanji's own episode returns do. Seen with Python 3.11, playing at random among legal
# actions:
#
#     connected, after a discount of 0: rewards [0.0]
#     blocked, after a discount of 0: rewards [-0.03]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jumanji==1.1.2 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments import Connector
from jumanji.environments.routing.connector.generator import RandomWalkGenerator

env = Connector(RandomWalkGenerator(grid_size=5, num_agents=3), time_limit=12)
step = jax.jit(env.step)
after = {"connected": [], "blocked": []}
for seed in range(20):
    state, seen = env.reset(jax.random.key(seed))
    rng, over = np.random.default_rng(seed), np.zeros(3, bool)
    while not seen.last():
        mask = np.asarray(seen.observation.action_mask)
        state, seen = step(state, jnp.asarray((rng.random(mask.shape) * mask).argmax(-1)))
        for agent in np.flatnonzero(over):
            kind = "connected" if state.agents.connected[agent] else "blocked"
            after[kind].append(round(float(seen.reward[agent]), 2))
        over |= np.asarray(seen.discount) == 0
for kind, rewards in after.items():
    print(f"{kind}, after a discount of 0: rewards {sorted(set(rewards))}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected=$'connected, after a discount of 0: rewards [0.0]
blocked, after a discount of 0: rewards [-0.03]'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
