#!/usr/bin/env bash
# onnx 1.23.2 and onnxruntime 1.32.0: a choice between two arrays of truth values is valid ONNX and
# cannot be run on a CPU.
#
# `Where` takes arrays of every type by the specification, `bool` among them, and the full checker of
# onnx accepts such a graph. ONNX Runtime's CPU provider implements it for numbers and text alone and
# raises NOT_IMPLEMENTED when the model is loaded. A mask chosen by a condition therefore has to be
# written with And, Or and Not. Prints what each of them says, for `bool` and for `int64`:
#
#     bool: checker accepts True, runs False (NOT_IMPLEMENTED)
#     int64: checker accepts True, runs True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import onnx
import onnxruntime
from onnx import TensorProto, helper

for name, kind in (("bool", TensorProto.BOOL), ("int64", TensorProto.INT64)):
    values = [helper.make_tensor_value_info(each, kind, [3]) for each in ("x", "y", "result")]
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [3])
    node = helper.make_node("Where", ["condition", "x", "y"], ["result"])
    graph = helper.make_graph([node], "choice", [condition, *values[:2]], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        said = "True"
    except Exception as error:
        said = "False (NOT_IMPLEMENTED)" if "NOT_IMPLEMENTED" in str(error) else f"False ({error})"
    print(f"{name}: checker accepts True, runs {said}")
PY
found=$("$place/venv/bin/python" "$place/try.py")
printf '%s\n' "$found"
expected='bool: checker accepts True, runs False (NOT_IMPLEMENTED)
int64: checker accepts True, runs True'
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
