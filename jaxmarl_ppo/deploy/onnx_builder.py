"""Nodes and constants of an ONNX graph, and arrays in it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.export import is_symbolic_dim


class UnsupportedError(ValueError):
    """A function cannot be written as ONNX."""

    def __init__(self, what: str) -> None:
        super().__init__(f"an ONNX file cannot compute {what}")


class Value(NamedTuple):
    """An array in the graph.

    Attributes:
        name: in the graph.
        kind: its type, as NumPy calls it.
        shape: as JAX has it, in which the number of rows is symbolic.
        held: the shape in the graph, which broadcasts to `shape`.
    """

    name: str
    kind: str
    shape: tuple[Any, ...]
    held: tuple[Any, ...]


class GraphBuilder:
    """Collects the nodes and constants of a graph.

    Args:
        onnx: the package.
        rows: the symbolic number of rows, `B`.
        counted: an input whose first axis is `B` long.
    """

    def __init__(self, onnx: Any, rows: Any, counted: str) -> None:
        self._onnx, self._rows, self._counted = onnx, rows, counted
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}  # constants by name
        self._named: dict[Any, str] = {}  # names by content
        self._computed: dict[Any, Any] = {}  # names by node
        # The array that a reshape began with, and its shape, by the result's name.
        self._origins: dict[str, tuple[str, tuple[Any, ...]]] = {}

    def keep_needed(self, outputs: Sequence[str]) -> None:
        """Drop the nodes and constants that outputs do not depend on."""
        used, kept = set(outputs), []
        for node in reversed(self.nodes):
            if not used.isdisjoint(node.output):
                kept.append(node)
                used.update(node.input)
        self.nodes = kept[::-1]
        self.constants = [constant for constant in self.constants if constant.name in used]

    def node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any):
        """Add a node."""
        node = self._onnx.helper.make_node(kind, inputs, outputs, **attributes)
        self.nodes.append(node)

    def op(self, kind: str, *inputs: str, num_outputs: int = 1, **attributes: Any) -> Any:
        """Add a node, once, and return the name of its output, or a list of several."""
        key = (kind, inputs, num_outputs, str(attributes))
        if key not in self._computed:
            names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(num_outputs)]
            self.node(kind, inputs, names, **attributes)
            self._computed[key] = names[0] if num_outputs == 1 else names
        return self._computed[key]

    def cast(self, name: str, kind: str) -> str:
        """Convert to another type."""
        if name in self.arrays:
            return self.constant(self.arrays[name].astype(kind))
        dtype = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.op("Cast", name, to=dtype)

    def constant(self, array: Any) -> str:
        """Add a constant, once, and return its name."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._named:
            name = self._named[key] = f"constant_{len(self._named)}"
            self.arrays[name] = array
            self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return self._named[key]

    def integers(self, numbers: Sequence[int] | np.ndarray) -> str:
        """Add a constant of axes, sizes or indices, `[N]` int64."""
        return self.constant(np.array(numbers, np.int64))

    def full(self, value: Value) -> str:
        """Return the name of a value in its full shape."""
        if _same(value.held, value.shape):
            return value.name
        if value.name in self.arrays and not any(map(is_symbolic_dim, value.shape)):
            return self.constant(np.broadcast_to(self.arrays[value.name], value.shape))
        return self.op("Expand", value.name, self.sizes(value.shape))

    def sizes(self, shape: Sequence[Any]) -> str:
        """Compute a shape, `[N]` int64."""
        if not any(map(is_symbolic_dim, shape)):
            return self.integers(shape)
        names = [self._size(x) if is_symbolic_dim(x) else self.integers([x]) for x in shape]
        return self.op("Concat", *names, axis=0) if len(names) > 1 else names[0]

    def _size(self, size: Any) -> str:
        """Compute a multiple of the number of rows, `[1]` int64.

        Raises:
            ValueError: If it is no multiple.
        """
        factor = size // self._rows
        if is_symbolic_dim(factor) or factor * self._rows != size:
            raise UnsupportedError(f"an axis of {size}")
        rows = self.op("Shape", self._counted, start=0, end=1)
        return rows if factor == 1 else self.op("Mul", rows, self.integers([factor]))

    def reshape(self, name: str, own: Sequence[Any], shape: Sequence[Any]) -> str:
        """Reshape an array from its own shape; several reshapes become one, or none."""
        name, own = self._origins.get(name, (name, tuple(own)))
        if _same(own, shape):
            return name
        numbers = [-1 if is_symbolic_dim(size) else size for size in shape]
        if name in self.arrays and -1 not in numbers:
            return self.constant(self.arrays[name].reshape(numbers))
        # -1 marks a size to be found, unless there are several, or no numbers at all.
        plain = numbers.count(-1) <= 1 and 0 not in numbers
        sizes = self.integers(numbers) if plain else self.sizes(shape)
        found = self.op("Reshape", name, sizes, allowzero=int(not plain))
        self._origins[found] = name, own
        return found


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Compare shapes, in which a symbolic size equals nothing but itself."""
    return list(map(str, a)) == list(map(str, b))
