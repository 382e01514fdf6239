#!/usr/bin/env bash
# jumanji 1.1.2: as an environment of Gymnasium, every end is truncated.
#
# `JumanjiToGymWrapper` sets Gymnasium's second flag wherever a time step is the last, whether the
# game was lost or only its time was up. So a snake that has hit the wall is terminated and truncated
# at once. Whoever bootstraps from the value of the last observation where `truncated` is set, as the
# flag is there for, gives a lost game the value of going on; one who counts truncations to choose a
# limit finds that all episodes are cut. One would expect the flag for time limits alone. Running to
# the right on a board of 12 columns, Python 3.11:
#
#     Snake: ended before step 13: True, limit 4000, terminated True, truncated True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jumanji==1.1.2 gymnasium==1.2.2 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jumanji
from jumanji.wrappers import JumanjiToGymWrapper

RIGHT = 1
env = jumanji.make("Snake-v1")
wrapped = JumanjiToGymWrapper(env)
wrapped.reset(seed=0)
step, terminated, truncated = 0, False, False
while not (terminated or truncated):
    *_, terminated, truncated, _ = wrapped.step(RIGHT)
    step += 1
print(
    f"Snake: ended before step {env.num_cols + 1}: {step <= env.num_cols}, limit {env.time_limit}, "
    f"terminated {terminated}, truncated {truncated}"
)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="Snake: ended before step 13: True, limit 4000, terminated True, truncated True"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
