"""JAX primitives that compute number by number, as nodes of an ONNX graph.

Every function takes the graph, the operands, the type of the result, and the primitive's parameters
as `portable` lists them, and returns the result's name in the graph.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_ppo.deploy.onnx_builder import GraphBuilder, UnsupportedError, Value

Params = Mapping[str, Any]
Operands = Sequence[Value]
# Results broadcast as the operands do.
Elementwise = Callable[[GraphBuilder, Operands, str, Params], str]

_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
}
_LOGIC = {"and": "And", "not": "Not", "or": "Or", "xor": "Xor"}


def _plainly(kind: str) -> Elementwise:
    def write(graph: GraphBuilder, x: Operands, dtype: str, params: Params) -> str:
        names = [own.name for own in x]
        if x[0].kind != "bool" or kind == "Equal":
            return graph.op(kind, *names)
        # To ONNX, bools have no order.
        found = graph.op(kind, *(graph.cast(name, "int32") for name in names))
        return graph.cast(found, "bool") if kind in ("Max", "Min") else found

    return write


def _logic(kind: str) -> Elementwise:
    """Compute with bools, or with the bits of integers."""
    return lambda graph, x, dtype, params: graph.op(
        kind if dtype == "bool" else f"Bitwise{kind}", *(own.name for own in x)
    )


def one(graph: GraphBuilder, dtype: str, number: float = 1) -> str:
    """Add a constant number, 1 by default."""
    return graph.constant(np.array(number, dtype))


def _select(graph: GraphBuilder, x: Operands, dtype: str, params: Params) -> str:
    which, *cases = x
    if which.kind != "bool" or len(cases) != 2:
        raise UnsupportedError("`select_n` by integers")
    if dtype != "bool":
        return graph.op("Where", which.name, cases[1].name, cases[0].name)
    # ONNX Runtime has no `Where` of bools.
    second = graph.op("And", which.name, cases[1].name)
    first = graph.op("And", graph.op("Not", which.name), cases[0].name)
    return graph.op("Or", first, second)


def _power(graph: GraphBuilder, x: Operands, dtype: str, params: Params) -> str:
    return graph.op("Pow", x[0].name, one(graph, dtype, params["y"]))


def _round(graph: GraphBuilder, x: Operands, dtype: str, params: Params) -> str:
    if params["rounding_method"] != 1:
        raise UnsupportedError("`round` of halves away from zero")
    return graph.op("Round", x[0].name)


def _finite(graph: GraphBuilder, x: Operands, dtype: str, params: Params) -> str:
    # Infinity and NaN minus themselves are NaN.
    zero = graph.op("Sub", x[0].name, x[0].name)
    return graph.op("Equal", zero, one(graph, x[0].kind, 0))


ELEMENTWISE: dict[str, Elementwise] = {
    **{name: _plainly(kind) for name, kind in _SAME.items()},
    **{name: _logic(kind) for name, kind in _LOGIC.items()},
    "clamp": lambda graph, x, dtype, params: graph.op(
        "Min", graph.op("Max", x[1].name, x[0].name), x[2].name
    ),
    "convert_element_type": lambda graph, x, dtype, params: (
        x[0].name if x[0].kind == dtype else graph.cast(x[0].name, dtype)
    ),
    "erfc": lambda graph, x, dtype, params: graph.op(
        "Sub", one(graph, dtype), graph.op("Erf", x[0].name)
    ),
    "exp2": lambda graph, x, dtype, params: graph.op("Pow", one(graph, dtype, 2), x[0].name),
    "expm1": lambda graph, x, dtype, params: graph.op(
        "Sub", graph.op("Exp", x[0].name), one(graph, dtype)
    ),
    "integer_pow": _power,
    "is_finite": _finite,
    "log1p": lambda graph, x, dtype, params: graph.op(
        "Log", graph.op("Add", x[0].name, one(graph, dtype))
    ),
    "ne": lambda graph, x, dtype, params: graph.op("Not", graph.op("Equal", x[0].name, x[1].name)),
    "rem": lambda graph, x, dtype, params: graph.op("Mod", x[0].name, x[1].name, fmod=1),
    "round": _round,
    "rsqrt": lambda graph, x, dtype, params: graph.op("Reciprocal", graph.op("Sqrt", x[0].name)),
    "select_n": _select,
    "square": lambda graph, x, dtype, params: graph.op("Mul", x[0].name, x[0].name),
}
