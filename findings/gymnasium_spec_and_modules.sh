#!/usr/bin/env bash
# gymnasium 1.2.2: `spec` does not find ids that `make` takes.
#
# An id may name a module that registers it: `gymnasium.make("my_games:Walk-v0")` imports `my_games`
# and makes `Walk-v0`. `gymnasium.spec`, which is documented to retrieve the specification of an
# environment id, does not know this form: it raises NameNotFound, before and also after the module
# was imported. So whoever asks `spec` first, to learn an environment's limits or where its code
# lies, rejects ids that would work. Seen with Python 3.11:
#
#     make: Walk-v0
#     spec of the module's form: NameNotFound
#     spec of the plain id: Walk-v0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.2.2
cat >"$place/my_games.py" <<'PY'
import gymnasium

gymnasium.register("Walk-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
PY
cat >"$place/try.py" <<'PY'
import gymnasium

print("make:", gymnasium.make("my_games:Walk-v0").spec.id)
try:
    print("spec of the module's form:", gymnasium.spec("my_games:Walk-v0").id)
except gymnasium.error.Error as error:
    print("spec of the module's form:", type(error).__name__)
print("spec of the plain id:", gymnasium.spec("Walk-v0").id)
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected=$'make: Walk-v0\nspec of the module\'s form: NameNotFound\nspec of the plain id: Walk-v0'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
