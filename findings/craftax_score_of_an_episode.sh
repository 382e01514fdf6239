#!/usr/bin/env bash
# craftax 1.6.1: the mean of `info["score"]` over episodes is not the score of Crafter.
#
# Crafter's score is the geometric mean, over achievements, of the percentage of episodes in which each
# was unlocked (plus one, minus one). The last step of an episode reports a number of that name, but
# takes the mean within the episode, where every achievement counts 0 or 100. What is logged as usual,
# the mean of `score` over episodes, is far lower, and lower still the more the episodes differ. Two
# episodes, each with one half of the achievements, so that each is unlocked in half of the episodes,
# Python 3.11:
#
#     mean of info["score"]: 9.0, score of the success rates: 50.0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    craftax==1.6.1 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import numpy as np
from craftax.craftax_env import make_craftax_env_from_name

env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
params, key = env.default_params, jax.random.key(0)
_, state = jax.jit(env.reset_env)(key, params)
step, scores, rates = jax.jit(env.step_env), [], []
for half in range(2):
    achieved = np.arange(state.achievements.size) % 2 == half
    dying = state.replace(player_health=0, achievements=jax.numpy.asarray(achieved))
    *_, done, info = step(key, dying, 0, params)
    assert done
    scores.append(info["score"])
    rates.append([info[name] for name in sorted(info) if name.startswith("Achievements/")])
of_rates = np.exp(np.log1p(np.mean(rates, axis=0)).mean()) - 1
print(f'mean of info["score"]: {np.mean(scores):.1f}, score of the success rates: {of_rates:.1f}')
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py | grep ^mean)
echo "$found"
[ "$found" = 'mean of info["score"]: 9.0, score of the success rates: 50.0' ] ||
    { echo "the behaviour has changed" >&2; exit 1; }
