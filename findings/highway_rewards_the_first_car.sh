#!/usr/bin/env bash
# highway-env 1.12.1: with several controlled cars, reward and end are those of the first one alone.
#
# `controlled_vehicles`, `MultiAgentAction` and `MultiAgentObservation` give each car an action and an
# observation. But `step` returns one number, and it is the reward of the first car: not a sum, nor
# a mean. So are `terminated` and all of `info`. Another car may crash: nothing is subtracted, the
# game goes on, and `info["crashed"]` is False. A team trained on this reward has one car that learns
# and others whose actions earn nothing. One would expect the reward of all, or one for each car. The
# first of two cars drives alike, the second in three ways, 6 steps, Python 3.11:
#
#     second idle: crashed False, speed 25; reward 5.2, terminated False, info's crashed False
#     second slower: crashed False, speed 20; reward 5.2, terminated False, info's crashed False
#     second faster: crashed True, speed 1; reward 5.2, terminated False, info's crashed False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    highway-env==1.12.1 gymnasium==1.4.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import gymnasium
import highway_env  # noqa: F401

IDLE, FASTER, SLOWER = 1, 3, 4
config = {
    "controlled_vehicles": 2,
    "vehicles_count": 3,
    "observation": {"type": "MultiAgentObservation", "observation_config": {"type": "Kinematics"}},
    "action": {"type": "MultiAgentAction", "action_config": {"type": "DiscreteMetaAction"}},
}
env = gymnasium.make("highway-v0", config=config)
for name, second in (("idle", IDLE), ("slower", SLOWER), ("faster", FASTER)):
    env.reset(seed=3)
    total, over = 0.0, False
    for _ in range(6):
        _, reward, terminated, _, info = env.step((IDLE, second))
        total, over = total + reward, over or terminated
    car = env.unwrapped.controlled_vehicles[1]
    print(
        f"second {name}: crashed {car.crashed}, speed {car.speed:.0f}; reward {total:.1f}, "
        f"terminated {over}, info's crashed {info['crashed']}"
    )
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py | grep ^second)
expected="second idle: crashed False, speed 25; reward 5.2, terminated False, info's crashed False
second slower: crashed False, speed 20; reward 5.2, terminated False, info's crashed False
second faster: crashed True, speed 1; reward 5.2, terminated False, info's crashed False"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
