#!/usr/bin/env bash
# craftax 1.6.1: at its time limit an episode has the discount of a death.
#
# `info["discount"]` is there to say whether a value follows: 0 where the game is over. Craftax asks
# `is_terminal` for it, which is True at the time limit as well, so that discount and `done` are the
# same for both ends and nothing else that a step returns tells them apart. gymnax, whose interface
# it has, has reported the two apart since 1.0, and Brax, Jumanji's Connector and XLand-MiniGrid mark
# a limit. Whether it was one shows only in `is_terminal` with parameters of a higher limit. A player
# that does nothing, and one without health, Python 3.11:
#
#     time limit: done True, discount 0.0, terminal without the limit False
#     death: done True, discount 0.0, terminal without the limit True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    craftax==1.6.1 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
from craftax.craftax_env import make_craftax_env_from_name

env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
params = env.default_params.replace(max_timesteps=3)
endless = env.default_params.replace(max_timesteps=10_000)
key, step = jax.random.key(0), jax.jit(env.step_env)
_, state = jax.jit(env.reset_env)(key, params)
dying = state.replace(player_health=0)


def show(name, state, done, info):
    print(
        f"{name}: done {bool(done)}, discount {float(info['discount'])}, terminal without the "
        f"limit {bool(env.is_terminal(state, endless))}"
    )


for _ in range(3):
    _, state, _, done, info = step(key, state, 0, params)
show("time limit", state, done, info)
_, state, _, done, info = step(key, dying, 0, params)
show("death", state, done, info)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep ": done")
expected="time limit: done True, discount 0.0, terminal without the limit False
death: done True, discount 0.0, terminal without the limit True"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
