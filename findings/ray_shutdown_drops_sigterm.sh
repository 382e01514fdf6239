#!/usr/bin/env bash
# Ray 2.60.0: after `ray.shutdown()` SIGTERM ends a process at once, and Python does not know it.
#
# `ray.init` sets a handler of SIGTERM in Python, which raises `SystemExit`. `ray.shutdown` sets the
# operating system's default action again, from native code, and leaves Python's record of the
# handler. `signal.getsignal` then names a handler that is never called: no `finally`, no `atexit`,
# and the handler that the program had before `ray.init` is not called either. So a program that
# compares with RLlib first, trains next and looks whether SIGTERM is free finds it taken and loses
# its checkpoint when a scheduler ends it. `caught` is the kernel's own word, from
# /proc/self/status; the last number is the exit status after `kill`:
#
#     before: own handler, caught; alive: Ray's handler, caught; after: Ray's handler, not caught
#     exit status 143, own handler called: no
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check ray==2.60.0
cat >"$place/try.py" <<'PY'
import os
import signal

import ray


def own(signum, frame):
    print("own handler called: yes", flush=True)


def state():
    with open("/proc/self/status") as lines:
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    whose = "own" if signal.getsignal(signal.SIGTERM) is own else "Ray's"
    return f"{whose} handler, {'' if mask >> (signal.SIGTERM - 1) & 1 else 'not '}caught"


signal.signal(signal.SIGTERM, own)
before = state()
ray.init(
    "local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error"
)
alive = state()
ray.shutdown()
print(f"before: {before}; alive: {alive}; after: {state()}", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
PY
status=0
found=$(cd "$place" && venv/bin/python -W ignore try.py 2>/dev/null) || status=$?
grep -q 'called: yes' <<<"$found" || found+=$'\n'"exit status $status, own handler called: no"
expected="before: own handler, caught; alive: Ray's handler, caught; after: Ray's handler, not caught
exit status 143, own handler called: no"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
