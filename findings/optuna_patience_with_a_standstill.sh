#!/usr/bin/env bash
# optuna 5.0.0: a trial that stands still never wears out the patience of `PatientPruner`.
#
# Patience elsewhere counts steps without an improvement. `PatientPruner` keeps a trial while the best
# of its last steps is no worse than the best of the steps before, and a value that stays the same is
# not worse. Until then it does not ask the pruner that it wraps, either. So a trial that never wins
# a game and reports a win rate of 0 at every step is kept to the end, although the median of the
# others is far above it; one that loses a little is pruned. A positive `min_delta` asks for a larger
# fall, so that no setting helps. Steps, of ten, at which `should_prune` is True, where the others
# report 0.5, Python 3.11:
#
#     MedianPruner: 0 at every step pruned at [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
#     PatientPruner(MedianPruner, patience=2): 0 at every step pruned at []
#     PatientPruner(MedianPruner, patience=2): falling by 0.001 pruned at [3, 4, 5, 6, 7, 8, 9]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    optuna==5.0.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import optuna
from optuna.pruners import MedianPruner, PatientPruner

NUM_STEPS = 10
optuna.logging.set_verbosity(optuna.logging.ERROR)


def show(name, pruner, title, values):
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for _ in range(5):
        trial = study.ask()
        for step in range(NUM_STEPS):
            trial.report(0.5, step)
        study.tell(trial, 0.5)
    trial, pruned = study.ask(), []
    for step, value in enumerate(values):
        trial.report(value, step)
        if trial.should_prune():
            pruned.append(step)
    print(f"{name}: {title} pruned at {pruned}")


median = MedianPruner(n_startup_trials=0)
patient = PatientPruner(median, patience=2)
zeros, falling = [0.0] * NUM_STEPS, [-0.001 * step for step in range(NUM_STEPS)]
show("MedianPruner", median, "0 at every step", zeros)
show("PatientPruner(MedianPruner, patience=2)", patient, "0 at every step", zeros)
show("PatientPruner(MedianPruner, patience=2)", patient, "falling by 0.001", falling)
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="MedianPruner: 0 at every step pruned at [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
PatientPruner(MedianPruner, patience=2): 0 at every step pruned at []
PatientPruner(MedianPruner, patience=2): falling by 0.001 pruned at [3, 4, 5, 6, 7, 8, 9]"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
