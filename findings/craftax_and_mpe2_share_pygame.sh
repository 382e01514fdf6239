#!/usr/bin/env bash
# craftax 1.6.1 and mpe2 1.1.1 in one environment: two distributions own the files of `pygame`.
#
# Craftax requires `pygame` (to play by hand), mpe2 `pygame-ce`, another edition that is imported under
# the same name. pip installs both and reports no conflict, nor does `pip check`. But one has
# overwritten files of the other, whose record no longer fits what is on the disk. Python 3.11:
#
#     pip check: No broken requirements found.
#     pygame/__init__.py belongs to: pygame, pygame-ce
#     whose files are not as recorded: 1 of 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    craftax==1.6.1 mpe2==1.1.1 pygame==2.6.1 pygame-ce==2.5.8 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import base64
import hashlib
from importlib.metadata import distribution

names, changed = ("pygame", "pygame-ce"), 0
owners = [n for n in names if any(str(f) == "pygame/__init__.py" for f in distribution(n).files)]
for name in owners:
    (file,) = (f for f in distribution(name).files if str(f) == "pygame/__init__.py")
    digest = hashlib.sha256(file.locate().read_bytes()).digest()
    changed += base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value
print("pygame/__init__.py belongs to:", ", ".join(owners))
print(f"whose files are not as recorded: {changed} of {len(owners)}")
PY
found=$(cd "$place" && echo "pip check: $(venv/bin/python -m pip check)" && venv/bin/python try.py)
echo "$found"
[ "$found" = "pip check: No broken requirements found.
pygame/__init__.py belongs to: pygame, pygame-ce
whose files are not as recorded: 1 of 2" ] || { echo "the behaviour has changed" >&2; exit 1; }
