#!/usr/bin/env bash
# jaxmarl 0.2.0 and overcooked-ai 1.1.0: what cooks a soup in the one leaves it raw in the other.
#
# JaxMARL's Overcooked is made after overcooked-ai, with its kitchens, actions and observations. In
# JaxMARL a pot cooks as soon as it holds three onions. In overcooked-ai, where soups of fewer
# ingredients can be cooked too, it waits until a player interacts with it once more, with empty
# hands. A policy trained in JaxMARL has never had a reason to: in overcooked-ai it fills the pot,
# waits, and delivers nothing, without an error. One would expect a game of the same name to be the
# same. The same actions in both, in the kitchen `cramped_room`, then 30 steps of waiting, Python 3.11:
#
#     jaxmarl, three onions: soup ready True
#     jaxmarl, three onions and an interaction: soup ready True
#     overcooked-ai, three onions: soup ready False
#     overcooked-ai, three onions and an interaction: soup ready True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jaxmarl==0.2.0 jax==0.10.2 jaxlib==0.10.2 gym==0.26.2
# The game itself needs none of the packages that overcooked-ai asks for to draw and to serve it.
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    overcooked-ai==1.1.0
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import jaxmarl
from overcooked_ai_py.mdp.actions import Action
from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld

# Actions have the same numbers in both.
UP, RIGHT, LEFT, STAY, INTERACT = 0, 2, 3, 4, 5
SOUP_READY = 21
onion = [LEFT, INTERACT, RIGHT, UP, INTERACT, LEFT]
wait = [STAY] * 30
plans = {
    "three onions": [UP, *onion * 3, *wait],
    "three onions and an interaction": [UP, *onion * 3, RIGHT, UP, INTERACT, *wait],
}


def play_jaxmarl(plan):
    env = jaxmarl.make("overcooked")
    step = jax.jit(env.step_env)
    seen, state = env.reset(jax.random.key(0))
    for action in plan:
        actions = {"agent_0": jnp.int32(action), "agent_1": jnp.int32(STAY)}
        seen, state, *_ = step(jax.random.key(0), state, actions)
    return bool(seen["agent_0"][..., SOUP_READY].any())


def play_overcooked_ai(plan):
    kitchen = OvercookedGridworld.from_layout_name("cramped_room")
    state = kitchen.get_standard_start_state()
    for action in plan:
        actions = (Action.INDEX_TO_ACTION[action], Action.STAY)
        state, _ = kitchen.get_state_transition(state, actions)
    (pot,) = kitchen.get_pot_locations()
    return state.get_object(pot).is_ready


for library, play in (("jaxmarl", play_jaxmarl), ("overcooked-ai", play_overcooked_ai)):
    for name, plan in plans.items():
        print(f"{library}, {name}: soup ready {play(plan)}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py 2>/dev/null | grep ready)
expected="jaxmarl, three onions: soup ready True
jaxmarl, three onions and an interaction: soup ready True
overcooked-ai, three onions: soup ready False
overcooked-ai, three onions and an interaction: soup ready True"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
