#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: a key with a dot and a key inside another dictionary overwrite each other.
#
# The arrays of a tree are stored by the names of their keys, joined with dots, and dots in a name are
# left as they are. So {"v1": {"5": ...}} and {"v1.5": ...} are one array on the disk. `save` and
# `restore` succeed, with and without a target, the structure is right, and both places hold the
# numbers of whichever was written last. A slash, or a dot with no such neighbour, is fine. One would
# expect two keys of a dictionary to be two arrays, or an error at `save`. Python 3.11:
#
#     saved v1.5 [1, 1] and v1 -> 5 [2, 2]; restored the same for both: True, both as saved: False
#     saved v1/5 [1, 1] and v1 -> 5 [2, 2]; restored the same for both: False, both as saved: True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

for number, flat in enumerate(("v1.5", "v1/5")):
    tree = {flat: jnp.full(2, 1), "v1": {"5": jnp.full(2, 2)}}
    path = Path("checkpoint").resolve() / str(number)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(path, jax.tree.map(jnp.zeros_like, tree))
    first, second = restored[flat].tolist(), restored["v1"]["5"].tolist()
    as_saved = jax.tree.all(jax.tree.map(np.array_equal, tree, restored))
    print(
        f"saved {flat} [1, 1] and v1 -> 5 [2, 2]; restored the same for both: {first == second}, "
        f"both as saved: {as_saved}"
    )
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py 2>/dev/null)
expected="saved v1.5 [1, 1] and v1 -> 5 [2, 2]; restored the same for both: True, both as saved: False
saved v1/5 [1, 1] and v1 -> 5 [2, 2]; restored the same for both: False, both as saved: True"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
