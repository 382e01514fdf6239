#!/usr/bin/env bash
# gymnasium 1.2.2: for NormalizeReward the last reward of an episode is the first of the next one.
#
# The wrapper divides rewards by the deviation of a discounted sum of them. The sum of an episode
# would begin with the episode. But at an end the sum is cleared before that step's reward is added,
# instead of after it, so that a reward for winning is carried into the next game, and what led up to
# it is not counted with it. At a truncation it is not cleared at all, so that the episodes of an
# environment that has only a time limit are one endless episode, whose scale grows to another one.
# The wrapper for vectors has the same line. The sum after each step of two episodes of three steps
# that pay 1, 2 and 4, with a discount of 0.5, Python 3.11:
#
#     terminated: 1 2.5 4, 3 3.5 4; of each episode alone: 1 2.5 5.25
#     truncated: 1 2.5 5.25, 3.625 3.8125 5.90625; of each episode alone: 1 2.5 5.25
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    gymnasium==1.2.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import NormalizeReward

GAMMA, REWARDS = 0.5, (1.0, 2.0, 4.0)


class Walk(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (1,)), Discrete(2)

    def __init__(self, is_truncated):
        self.is_truncated = is_truncated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = REWARDS[self.clock]
        self.clock += 1
        over = self.clock == len(REWARDS)
        ends = over and not self.is_truncated, over and self.is_truncated
        return np.zeros(1, np.float32), reward, *ends, {}


def play(env):
    """Return the wrapper's sum after each step of an episode."""
    env.reset()
    sums, over = [], False
    while not over:
        *_, terminated, truncated, _ = env.step(0)
        sums.append(f"{env.discounted_reward.item():g}")
        over = terminated or truncated
    return " ".join(sums)


for name, is_truncated in (("terminated", False), ("truncated", True)):
    env = NormalizeReward(Walk(is_truncated), gamma=GAMMA)
    alone, total = [], 0.0
    for reward in REWARDS:
        total = total * GAMMA + reward
        alone.append(f"{total:g}")
    print(f"{name}: {play(env)}, {play(env)}; of each episode alone: {' '.join(alone)}")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="terminated: 1 2.5 4, 3 3.5 4; of each episode alone: 1 2.5 5.25
truncated: 1 2.5 5.25, 3.625 3.8125 5.90625; of each episode alone: 1 2.5 5.25"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
