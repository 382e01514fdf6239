#!/usr/bin/env bash
# jaxmarl 0.2.0: with `CTRolloutManager`, agents see zeros at the first step of all episodes but one.
#
# The manager, which JaxMARL's Q-learning baselines run environments in, sets observations of agents
# that are done to zeros. But `step` has reset the environment by then: where the flags are those of
# the end, the observations are the first ones of the next episode. So every agent chooses its first
# action blind, without even the number by which agents of shared weights are told apart. The state of
# the whole, `"__all__"`, is not zeros. `preprocess_obs=False` leaves all as they are. One would expect
# episodes to begin alike. Episodes of 6 steps, Python 3.11:
#
#     episode 1, first step: agent_0 zeros False, agent_2 zeros False, __all__ zeros False
#     episode 2, first step: agent_0 zeros True, agent_2 zeros True, __all__ zeros False
#     episode 3, first step: agent_0 zeros True, agent_2 zeros True, __all__ zeros False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jaxmarl==0.2.0 gymnax==1.0.1 six==1.17.0 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import jaxmarl
from jaxmarl.wrappers.baselines import CTRolloutManager

env = jaxmarl.make("MPE_simple_spread_v3", max_steps=5)
manager = CTRolloutManager(env, batch_size=1)
actions = {agent: jnp.zeros(1, jnp.int32) for agent in env.agents}
key, episode = jax.random.key(0), 0
seen, state = manager.batch_reset(key)
for step in range(13):
    if int(state.step[0]) == 0:
        episode += 1
        zeros = {name: not seen[name].any() for name in ("agent_0", "agent_2", "__all__")}
        told = ", ".join(f"{name} zeros {zero}" for name, zero in zeros.items())
        print(f"episode {episode}, first step: {told}")
    seen, state, *_ = manager.batch_step(jax.random.fold_in(key, step), state, actions)
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep ^episode)
expected="episode 1, first step: agent_0 zeros False, agent_2 zeros False, __all__ zeros False
episode 2, first step: agent_0 zeros True, agent_2 zeros True, __all__ zeros False
episode 3, first step: agent_0 zeros True, agent_2 zeros True, __all__ zeros False"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
