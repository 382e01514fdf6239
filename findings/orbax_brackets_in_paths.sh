#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: what is saved below a folder whose name has square brackets cannot be
# restored.
#
# `save` succeeds and writes the same files as for any other path. `restore` then looks for the parts
# of the checkpoint by a glob pattern made of the path as it stands, so that `exp[1]` is read as the
# pattern for `exp1`, finds no array data and raises. One would expect either that both work, since
# such names are common (`run[lr=1e-3]`), or that `save` raises. Seen on Linux with Python 3.11:
#
#     exp: save ok, restore ok
#     exp[1]: save ok, restore raises
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import pathlib, sys
import numpy as np
import orbax.checkpoint as ocp

for name in ("exp", "exp[1]"):
    folder = pathlib.Path(sys.argv[1], name, "state")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, {"weights": np.arange(4.0)})
        checkpointer.wait_until_finished()
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            restored = checkpointer.restore(folder)
        assert restored["weights"].tolist() == [0, 1, 2, 3]
        print(f"{name}: save ok, restore ok")
    except Exception:
        print(f"{name}: save ok, restore raises")
PY
found=$(JAX_PLATFORMS=cpu "$place/venv/bin/python" "$place/try.py" "$place" 2>/dev/null)
expected=$'exp: save ok, restore ok\nexp[1]: save ok, restore raises'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
