#!/usr/bin/env bash
# lbforaging 2.0.0, rware 2.0.0, gymnasium 1.2.2: a time limit is told as a termination.
#
# In Gymnasium's interface an episode that is cut by a limit is truncated, so that the value of what
# would have come next still counts; terminated is what ended by the rules. Both packages return the
# five values of that interface, but at their limit of steps it is the first flag that is set, and
# the second is always False. With food left and no delivery made, the learner is told that the world
# has ended. Neither has the limit in its `spec`. Agents that stay where they are, Python 3.11:
#
#     Foraging-8x8-2p-1f-v3: step 50, terminated True, truncated False, spec's limit None
#     rware-tiny-2ag-v2: step 500, terminated True, truncated False, spec's limit None
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    lbforaging==2.0.0 rware==2.0.0 gymnasium==1.2.2
cat >"$place/try.py" <<'PY'
import gymnasium
import lbforaging  # registers the environments
import rware

for env_id in ("Foraging-8x8-2p-1f-v3", "rware-tiny-2ag-v2"):
    env = gymnasium.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    step, terminated, truncated = 0, False, False
    while not (terminated or truncated):
        _, _, terminated, truncated, _ = env.step((0, 0))
        step += 1
    print(
        f"{env_id}: step {step}, terminated {bool(terminated)}, truncated {bool(truncated)}, "
        f"spec's limit {env.spec.max_episode_steps}"
    )
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="Foraging-8x8-2p-1f-v3: step 50, terminated True, truncated False, spec's limit None
rware-tiny-2ag-v2: step 500, terminated True, truncated False, spec's limit None"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
