#!/usr/bin/env bash
# gymnasium 1.4.0: for vectors, RecordEpisodeStatistics forgets every episode where one is reset.
#
# With `AutoresetMode.DISABLED` whoever steps a vector of environments also resets those that have
# ended, by `reset(options={"reset_mask": ended})`. The wrapper is to begin their returns and lengths
# anew. But it looks for the mask after the vector has taken it out of the dictionary, does not find it,
# and sets those of all environments to 0. What the others earned since they began is lost, and what is
# reported for them is the end of an episode. Nothing warns. With the wrapper around each environment
# instead, before the vector is made, all is counted. One would expect the same lengths of the same
# episodes. Two environments whose episodes have 3 and 4 steps, 12 steps, Python 3.11:
#
#     NEXT_STEP: [3, 3, 3] and [4, 4]
#     SAME_STEP: [3, 3, 3, 3] and [4, 4, 4]
#     DISABLED: [3, 2, 1, 3] and [1, 2, 3]
#     DISABLED, each wrapped: [3, 3, 3, 3] and [4, 4, 4]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    gymnasium==1.4.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import functools

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics


class Wait(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, steps):
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.steps
        return 0, {}

    def step(self, action):
        self.left -= 1
        return 0, 1.0, self.left == 0, False, {}


def lengths(mode, wrap_all=RecordEpisodeStatistics, wrap_each=lambda env: env):
    envs = [functools.partial(lambda steps: wrap_each(Wait(steps)), steps) for steps in (3, 4)]
    envs = wrap_all(SyncVectorEnv(envs, autoreset_mode=mode))
    envs.reset(seed=0)
    found = [], []
    for _ in range(12):
        *_, ended, _, info = envs.step(np.zeros(2, int))
        for env in np.flatnonzero(ended):
            found[env].append(int(info["episode"]["l"][env]))
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    return f"{found[0]} and {found[1]}"


for mode in AutoresetMode:
    print(f"{mode.name}: {lengths(mode)}")
each = gymnasium.wrappers.RecordEpisodeStatistics
print(f"DISABLED, each wrapped: {lengths(AutoresetMode.DISABLED, lambda envs: envs, each)}")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="NEXT_STEP: [3, 3, 3] and [4, 4]
SAME_STEP: [3, 3, 3, 3] and [4, 4, 4]
DISABLED: [3, 2, 1, 3] and [1, 2, 3]
DISABLED, each wrapped: [3, 3, 3, 3] and [4, 4, 4]"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
