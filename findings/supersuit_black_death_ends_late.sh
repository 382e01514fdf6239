#!/usr/bin/env bash
# supersuit 3.11.0: with `black_death_v3` an episode has a step more, and a time limit is a termination.
#
# The wrapper keeps agents that have died, with observations of zeros and rewards of 0, until the
# episode ends. It takes an end for one only if all agents are terminated and also truncated, which is
# rarely so. So the last step is told as one in the middle. A step after it, for which the environment
# gets no actions, has zeros and then both flags for all. The last observation, from which the value of
# a truncated episode would be bootstrapped, is no longer the last, and the time limit is no longer
# told apart. Nobody dies in this task: one would expect the wrapper to change nothing. Python 3.11:
#
#     as it is, step 2: observation zeros False, terminated False, truncated False
#     as it is, step 3: observation zeros False, terminated False, truncated True
#     black_death_v3, step 3: observation zeros False, terminated False, truncated False
#     black_death_v3, step 4: observation zeros True, terminated True, truncated True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    supersuit==3.11.0 mpe2==1.1.1 pettingzoo==1.27.0 gymnasium==1.2.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import supersuit
from mpe2 import simple_spread_v3

for name, wrap in (("as it is", lambda env: env), ("black_death_v3", supersuit.black_death_v3)):
    env = wrap(simple_spread_v3.parallel_env(max_cycles=3))
    env.reset(seed=0)
    steps = []
    while env.agents:
        seen, _, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 1))
        steps.append(
            f"{name}, step {len(steps) + 1}: observation zeros {not seen['agent_0'].any()}, "
            f"terminated {bool(terminated['agent_0'])}, truncated {bool(truncated['agent_0'])}"
        )
    print(*steps[-2:], sep="\n")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py | grep step)
expected="as it is, step 2: observation zeros False, terminated False, truncated False
as it is, step 3: observation zeros False, terminated False, truncated True
black_death_v3, step 3: observation zeros False, terminated False, truncated False
black_death_v3, step 4: observation zeros True, terminated True, truncated True"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
