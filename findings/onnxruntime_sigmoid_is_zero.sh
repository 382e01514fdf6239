#!/usr/bin/env bash
# onnxruntime 1.32.0: on a CPU, Sigmoid of float32 is 0 from -18 down, so that its logarithm is -inf.
#
# float32 has numbers for sigmoid(x) down to x = -87, and JAX, PyTorch, NumPy and onnx's reference
# implementation give them. ONNX Runtime's CPU provider approximates sigmoids of float32 with an
# absolute error of up to 1e-7: that of -16 is about half of what it should be, those from -18 down are
# 0. A gate does not notice, but a log-probability that a model takes of a sigmoid is far off
# or -inf. The graph is valid, and nothing warns. Three implementations, Python 3.11:
#
#     reference: log sigmoid(-10) -10.0, log sigmoid(-20) -20.0, sigmoid(-20) is 0 False
#     onnxruntime: log sigmoid(-10) -10.0, log sigmoid(-20) -inf, sigmoid(-20) is 0 True
#     onnxruntime in float64: log sigmoid(-10) -10.0, log sigmoid(-20) -20.0, sigmoid(-20) is 0 False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper
from onnx.reference import ReferenceEvaluator


def make_model(kind):
    x, sigmoid, log = (
        helper.make_tensor_value_info(name, kind, [2]) for name in ("x", "sigmoid", "log")
    )
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["sigmoid"]),
        helper.make_node("Log", ["sigmoid"], ["log"]),
    ]
    graph = helper.make_graph(nodes, "log_sigmoid", [x], [sigmoid, log])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    checker.check_model(model, full_check=True)
    return model


def session(model):
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


float32, float64 = make_model(TensorProto.FLOAT), make_model(TensorProto.DOUBLE)
for name, runner, dtype in (
    ("reference", ReferenceEvaluator(float32), np.float32),
    ("onnxruntime", session(float32), np.float32),
    ("onnxruntime in float64", session(float64), np.float64),
):
    sigmoid, log = runner.run(None, {"x": np.array([-10, -20], dtype)})
    print(
        f"{name}: log sigmoid(-10) {log[0]:.1f}, log sigmoid(-20) {log[1]:.1f}, "
        f"sigmoid(-20) is 0 {sigmoid[1] == 0}"
    )
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected="reference: log sigmoid(-10) -10.0, log sigmoid(-20) -20.0, sigmoid(-20) is 0 False
onnxruntime: log sigmoid(-10) -10.0, log sigmoid(-20) -inf, sigmoid(-20) is 0 True
onnxruntime in float64: log sigmoid(-10) -10.0, log sigmoid(-20) -20.0, sigmoid(-20) is 0 False"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
