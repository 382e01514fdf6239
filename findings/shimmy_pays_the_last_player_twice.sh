#!/usr/bin/env bash
# shimmy 2.0.1 with open-spiel 2.0: who leaves a game last is paid its last reward several times.
#
# In PettingZoo's loop, `env.last()` gives an agent what it has earned since its last turn. At the end
# agents leave one by one, each by a `step(None)`. Shimmy's adapter of OpenSpiel adds the rewards of
# the last move once more at each of these steps. So the first to leave gets its reward once, the
# second twice and the third three times, and a game of zero sum has no zero sum. One would expect
# the sums of `last()` to be OpenSpiel's returns. `env.rewards` after a move is right. Random legal
# actions, the first game that is won, Python 3.11:
#
#     tic_tac_toe: returns [1.0, -1.0], sums of last() [1.0, -2.0]
#     pig, 3 players: returns [1.0, -0.5, -0.5], sums of last() [1.0, -1.0, -1.5]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    shimmy==2.0.1 open-spiel==2.0 pettingzoo==1.27.0 gymnasium==1.2.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import random

import numpy as np
from shimmy import OpenSpielCompatibilityV0


def play(env, seed):
    """Return OpenSpiel's returns of a game, and the sums of what `last()` gave."""
    draw = random.Random(seed)
    env.reset(seed=seed)
    sums = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        sums[agent] += reward
        over = terminated or truncated
        env.step(None if over else draw.choice(np.flatnonzero(info["action_mask"]).tolist()))
    return env.game_state.returns(), list(sums.values())


for name, config in (("tic_tac_toe", None), ("pig", {"players": 3})):
    env = OpenSpielCompatibilityV0(game_name=name, config=config)
    games = (play(env, seed) for seed in range(100))
    returns, sums = next((won, sums) for won, sums in games if won[0] == 1)
    title = name if config is None else f"{name}, {config['players']} players"
    print(f"{title}: returns {returns}, sums of last() {sums}")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="tic_tac_toe: returns [1.0, -1.0], sums of last() [1.0, -2.0]
pig, 3 players: returns [1.0, -0.5, -0.5], sums of last() [1.0, -1.0, -1.5]"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
