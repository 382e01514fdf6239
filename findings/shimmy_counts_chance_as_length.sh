#!/usr/bin/env bash
# shimmy 2.0.1 with open-spiel 2.0: Kuhn poker is over after its first action, and nobody is paid.
#
# The adapter truncates a game when it has had more nodes than OpenSpiel's `max_game_length()`. That
# number does not include chance nodes, for which OpenSpiel has `max_chance_nodes_in_history()`, but
# the adapter counts them, and begins to count at 1. Kuhn poker has at most three actions: after two
# cards and one action the count is 4. All games are cut there, with returns of 0, so that nothing can
# be learned. Leduc poker is cut in its longest games, hearts after 11 actions. One would expect games
# to end by their rules. 200 games of random legal actions, Python 3.11:
#
#     kuhn_poker: max_game_length 3, most actions 1, ended by the rules 0 of 200
#     tiny_hanabi: max_game_length 2, most actions 1, ended by the rules 0 of 200
#     tic_tac_toe: max_game_length 9, most actions 9, ended by the rules 200 of 200
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    shimmy==2.0.1 open-spiel==2.0 pettingzoo==1.27.0 gymnasium==1.2.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import random

import numpy as np
import pyspiel
from shimmy import OpenSpielCompatibilityV0

NUM_GAMES = 200
for name in ("kuhn_poker", "tiny_hanabi", "tic_tac_toe"):
    env, draw, ended, most = OpenSpielCompatibilityV0(game_name=name), random.Random(0), 0, 0
    for seed in range(NUM_GAMES):
        env.reset(seed=seed)
        actions = 0
        for _ in env.agent_iter():
            _, _, terminated, truncated, info = env.last()
            over = terminated or truncated
            actions += not over
            env.step(None if over else draw.choice(np.flatnonzero(info["action_mask"]).tolist()))
        ended += env.game_state.is_terminal()
        most = max(most, actions)
    longest = pyspiel.load_game(name).max_game_length()
    print(
        f"{name}: max_game_length {longest}, most actions {most}, "
        f"ended by the rules {ended} of {NUM_GAMES}"
    )
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="kuhn_poker: max_game_length 3, most actions 1, ended by the rules 0 of 200
tiny_hanabi: max_game_length 2, most actions 1, ended by the rules 0 of 200
tic_tac_toe: max_game_length 9, most actions 9, ended by the rules 200 of 200"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
