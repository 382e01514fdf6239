#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: after one metric of NaN, `CheckpointManager` deletes the best checkpoint.
#
# With `best_fn` and `max_to_keep`, the manager is to keep the checkpoints of the highest metrics. It
# sorts all of them by the metric, and nothing can be sorted past a NaN: the ones before it stay at the
# low end, are deleted first, and `best_step()` names a worse one. A metric is NaN where it is a mean
# over no episode, or where one evaluation fails. One would expect NaN to count as the worst, or an
# error at `save`. Four checkpoints, of which one is kept, Python 3.11:
#
#     metrics [0.9, 0.5, 0.6, 0.7]: best 0.9, kept [0.9]
#     metrics [0.9, nan, 0.6, 0.7]: best 0.7, kept [0.7]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import pathlib
import sys

import numpy as np
import orbax.checkpoint as ocp

options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["return"], max_to_keep=1)
for run, metrics in enumerate(([0.9, 0.5, 0.6, 0.7], [0.9, float("nan"), 0.6, 0.7])):
    folder = pathlib.Path(sys.argv[1], str(run))
    with ocp.CheckpointManager(folder, options=options) as manager:
        for step, metric in enumerate(metrics):
            weights = ocp.args.StandardSave({"weights": np.zeros(2)})
            manager.save(step, args=weights, metrics={"return": metric})
            manager.wait_until_finished()
        best, kept = metrics[manager.best_step()], [metrics[step] for step in manager.all_steps()]
        print(f"metrics {metrics}: best {best}, kept {kept}")
PY
found=$(JAX_PLATFORMS=cpu "$place/venv/bin/python" -W ignore "$place/try.py" "$place" 2>/dev/null)
expected="metrics [0.9, 0.5, 0.6, 0.7]: best 0.9, kept [0.9]
metrics [0.9, nan, 0.6, 0.7]: best 0.7, kept [0.7]"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
