#!/usr/bin/env bash
# VMAS 1.5.2 with torch 2.13.0: all environments of a process draw from the same generators.
#
# `make_env(..., seed=0)` is taken to seed the environment that it makes. The states of the generators
# belong to the class `Environment`, so whatever is made, seeded or reset later changes what an
# environment draws next. Here an environment of `balance` begins otherwise if another one is made,
# such as for evaluation, before it is reset:
#
#     same seed again: True
#     same seed, another environment made before the reset: False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    vmas==1.5.2 torch==2.13.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import vmas


def begin(makes_another):
    """Return what the first agent observes after a reset."""
    env = vmas.make_env("balance", num_envs=2, seed=0)
    if makes_another:
        vmas.make_env("navigation", num_envs=2, seed=0)
    return env.reset()[0][0].tolist()


alone, again, beside_another = begin(False), begin(False), begin(True)
print("same seed again:", alone == again)
print("same seed, another environment made before the reset:", alone == beside_another)
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected='same seed again: True
same seed, another environment made before the reset: False'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
