"""JAX primitives that compute on arrays as a whole, as nodes of an ONNX graph.

Every function takes the graph, the operands in their full shapes, type and shape of every result,
and the primitive's parameters as `portable` lists them, and returns names of the results in the
graph.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.export import is_symbolic_dim

from jaxmarl_ppo.deploy.onnx_builder import GraphBuilder, UnsupportedError, Value
from jaxmarl_ppo.deploy.onnx_elementwise import ELEMENTWISE, Operands, Params, one
from jaxmarl_ppo.deploy.portable import KNOWN as PORTABLE

Results = Sequence[tuple[str, tuple[Any, ...]]]  # type and shape
Node = Callable[[GraphBuilder, Operands, Results, Params], Sequence[str]]


def _transpose(graph: GraphBuilder, name: str, order: Sequence[int]) -> str:
    return name if list(order) == sorted(order) else graph.op("Transpose", name, perm=order)


def _permute(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    order = params["permutation"]
    moved = [axis for axis in order if str(x[0].shape[axis]) != "1"]
    if moved == sorted(moved):  # only axes of size 1 move
        return [graph.reshape(x[0].name, x[0].shape, results[0][1])]
    return [_transpose(graph, x[0].name, order)]


def _slice(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    starts, strides = params["start_indices"], params["strides"] or [1] * len(x[0].shape)
    cut = []
    for axis, (start, size, own) in enumerate(zip(starts, results[0][1], x[0].shape, strict=True)):
        if str(size) == str(own):  # all of it, which may be the number of rows
            continue
        if is_symbolic_dim(size) or is_symbolic_dim(start):
            raise UnsupportedError("`slice` of the batch")
        cut.append((axis, start, start + (size - 1) * strides[axis] + 1, strides[axis]))
    if not cut:
        return [x[0].name]
    axes, begins, ends, steps = map(graph.integers, zip(*cut, strict=True))
    return [graph.op("Slice", x[0].name, begins, ends, axes, steps)]


def _reverse(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    axes = params["dimensions"]
    begins, ends, steps = ([n] * len(axes) for n in (-1, -(2**31), -1))
    return [graph.op("Slice", x[0].name, *map(graph.integers, (begins, ends, axes, steps)))]


def _pad(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    before, after, between = zip(*params["padding_config"], strict=True)
    if any(between):
        raise UnsupportedError("`pad` between numbers")
    if not any(before) and not any(after):
        return [x[0].name]
    # A negative number cuts off.
    return [graph.op("Pad", x[0].name, graph.integers((*before, *after)), x[1].name)]


def _iota(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    ((dtype, shape),) = results
    axis, numbers = params["dimension"], [1] * len(shape)
    if is_symbolic_dim(shape[axis]):
        raise UnsupportedError("`iota` along the batch")
    numbers[axis] = shape[axis]
    counted = graph.constant(np.arange(shape[axis], dtype=dtype).reshape(numbers))
    return [graph.op("Expand", counted, graph.sizes(shape))]


def _reduce(kind: str) -> Node:
    def write(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
        axes = graph.integers(params["axes"])
        if not params["axes"]:  # to ONNX, none are all
            return [x[0].name]
        if x[0].kind != "bool":
            return [graph.op(kind, x[0].name, axes, keepdims=0)]
        number = graph.op(kind, graph.cast(x[0].name, "int32"), axes, keepdims=0)
        return [graph.cast(number, results[0][0])]

    return write


def _extreme(kind: str, end: float) -> Node:
    """Write an `ArgMax` or `ArgMin`, to which a NaN is the `end` of all numbers, as it is in JAX.

    ONNX Runtime passes over NaN: of masked logits it would choose an illegal action.
    """

    def write(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
        (axis,) = params["axes"]
        number = graph.cast(x[0].name, "int32") if x[0].kind == "bool" else x[0].name
        if x[0].kind == "float32":
            is_nan = graph.op("IsNaN", number)
            number = graph.op("Where", is_nan, one(graph, "float32", end), number)
        return [graph.cast(graph.op(kind, number, axis=axis, keepdims=0), results[0][0])]

    return write


def _dot(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    """Multiply by `MatMul` where the axes stand as it takes them, else by `Einsum`."""
    ((left, right), (left_batch, right_batch)) = params["dimension_numbers"]
    ranks, num = [len(own.shape) for own in x], len(left_batch)
    in_order = left_batch == right_batch == list(range(num)) and right == [num]
    in_order &= left == [ranks[0] - 1] and ranks[1] == num + 2 and (not num or ranks[0] == num + 2)
    if in_order:
        return [graph.op("MatMul", x[0].name, x[1].name)]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(letters) for _ in range(ranks[0])]
    shared = dict(zip([*right_batch, *right], [*left_batch, *left], strict=True))
    second = [first[shared[i]] if i in shared else next(letters) for i in range(ranks[1])]
    summed = {first[axis] for axis in left}
    batch = [first[axis] for axis in left_batch]
    rest = [a for a in first if a not in batch] + [a for a in second if a not in first]
    out = batch + [a for a in rest if a not in summed]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(out)}"
    return [graph.op("Einsum", x[0].name, x[1].name, equation=equation)]


def _conv(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    numbers = params["dimension_numbers"]
    if set(params["lhs_dilation"]) - {1} or params["batch_group_count"] != 1:
        raise UnsupportedError("`conv_general_dilated` with a dilated input")
    found = graph.op(
        "Conv",
        _transpose(graph, x[0].name, numbers["lhs_spec"]),
        _transpose(graph, x[1].name, numbers["rhs_spec"]),
        strides=params["window_strides"],
        pads=[pair[end] for end in (0, 1) for pair in params["padding"]],
        dilations=params["rhs_dilation"],
        group=params["feature_group_count"],
    )
    return [_transpose(graph, found, np.argsort(numbers["out_spec"]).tolist())]


def _pool(kind: str) -> Node:
    """Reduce windows of axes of space, between the first axis and the last one."""

    def write(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
        window, strides, padding = (
            params[name] for name in ("window_dimensions", "window_strides", "padding")
        )
        dilated = set(params["base_dilation"]) | set(params["window_dilation"])
        ends = [window[0], window[-1], *padding[0], *padding[-1]]
        if dilated != {1} or ends != [1, 1, 0, 0, 0, 0] or len(window) < 3:
            raise UnsupportedError("pooling of the first or the last axis")
        rank = len(window)
        moved = graph.op("Transpose", x[0].name, perm=[0, rank - 1, *range(1, rank - 1)])
        more = {"count_include_pad": 1} if kind == "AveragePool" else {}
        found = graph.op(
            kind,
            moved,
            kernel_shape=window[1:-1],
            strides=strides[1:-1],
            pads=[pair[end] for end in (0, 1) for pair in padding[1:-1]],
            **more,
        )
        if kind == "AveragePool":
            found = graph.op("Mul", found, one(graph, results[0][0], math.prod(window)))
        return [graph.op("Transpose", found, perm=[0, *range(2, rank), 1])]

    return write


def _gather(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    (operand, indices), numbers = x, params["dimension_numbers"]
    # `vmap` over a single policy makes such axes, of size 1.
    paired = numbers["operand_batching_dims"]
    if any(str(operand.shape[axis]) != "1" for axis in paired):
        raise UnsupportedError("`gather` along the batch")
    kept = [axis for axis in range(len(operand.shape)) if axis not in paired]
    sizes, shape = ([own[axis] for axis in kept] for own in (params["slice_sizes"], operand.shape))
    if paired:
        name = graph.reshape(operand.name, operand.shape, shape)
        operand = operand._replace(name=name, shape=tuple(shape))
    axes, collapsed = (
        [kept.index(axis) for axis in numbers[name]]
        for name in ("start_index_map", "collapsed_slice_dims")
    )
    if len(indices.shape) == 1:
        begins = graph.cast(indices.name, "int64")
        cut = _window(graph, operand, begins, (axes, sizes))
        return [graph.reshape(cut, sizes, results[0][1])]
    whole = [axis for axis, size in enumerate(sizes) if str(size) == str(operand.shape[axis])]
    others = [axis for axis in range(len(sizes)) if axis not in axes]
    if len(axes) != 1 or collapsed != axes or not set(others) <= set(whole):
        raise UnsupportedError("`gather` by indices of several axes")
    (axis,) = axes
    index = graph.reshape(indices.name, indices.shape, indices.shape[:-1])
    last = graph.constant(np.array(operand.shape[axis] - 1, indices.kind))
    inside = graph.op("Min", graph.op("Max", index, one(graph, indices.kind, 0)), last)
    found = graph.op("Gather", operand.name, inside, axis=axis)
    rank, num = len(operand.shape), len(indices.shape) - 1
    if params["mode"] == "fill_or_drop":
        axes_after = list(range(num, num + rank - 1 - axis))
        is_known = graph.op("Equal", index, inside)
        if axes_after:
            is_known = graph.op("Unsqueeze", is_known, graph.integers(axes_after))
        if operand.kind != "float32":
            raise UnsupportedError("`gather` of integers that fills in others")
        found = graph.op("Where", is_known, found, one(graph, "float32", math.nan))
    # The axes of the indices stand where the axis was; JAX may want them elsewhere.
    offsets = numbers["offset_dims"]
    order = [0] * (rank - 1 + num)
    for place, offset in enumerate(offsets):
        order[offset] = place if place < axis else place + num
    batch = (i for i in range(len(order)) if i not in offsets)
    for place, own in enumerate(batch):
        order[own] = axis + place
    return [_transpose(graph, found, order)]


def _dynamic_slice(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    (operand, *starts), sizes = x, params["slice_sizes"]
    # A window as long as its axis begins at 0.
    axes = [i for i, size in enumerate(sizes) if str(size) != str(operand.shape[i])]
    begins = [graph.cast(graph.reshape(starts[i].name, [], [1]), "int64") for i in axes]
    joined = graph.op("Concat", *begins, axis=0)
    return [_window(graph, operand, joined, (axes, sizes))]


def _window(
    graph: GraphBuilder,
    operand: Value,
    begins: str,
    window: tuple[Sequence[int], Sequence[Any]],
) -> str:
    """Cut a window out of an array.

    Args:
        graph: of them.
        operand: the array.
        begins: where it begins along some axes, `[N]` int64; moved to where all of it is inside.
        window: these axes, and the sizes of the window along all axes.
    """
    axes, sizes = window
    if all(str(a) == str(b) for a, b in zip(sizes, operand.shape, strict=True)):
        return operand.name
    rest = [axis for axis in range(len(sizes)) if axis not in axes]
    sliced = [sizes[axis] for axis in axes]
    cut = [axis for axis in rest if str(sizes[axis]) != str(operand.shape[axis])]
    if cut or any(map(is_symbolic_dim, sliced)):
        raise UnsupportedError("a slice of the batch")
    most = [operand.shape[axis] - sizes[axis] for axis in axes]
    if begins in graph.arrays:
        begins = graph.integers(np.clip(graph.arrays[begins], 0, most))
        ends = graph.integers(graph.arrays[begins] + sliced)
    else:
        begins = graph.op("Max", begins, graph.integers([0]))
        begins = graph.op("Min", begins, graph.integers(most))
        ends = graph.op("Add", begins, graph.integers(sliced))
    return graph.op("Slice", operand.name, begins, ends, graph.integers(axes))


def _split(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    sizes = graph.integers([shape[params["axis"]] for _, shape in results])
    if len(results) == 1:
        return [x[0].name]
    return graph.op("Split", x[0].name, sizes, num_outputs=len(results), axis=params["axis"])


def _unstack(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    each = [(dtype, (*shape[: params["axis"]], 1)) for dtype, shape in results]
    parts = _split(graph, x, each, params)
    axes = graph.integers([params["axis"]])
    return [graph.op("Squeeze", part, axes) for part in parts]


def _stack(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    axes = graph.integers([params["axis"]])
    parts = [graph.op("Unsqueeze", own.name, axes) for own in x]
    return [graph.op("Concat", *parts, axis=params["axis"])]


def _cumulate(graph: GraphBuilder, x: Operands, results: Results, params: Params) -> list[str]:
    axis = graph.constant(np.array(params["axis"]))
    return [graph.op("CumSum", x[0].name, axis, reverse=int(params["reverse"]))]


NODES: dict[str, Node] = {
    "argmax": _extreme("ArgMax", math.inf),
    "argmin": _extreme("ArgMin", -math.inf),
    "concatenate": lambda graph, x, results, params: [
        graph.op("Concat", *(own.name for own in x), axis=params["dimension"])
    ],
    "conv_general_dilated": _conv,
    "cumsum": _cumulate,
    "dim_as_value": lambda graph, x, results, params: [
        graph.cast(graph.reshape(graph.sizes([params["dim"]]), [1], []), results[0][0])
    ],
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce_and": _reduce("ReduceMin"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_or": _reduce("ReduceMax"),
    "reduce_prod": _reduce("ReduceProd"),
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_window_max": _pool("MaxPool"),
    "reduce_window_sum": _pool("AveragePool"),
    "reshape": lambda graph, x, results, params: [
        graph.reshape(x[0].name, x[0].shape, results[0][1])
    ],
    "rev": _reverse,
    "slice": _slice,
    "split": _split,
    "stack": _stack,
    "tile": lambda graph, x, results, params: [
        graph.op("Tile", x[0].name, graph.integers(params["reps"]))
    ],
    "transpose": _permute,
    "unstack": _unstack,
}
_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
_OWN: dict[str, tuple[str, ...]] = {
    "conv_general_dilated": (*PORTABLE["conv_general_dilated"], "batch_group_count"),
    "dim_as_value": ("dim",),
    "reduce_window_max": _WINDOW,
    "reduce_window_sum": _WINDOW,
    "round": ("rounding_method",),
    "tile": ("reps",),
}
# Names of the primitives that can be written, with their parameters.
KNOWN: dict[str, tuple[str, ...]] = {
    name: _OWN.get(name, PORTABLE.get(name, ()))
    for name in (*ELEMENTWISE, *NODES, "broadcast_in_dim")
}
