#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: who goes back to an earlier checkpoint saves nothing for a long time.
#
# A run that has gone wrong is continued from an earlier step. From there, `CheckpointManager.save`
# does nothing for every step up to the latest on the disk, also for steps that are not there. It
# says so only by returning False, as it does between saves of an interval. If the run ends before
# it passes that step, all that it has learned is lost, and the next start restores the weights that
# were given up. `force=True` saves, and `latest_step()` is then that step, but after opening the
# folder again the old one. One would expect a save, or an error. Saved to step 300, restored at 100,
# Python 3.11:
#
#     first run, steps 100, 200, 300: saved [True, True, True]
#     second run, from step 100, steps 150, 250: saved [False, False]
#     to go on from: step 300 of run 1
#     force=True, step 250: saved True, latest 250, opened again 300
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import sys

import numpy as np
import orbax.checkpoint as ocp


def save(manager, step, run, **options):
    saved = manager.save(step, args=ocp.args.StandardSave({"run": np.full(2, run)}), **options)
    manager.wait_until_finished()
    return saved


def restore(manager, step):
    return manager.restore(step, args=ocp.args.StandardRestore())["run"][0]


folder = sys.argv[1] + "/checkpoints"
with ocp.CheckpointManager(folder) as manager:
    saved = [save(manager, step, 1) for step in (100, 200, 300)]
    print(f"first run, steps 100, 200, 300: saved {saved}")
with ocp.CheckpointManager(folder) as manager:
    restore(manager, 100)
    saved = [save(manager, step, 2) for step in (150, 250)]
    print(f"second run, from step 100, steps 150, 250: saved {saved}")
with ocp.CheckpointManager(folder) as manager:
    latest = manager.latest_step()
    print(f"to go on from: step {latest} of run {restore(manager, latest)}")
    saved, latest = save(manager, 250, 2, force=True), manager.latest_step()
with ocp.CheckpointManager(folder) as manager:
    again = manager.latest_step()
    print(f"force=True, step 250: saved {saved}, latest {latest}, opened again {again}")
PY
found=$(JAX_PLATFORMS=cpu "$place/venv/bin/python" -W ignore "$place/try.py" "$place" 2>/dev/null)
expected="first run, steps 100, 200, 300: saved [True, True, True]
second run, from step 100, steps 150, 250: saved [False, False]
to go on from: step 300 of run 1
force=True, step 250: saved True, latest 250, opened again 300"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
