"""ONNX models of traced JAX functions, with any number of rows.

A function is traced for a symbolic number of rows, `portable.ProgramWriter` lists its steps, and
every step becomes a few nodes. Operations of ONNX broadcast as those of NumPy do, so what JAX
broadcasts stays small until a node needs its full shape.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.export import is_symbolic_dim, symbolic_shape

from jaxmarl_envs.adapters import import_extra
from jaxmarl_ppo.deploy.onnx_builder import GraphBuilder, UnsupportedError, Value
from jaxmarl_ppo.deploy.onnx_elementwise import ELEMENTWISE
from jaxmarl_ppo.deploy.onnx_nodes import KNOWN, NODES
from jaxmarl_ppo.deploy.portable import ProgramWriter
from jaxmarl_ppo.machine.extras import how_to_install

# Read by ONNX Runtime from 1.14 on.
OPSET, IR_VERSION = 18, 8
ROWS = "batch"  # name of the dimension
# Types in a file. Small integers are computed as int32, low precision as float32.
_TYPES: dict[str, str] = {
    **dict.fromkeys(("float32", "bfloat16", "float16"), "float32"),
    **dict.fromkeys(("int32", "int8", "uint8", "int16", "uint16"), "int32"),
    "bool": "bool",
}

Arrays = dict[str, jax.Array]


class _Steps(ProgramWriter):
    """Lists steps for ONNX, with shapes in which the number of rows is symbolic.

    Unknown steps raise an error when nodes are made of them, so those that are not needed do not.
    """

    known = KNOWN

    def params(self, eqn: Any) -> dict[str, Any]:
        """List the parameters of a primitive."""
        name = eqn.primitive.name
        return super().params(eqn) if name in (*KNOWN, "squeeze") else {}

    def kind(self, aval: Any) -> list[Any]:
        """Describe the type and the shape of a value."""
        return [str(aval.dtype), tuple(x if is_symbolic_dim(x) else int(x) for x in aval.shape)]

    def array(self, value: Any) -> Any:
        """Keep a constant as an array."""
        return np.asarray(value)


def import_onnx() -> Any:
    """Import the package `onnx`.

    Raises:
        ValueError: If it is not installed; the message names the extra.
    """
    return import_extra("onnx", "onnx", how_to_install)


def make_model(
    fn: Callable[[Arrays], Arrays],
    inputs: Mapping[str, tuple[tuple[int, ...], str]],
    metadata: Mapping[str, str],
) -> Any:
    """Trace a function and write it as an ONNX model.

    Args:
        fn: computes arrays `[B, ...]` by name from others.
        inputs: shape and type of one row of every input, by name.
        metadata: texts that the file holds, by key.

    Returns:
        An `onnx.ModelProto`, in which `B` is a dimension called `ROWS`.

    Raises:
        ValueError: If the function uses an operation or a type that is not known here.
    """
    onnx = import_onnx()
    (rows,) = symbolic_shape(ROWS)
    names: list[str] = []

    def flat(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        found = fn(dict(zip(inputs, arrays, strict=True)))
        names[:] = found
        return tuple(found.values())

    for _, dtype in inputs.values():
        if _TYPES.get(dtype) != dtype:
            raise UnsupportedError(f"inputs of type {dtype}")
    specs = [jax.ShapeDtypeStruct((rows, *shape), dtype) for shape, dtype in inputs.values()]
    program = _Steps().write(jax.make_jaxpr(flat)(*specs))
    graph = Graph(onnx, rows, next(iter(inputs)))
    outputs = graph.add(program, tuple(inputs), names)
    takes = [_describe(onnx, x, dtype, (rows, *own)) for x, (own, dtype) in inputs.items()]
    gives = [_describe(onnx, value.name, value.kind, value.shape) for value in outputs]
    body = onnx.helper.make_graph(graph.nodes, "policy", takes, gives, graph.constants)
    model = onnx.helper.make_model(
        body,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="jaxmarl_ppo",
    )
    onnx.helper.set_model_props(model, dict(metadata))
    return model


def _describe(onnx: Any, name: str, kind: str, shape: Sequence[Any]) -> Any:
    """Declare an input or output of the graph."""
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    sizes = [str(size) if is_symbolic_dim(size) else size for size in shape]
    return onnx.helper.make_tensor_value_info(name, dtype, sizes)


class Graph(GraphBuilder):
    """A graph that is made of a traced function's steps."""

    def add(
        self, program: Mapping[str, Any], inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[Value]:
        """Add the nodes of a program, given the names of its inputs and outputs.

        Raises:
            ValueError: If there is an operation that is not known here.
        """
        used = {number for step in program["steps"] for number in step[1]} | set(program["out"])
        constants = ((number, x) for number, x in program["constants"] if number in used)
        values = {number: self._known(x) for number, x in constants}
        own = zip(program["in"], inputs, program["inputs"], strict=True)
        values |= {number: Value(name, _type(kind), x, x) for number, name, (kind, x) in own}
        for step in program["steps"]:
            values.update(zip(step[2], self._step(step, values), strict=True))
        found = []
        for name, number in zip(outputs, program["out"], strict=True):
            value = values[number]
            self.node("Identity", [self.full(value)], [name])
            found.append(value._replace(name=name))
        self.keep_needed(outputs)
        return found

    def _step(self, step: Sequence[Any], values: Mapping[int, Value]) -> list[Value]:
        """Add the nodes of one step, and return its results."""
        kind, numbers, _, kinds, params = step
        inputs = [values[number] for number in numbers]
        results = [(_type(dtype), shape) for dtype, shape in kinds]
        if kind in ELEMENTWISE:
            ((dtype, shape),) = results
            held = functools.reduce(_broadcast, (value.held for value in inputs), ())
            same = self._chosen(kind, inputs, shape)
            if same is not None:
                return [same]
            name = ELEMENTWISE[kind](self, inputs, dtype, params)
            return [Value(name, dtype, shape, held)]
        if kind == "broadcast_in_dim":
            return [self._broadcast_in_dim(inputs[0], *results[0], params)]
        if kind not in NODES:
            raise UnsupportedError(f"`{kind}`")
        (dtype, shape), *more = results
        if not more and kind in _MOVES and inputs[0].held == ():
            return [inputs[0]._replace(shape=shape)]  # the same number everywhere
        whole = [value._replace(name=self.full(value), held=value.shape) for value in inputs]
        names = NODES[kind](self, whole, results, params)
        return [Value(x, *own, own[1]) for x, own in zip(names, results, strict=True)]

    def _chosen(self, kind: str, inputs: Sequence[Value], shape: tuple[Any, ...]) -> Value | None:
        """Return the case that a constant selects, if it is as large as the result."""
        known = self.arrays.get(inputs[0].name) if kind == "select_n" else None
        if known is None or known.shape:
            return None
        case = inputs[1 + int(known)]
        return case if len(case.shape) == len(shape) else None

    def _broadcast_in_dim(
        self, x: Value, dtype: str, shape: tuple[Any, ...], params: Mapping[str, Any]
    ) -> Value:
        """Add axes, and leave the rest to whatever needs the full shape."""
        if x.held == ():
            return Value(x.name, dtype, shape, ())
        axes = params["broadcast_dimensions"]
        held: list[Any] = [1] * len(shape)
        for axis, size in zip(axes, x.held, strict=True):
            held[axis] = size
        return Value(self.reshape(x.name, x.held, held), dtype, shape, tuple(held))

    def _known(self, array: Any) -> Value:
        dtype = _type(str(array.dtype))
        name = self.constant(array.astype(dtype))
        return Value(name, dtype, array.shape, array.shape)


# Operations that only move numbers around.
_MOVES = {"reshape", "transpose", "rev", "slice", "tile"}


def _type(kind: str) -> str:
    if kind not in _TYPES:
        raise UnsupportedError(f"numbers of type {kind}")
    return _TYPES[kind]


def _broadcast(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Broadcast two shapes as NumPy does."""
    rank = max(len(a), len(b))
    wide = [(1,) * (rank - len(x)) + tuple(x) for x in (a, b)]
    return tuple(y if str(x) == "1" else x for x, y in zip(*wide, strict=True))
