#!/usr/bin/env bash
# open-spiel 2.0: what `rewards()` says after a chance move depends on the game.
#
# `state.rewards()` are those of the transition to this state, and a game's returns their sum. In
# 2048 a chance move repeats the rewards of the move before it: summed over all states, merges count
# twice. In cooperative box pushing it is the chance move that pays, but every state between shows
# the payment before: a sum over states after actions has one payment fewer than the returns, and
# one over all states nearly twice as many. What `returns()` rises by is right in both. One game of
# random actions each, rounded, Python 3.11:
#
#     2048: returns 696.0; sum after actions 696.0, over all states 1392.0
#     coop_box_pushing: returns -60.0; sum after actions -59.9, over all states -119.9
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    open-spiel==2.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import random

import pyspiel

for name in ("2048", "coop_box_pushing"):
    game, draw = pyspiel.load_game(name), random.Random(0)
    state = game.new_initial_state()
    after_actions = over_all = 0.0
    while not state.is_terminal():
        is_chance = state.is_chance_node()
        if is_chance:
            options, chances = zip(*state.chance_outcomes())
            state.apply_action(draw.choices(options, chances)[0])
        elif state.is_simultaneous_node():
            players = range(game.num_players())
            state.apply_actions([draw.choice(state.legal_actions(player)) for player in players])
        else:
            state.apply_action(draw.choice(state.legal_actions()))
        reward = state.rewards()[0]
        over_all += reward
        after_actions += 0 if is_chance else reward
    print(
        f"{name}: returns {state.returns()[0]:.1f}; sum after actions {after_actions:.1f}, "
        f"over all states {over_all:.1f}"
    )
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="2048: returns 696.0; sum after actions 696.0, over all states 1392.0
coop_box_pushing: returns -60.0; sum after actions -59.9, over all states -119.9"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
