#!/usr/bin/env bash
# xminigrid 0.9.3: at its time limit a step is the last, and the step after it is not.
#
# A limit is told as dm_env has it: the last step with a discount of 1, where a goal has 0. But it is
# the last only where the clock equals the limit. A batch whose episodes stand until all are over, or
# a loop that looks for an end every few steps, therefore meets an episode that seems to be in the
# middle, and its reward for a goal goes on to fall, to below zero. Turning on the spot and then
# walking to the goal, with a limit of 5 steps, Python 3.11:
#
#     step 5: last True, discount 1.0
#     step 6: last False, discount 1.0
#     goal at step 9: last True, discount 0.0, reward -0.6
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    xminigrid==0.9.3 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import xminigrid

FORWARD, RIGHT, LEFT = range(3)
env, params = xminigrid.make("MiniGrid-Empty-5x5")
params = params.replace(max_steps=5)
time_step = env.reset(params, jax.random.key(0))
step = jax.jit(env.step, static_argnums=0)
for number, action in enumerate((RIGHT, LEFT, RIGHT, LEFT, FORWARD, FORWARD, RIGHT, FORWARD), 1):
    time_step = step(params, time_step, action)
    if number in (5, 6):
        print(f"step {number}: last {bool(time_step.last())}, discount {float(time_step.discount)}")
while not time_step.last():
    time_step = step(params, time_step, FORWARD)
    number += 1
    assert number < 20
print(
    f"goal at step {number}: last True, discount {float(time_step.discount)}, "
    f"reward {float(time_step.reward):.1f}"
)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep -E "^(step|goal)")
echo "$found"
expected="step 5: last True, discount 1.0
step 6: last False, discount 1.0
goal at step 9: last True, discount 0.0, reward -0.6"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
