#!/usr/bin/env bash
# mpe2 1.1.1: where an agent goes by an action shows a step later, in rewards too.
#
# A step of the particle world moves all by the velocities that they had, and only then are these
# changed by forces. So the places after a step, and with them the rewards for distances, do not
# depend on the step's actions, and the last action of an episode earns nothing at all. One would
# expect an action to be paid for by what `step` returns for it. The velocity in the observation does
# change. An estimate from single steps, as with a discount of 0 or a tree of depth 1, finds all
# actions equal. The first agent's reward for each action after one step and after two, Python 3.11:
#
#     simple_spread_v3, step 1: different rewards of 5 actions 1, different observations 5
#     simple_spread_v3, step 2: different rewards of 5 actions 5, different observations 5
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    mpe2==1.1.1 pettingzoo==1.27.0 gymnasium==1.2.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
from mpe2 import simple_spread_v3

for num_steps in (1, 2):
    rewards, observations = set(), set()
    for action in range(5):
        env = simple_spread_v3.parallel_env()
        env.reset(seed=0)
        for _ in range(num_steps):
            seen, earned, *_ = env.step(dict.fromkeys(env.agents, action))
        rewards.add(float(earned["agent_0"]))
        observations.add(seen["agent_0"].tobytes())
    print(
        f"simple_spread_v3, step {num_steps}: different rewards of 5 actions {len(rewards)}, "
        f"different observations {len(observations)}"
    )
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py | grep ^simple)
expected="simple_spread_v3, step 1: different rewards of 5 actions 1, different observations 5
simple_spread_v3, step 2: different rewards of 5 actions 5, different observations 5"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
