#!/usr/bin/env bash
# onnxruntime 1.32.0: on a CPU, ArgMax passes over NaN, and so may choose an option that is masked.
#
# In NumPy, JAX and onnx's reference implementation, the largest of numbers with a NaN among
# them is NaN, and `argmax` is its place. ONNX Runtime's CPU provider goes on to whatever is larger than
# the largest so far, and nothing is larger than NaN, nor NaN than anything. So a NaN is left out unless
# it comes first. A network that has one NaN in its inputs has NaN for every legal action. Illegal ones
# have the lowest number instead, and if the first action is illegal, it is chosen. ReduceMax does the
# same, while Softmax passes NaN on. One would expect NaN, as a sign that something is wrong. ArgMax and
# ReduceMax of four rows, "-" for the lowest float32, Python 3.11:
#
#     0 nan 1 0.5: numpy 1 nan, reference 1 nan, onnxruntime 2 1, Softmax nan
#     nan 0 1 0.5: numpy 0 nan, reference 0 nan, onnxruntime 0 nan, Softmax nan
#     - nan nan nan: numpy 1 nan, reference 1 nan, onnxruntime 0 -, Softmax nan
#     nan - nan nan: numpy 0 nan, reference 0 nan, onnxruntime 0 nan, Softmax nan
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

LOWEST = np.finfo(np.float32).min
model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
choose (float[N] x) => (int64[M] place, float[M] largest, float[N] share) {
    place = ArgMax<axis = 0>(x)
    largest = ReduceMax(x)
    share = Softmax(x)
}""")
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def told(number):
    return "-" if number == LOWEST else f"{number:.3g}"


for row in ("0 nan 1 0.5", "nan 0 1 0.5", "- nan nan nan", "nan - nan nan"):
    x = np.array([LOWEST if number == "-" else number for number in row.split()], np.float32)
    found = {"numpy": (np.argmax(x), np.max(x))}
    for name, runs in (("reference", ReferenceEvaluator(model)), ("onnxruntime", session)):
        place, largest, share = (output.ravel() for output in runs.run(None, {"x": x}))
        found[name] = place[0], largest[0]
    of_each = (f"{name} {place} {told(largest)}" for name, (place, largest) in found.items())
    print(f"{row}: {', '.join(of_each)}, Softmax {share.max():.3g}")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="0 nan 1 0.5: numpy 1 nan, reference 1 nan, onnxruntime 2 1, Softmax nan
nan 0 1 0.5: numpy 0 nan, reference 0 nan, onnxruntime 0 nan, Softmax nan
- nan nan nan: numpy 1 nan, reference 1 nan, onnxruntime 0 -, Softmax nan
nan - nan nan: numpy 0 nan, reference 0 nan, onnxruntime 0 nan, Softmax nan"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
