#!/usr/bin/env bash
# pogema 1.4.0: its seed makes all episodes one and the same, and `reset(seed=...)` does nothing.
#
# POGEMA draws a maze, the agents' places and their targets. In Gymnasium's interface, which it has, a
# seed decides a series of episodes: `reset(seed=...)` begins the series, and each `reset()` after it
# draws the next one. Here `reset` draws the episode first and stores the seed afterwards, where nobody
# reads it. The seed that counts is `GridConfig(seed=...)`, and with it every `reset` draws the same
# maze again: a team that was trained with a seed has seen a single one. Without it, nothing can be
# played again. Nothing warns. The numbers of different episodes among 20 resets of an environment,
# and whether a second environment begins alike, Python 3.11:
#
#     GridConfig(seed=None), reset(seed=0) at first: different 20, alike False
#     GridConfig(seed=0), reset(): different 1, alike True
#     GridConfig(seed=0), reset(seed=0..19): different 1, alike True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    pogema==1.4.0 gymnasium==0.28.1 numpy==1.26.4 pydantic==1.9.1
cat >"$place/try.py" <<'PY'
import numpy as np
from pogema import GridConfig, pogema_v0


def episodes(config_seed, seeds):
    env = pogema_v0(GridConfig(num_agents=2, size=8, density=0.3, seed=config_seed))
    return [np.array(env.reset(seed=seed)[0]).tobytes() for seed in seeds]


for config_seed, name, seeds in (
    (None, "reset(seed=0) at first", [0] + [None] * 19),
    (0, "reset()", [None] * 20),
    (0, "reset(seed=0..19)", range(20)),
):
    one, other = episodes(config_seed, seeds), episodes(config_seed, seeds)
    print(f"GridConfig(seed={config_seed}), {name}: different {len(set(one))}, alike {one == other}")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="GridConfig(seed=None), reset(seed=0) at first: different 20, alike False
GridConfig(seed=0), reset(): different 1, alike True
GridConfig(seed=0), reset(seed=0..19): different 1, alike True"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
