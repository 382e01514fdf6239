#!/usr/bin/env bash
# jaxmarl 0.2.0: an episode of MPE has 26 steps at `max_steps=25`, and one of SMAX 101 at 100.
#
# Both compare the clock before it is advanced, so the step that ends the episode comes after the
# last that counts. Overcooked compares it afterwards and plays 400 steps at 400. mpe2, PettingZoo's
# particle environments, plays 25. A return of JaxMARL's MPE is therefore the sum of one reward more
# than mpe2's of the same policy. Agents that stay where they are, Python 3.11:
#
#     MPE_simple_spread_v3: max_steps 25, played 26
#     SMAX: max_steps 100, played 101
#     overcooked: max_steps 400, played 400
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jaxmarl==0.2.0 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import jaxmarl

STAY = {"MPE_simple_spread_v3": 0, "SMAX": 4, "overcooked": 4}
for env_id, stay in STAY.items():
    env = jaxmarl.make(env_id)
    step = jax.jit(env.step_env)
    _, state = env.reset(jax.random.key(0))
    played, over = 0, False
    while not over:
        actions = {agent: jnp.int32(stay) for agent in env.agents}
        _, state, _, done, _ = step(jax.random.key(played), state, actions)
        played, over = played + 1, bool(done["__all__"])
    print(f"{env_id}: max_steps {env.max_steps}, played {played}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep played)
expected="MPE_simple_spread_v3: max_steps 25, played 26
SMAX: max_steps 100, played 101
overcooked: max_steps 400, played 400"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
