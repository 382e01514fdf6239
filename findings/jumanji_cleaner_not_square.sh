#!/usr/bin/env bash
# jumanji 1.1.2: a maze of Cleaner that is not square cannot be cleaned, and agents leave it.
#
# The mask compares an agent's column with the number of rows, and its row with the number of columns.
# With 4 rows and 8 columns, moves to columns 4 to 7 are masked, so that their dirty tiles stay dirty
# and every episode lasts until the time limit. Moves to rows 4 to 7, which do not exist, are legal:
# JAX reads the last row there. Nothing warns. One would expect any size to work, since the numbers of
# rows and columns are two arguments. Seen with Python 3.11, playing at random among legal actions:
#
#     5 x 5: clean True, in time True, outside False
#     4 x 8: clean False, in time False, outside True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jumanji==1.1.2 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments import Cleaner
from jumanji.environments.routing.cleaner.generator import RandomGenerator

for rows, columns in ((5, 5), (4, 8)):
    env = Cleaner(RandomGenerator(rows, columns, num_agents=1), time_limit=3000)
    step = jax.jit(env.step)
    state, seen = env.reset(jax.random.key(0))
    rng, farthest = np.random.default_rng(0), 0
    while not seen.last():
        mask = np.asarray(seen.observation.action_mask)
        state, seen = step(state, jnp.asarray((rng.random(mask.shape) * mask).argmax(-1)))
        farthest = max(farthest, int(state.agents_locations[0, 0]))
    is_clean = int(seen.extras["num_dirty_tiles"]) == 0
    print(f"{rows} x {columns}: clean {is_clean}, in time {int(state.step_count) < 3000}, "
          f"outside {farthest >= rows}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected=$'5 x 5: clean True, in time True, outside False
4 x 8: clean False, in time False, outside True'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
