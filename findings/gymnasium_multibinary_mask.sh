#!/usr/bin/env bash
# gymnasium 1.2.2: in the mask of a MultiBinary, 1 does not mean "legal".
#
# The masks that Discrete and MultiDiscrete take in `sample` have an entry for every option: 1 where
# it may be drawn, 0 where not. That of a MultiBinary has an entry for every bit, and it is the value
# that the bit must have: 0 for 0, 1 for 1, and 2 where either may be drawn. A mask of ones, which
# leaves everything free elsewhere, sets every bit here. Whoever reads masks of all spaces alike
# plays other actions than the environment means, without an error. Seen with Python 3.11:
#
#     MultiDiscrete([2, 2, 2]), all ones, drawn: 8 different
#     MultiBinary(3), all ones, drawn: [[1, 1, 1]]
#     MultiBinary(3), all twos, drawn: 8 different
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.2.2
cat >"$place/try.py" <<'PY'
import numpy as np
from gymnasium import spaces


def drawn(space, mask):
    space.seed(0)
    different = {tuple(space.sample(mask=mask).tolist()) for _ in range(500)}
    return f"{len(different)} different" if len(different) > 1 else [list(*different)]


ones = np.ones(2, np.int8)
many, bits = spaces.MultiDiscrete([2, 2, 2]), spaces.MultiBinary(3)
print("MultiDiscrete([2, 2, 2]), all ones, drawn:", drawn(many, (ones, ones, ones)))
print("MultiBinary(3), all ones, drawn:", drawn(bits, np.ones(3, np.int8)))
print("MultiBinary(3), all twos, drawn:", drawn(bits, np.full(3, 2, np.int8)))
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected=$'MultiDiscrete([2, 2, 2]), all ones, drawn: 8 different
MultiBinary(3), all ones, drawn: [[1, 1, 1]]
MultiBinary(3), all twos, drawn: 8 different'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
