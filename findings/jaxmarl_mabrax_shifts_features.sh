#!/usr/bin/env bash
# jaxmarl 0.2.0 with brax 0.14.2: MABrax's `homogenisation_method="max"` gives no one-hot number.
#
# Limbs that share weights are to have observations of one size: the agent's number, one-hot, then
# its own features, then zeros. The size is that. But the features begin right after the agent's own
# one, not after all of the numbers. So they overwrite the rest of the number, and stand one place
# further on for each agent: what is a height for one is an angle for the next. A network whose
# weights all agents share has to tell apart what it cannot, and networks trained on one limb do not
# fit another. One would expect features in the same places. Four limbs of an ant, whose body has
# been set to 100, 101, and so on, first and last places of 22, Python 3.11:
#
#     agent_0: 1 100 101 102 103 ... 0 0 0
#     agent_1: 0 1 100 101 102 ... 122 0 0
#     agent_2: 0 0 1 100 101 ... 123 124 0
#     agent_3: 0 0 0 1 100 ... 118 125 126
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jaxmarl==0.2.0 brax==0.14.2 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax.numpy as jnp
import jaxmarl


def numbers(features):
    return " ".join(str(int(feature)) for feature in features)


env = jaxmarl.make("ant_4x2", homogenisation_method="max")
body = jnp.arange(100.0, 100 + env.env.observation_size)
for agent, seen in env.map_global_obs_to_agents(body).items():
    assert seen.shape == (22,), seen.shape
    print(f"{agent}: {numbers(seen[:5])} ... {numbers(seen[-3:])}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py 2>/dev/null | grep ^agent)
expected="agent_0: 1 100 101 102 103 ... 0 0 0
agent_1: 0 1 100 101 102 ... 122 0 0
agent_2: 0 0 1 100 101 ... 123 124 0
agent_3: 0 0 0 1 100 ... 118 125 126"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
