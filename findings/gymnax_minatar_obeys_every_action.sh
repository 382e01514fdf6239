#!/usr/bin/env bash
# gymnax 1.0.1, pgx 2.6.0 and minatar 1.0.15: the same MinAtar game obeys every action, or nine of ten.
#
# MinAtar plays its games with "sticky" actions: by default one step in ten repeats the last action
# instead of the one that was chosen, so that no fixed series of actions can be learned by heart. pgx's
# games do the same. gymnax's games, of the same names, do what they are told, unless they are wrapped
# in its `StickyActionWrapper`. So a score from one is not a score from the other, and gymnax's is the
# easier game. One would expect a re-implementation to have the same rules by default. A first action of
# "right" in Breakout, share of 2,000 episodes in which the paddle moves, rounded, Python 3.11:
#
#     gymnax: 1.0
#     pgx: 0.9
#     minatar: 0.9
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    gymnax==1.0.1 six==1.17.0 pgx==2.6.0 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps minatar==1.0.15
cat >"$place/try.py" <<'PY'
import gymnax
import jax
import numpy as np
import pgx
from minatar import Environment

EPISODES, RIGHT = 2000, 2  # of nothing, left, right
keys = jax.random.split(jax.random.key(0), EPISODES)


def paddles(obs):
    """The column of each episode's paddle, the first of the channels."""
    return np.asarray(obs)[..., 0].reshape(len(obs), 100).argmax(1)


def gymnax_game():
    env, params = gymnax.make("Breakout-MinAtar")
    before, state = jax.vmap(env.reset, (0, None))(keys, params)
    return before, jax.vmap(env.step, (0, 0, None, None))(keys, state, RIGHT, params)[0]


def pgx_game():
    env = pgx.make("minatar-breakout")
    state = jax.vmap(env.init)(keys)
    return state.observation, jax.vmap(env.step, (0, None, 0))(state, RIGHT, keys).observation


def minatar_game():
    env, before, after = Environment("breakout"), [], []
    env.seed(0)
    for _ in range(EPISODES):
        env.reset()
        env.last_action = 0
        before.append(env.state())
        env.act(env.minimal_action_set()[RIGHT])
        after.append(env.state())
    return before, after


for name, game in (("gymnax", gymnax_game), ("pgx", pgx_game), ("minatar", minatar_game)):
    before, after = game()
    print(f"{name}: {(paddles(before) != paddles(after)).mean():.1f}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py 2>/dev/null)
expected="gymnax: 1.0
pgx: 0.9
minatar: 0.9"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
