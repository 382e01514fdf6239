#!/usr/bin/env bash
# gymnax 1.0.1: in `SimpleBandit-bsuite` no arm is better than another, so nothing can be learned.
#
# In bsuite's bandit, the simplest of its tests, a seed decides once which of the 11 arms pays what,
# from 0 to 1, and an agent soon finds the one that pays 1. Here the rewards are drawn anew at every
# reset. An episode has one step and a constant observation, and `step` resets after each. So each
# arm pays 0.5 on average, and a policy, with memory or without, has that return whatever it has
# learned, while `optimal_return` is 1. No parameter fixes the arms. One would expect a bandit that is
# the same from one episode to the next. 2,000 episodes of each arm, Python 3.11:
#
#     every step ends an episode: True, observations that differ: 0
#     mean reward of 11 arms: worst 0.5, best 0.5; largest reward 1.0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    gymnax==1.0.1 six==1.17.0 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import gymnax
import jax
import jax.numpy as jnp

env, params = gymnax.make("SimpleBandit-bsuite")
first, start = env.reset(jax.random.key(0), params)


def play(arm):
    def step(state, key):
        seen, state, reward, terminated, *_ = env.step(key, state, arm, params)
        return state, (seen, reward, terminated)

    return jax.lax.scan(step, start, jax.random.split(jax.random.key(1), 2000))[1]


seen, rewards, terminated = jax.jit(jax.vmap(play))(jnp.arange(env.num_actions))
means, differ = rewards.mean(1), int((seen != first).sum())
print(f"every step ends an episode: {terminated.all()}, observations that differ: {differ}")
print(
    f"mean reward of {len(means)} arms: worst {means.min():.1f}, best {means.max():.1f}; "
    f"largest reward {rewards.max():.1f}"
)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="every step ends an episode: True, observations that differ: 0
mean reward of 11 arms: worst 0.5, best 0.5; largest reward 1.0"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
