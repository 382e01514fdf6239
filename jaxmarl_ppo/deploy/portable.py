"""JAX functions as plain data: a list of steps, for the script of a page and for ONNX.

A function is traced and its calls are inlined, which leaves JAX primitives on arrays of a few
types. So whoever reads the steps computes the same function, including rules and random numbers,
not a second implementation.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim
from jax.extend import core

# Names of the JAX primitives that a page's script computes, with their parameters.
_SAME = (
    "add and clamp concatenate cos div dot_general eq exp expm1 floor ge gt le le_to log "
    "log1p logistic lt lt_to max min mul ne neg not or population_count pow rem round rsqrt "
    "select_n sign sin sqrt square sub tan tanh xor abs ceil exp2 is_finite shift_left "
    "shift_right_logical shift_right_arithmetic clz"
)
KNOWN: dict[str, tuple[str, ...]] = dict.fromkeys(_SAME.split(), ()) | {
    "argmax": ("axes",),
    "argmin": ("axes",),
    "bitcast_convert_type": (),
    "broadcast_in_dim": ("broadcast_dimensions",),
    "concatenate": ("dimension",),
    "conv_general_dilated": (
        "window_strides",
        "padding",
        "lhs_dilation",
        "rhs_dilation",
        "feature_group_count",
        "dimension_numbers",
    ),
    "convert_element_type": (),
    "cummax": ("axis", "reverse"),
    "cummin": ("axis", "reverse"),
    "cumprod": ("axis", "reverse"),
    "cumsum": ("axis", "reverse"),
    "dot_general": ("dimension_numbers",),
    "dynamic_slice": ("slice_sizes",),
    "dynamic_update_slice": (),
    "gather": ("dimension_numbers", "slice_sizes", "mode"),
    "integer_pow": ("y",),
    "iota": ("dimension",),
    "pad": ("padding_config",),
    "random_bits": ("bit_width", "shape"),
    "random_fold_in": (),
    "random_split": ("shape",),
    "random_unwrap": (),
    "random_wrap": (),
    "reduce_and": ("axes",),
    "reduce_max": ("axes",),
    "reduce_min": ("axes",),
    "reduce_or": ("axes",),
    "reduce_prod": ("axes",),
    "reduce_sum": ("axes",),
    "reshape": (),
    "rev": ("dimensions",),
    "scatter": ("dimension_numbers", "mode"),
    "scatter-add": ("dimension_numbers", "mode"),
    "slice": ("start_indices", "strides"),
    "sort": ("dimension", "num_keys"),
    "split": ("axis",),
    "stack": ("axis",),
    "tile": (),
    "transpose": ("permutation",),
    "unstack": ("axis",),
}
# These have no effect in the script.
_IDENTITIES = {"copy", "copy_p", "device_put", "optimization_barrier", "stop_gradient"}
_RENAMED = {"squeeze": "reshape", "expand_dims": "reshape", "scatter-add": "scatter_add"}
# Calls, with the name of the parameter that holds the called function.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
_DTYPES = {"float32", "int32", "uint32", "bool", "int8", "uint8", "int16", "uint16"}
_THREEFRY = {"key<fry>", "key<unrolled>"}


def portable_program(fn: Callable[..., Any], *examples: Any) -> dict[str, Any]:
    """Trace a function and convert it to data.

    Args:
        fn: takes and returns pytrees of arrays.
        examples: arguments with the shapes and types of later calls.

    Returns:
        Input of the script's `compute`: flat inputs, flat outputs, constants and steps.

    Raises:
        ValueError: If it uses what the script cannot compute.
    """
    return ProgramWriter().write(jax.make_jaxpr(fn)(*examples))


def portable_array(array: Any) -> dict[str, Any]:
    """Convert an array to type, shape and little-endian bytes."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        words = np.asarray(jax.random.key_data(array))
        found = {"kind": "key", "shape": list(words.shape[:-1])}
    else:
        words = np.asarray(array)
        if str(words.dtype) not in _DTYPES:
            raise ValueError(f"a page cannot compute with numbers of type {words.dtype}")
        found = {"kind": str(words.dtype), "shape": list(words.shape)}
    data = np.ascontiguousarray(words, words.dtype.newbyteorder("<")).tobytes()
    return {**found, "data": base64.b64encode(data).decode()}


class ProgramWriter:
    """Converts a traced function to data, with one number for every value in it.

    This is the form for pages; subclasses change it for other readers.

    Attributes:
        known: names of the primitives that the reader computes, with their parameters.
    """

    known: Mapping[str, tuple[str, ...]] = KNOWN

    def __init__(self) -> None:
        self.constants: list[list[Any]] = []  # number, array
        self._count = 0
        self._literals: dict[Any, int] = {}

    def write(self, closed: core.ClosedJaxpr) -> dict[str, Any]:
        """Convert a traced function: flat inputs, flat outputs, constants and steps.

        Raises:
            ValueError: If it uses what the reader cannot compute.
        """
        jaxpr = closed.jaxpr
        body = self.body(jaxpr, self.add_consts(jaxpr.constvars, closed.consts))
        inputs = [self.kind(var.aval) for var in jaxpr.invars]
        return {"constants": self.constants, "inputs": inputs, **body}

    def kind(self, aval: Any) -> list[Any]:
        """Describe the type and the shape of a value."""
        name = str(aval.dtype)
        if name not in _DTYPES and name not in _THREEFRY:
            raise ValueError(f"a page cannot compute with numbers of type {name}")
        return ["key" if name in _THREEFRY else name, [int(size) for size in aval.shape]]

    def array(self, value: Any) -> Any:
        """Convert a constant."""
        return portable_array(value)

    def add_consts(self, variables: Sequence[Any], values: Sequence[Any]) -> dict[Any, int]:
        """Add constants, and return the number of each."""
        return {var: self._add(value) for var, value in zip(variables, values, strict=True)}

    def body(self, jaxpr: Any, known: dict[Any, int]) -> dict[str, Any]:
        """Convert a function, given the numbers of its constants."""
        numbers = {**known, **{var: self._number() for var in jaxpr.invars}}
        steps: list[list[Any]] = []
        out = self._write(jaxpr, numbers, steps)
        inputs = [numbers[var] for var in jaxpr.invars]
        return {"in": inputs, "out": out, "steps": _needed(steps, out)}

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def _add(self, value: Any) -> int:
        number = self._number()
        self.constants.append([number, self.array(value)])
        return number

    def _read(self, atom: Any, numbers: dict[Any, int]) -> int:
        if not isinstance(atom, core.Literal):
            return numbers[atom]
        aval: Any = atom.aval
        value = np.asarray(atom.val, aval.dtype)
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self._literals:
            self._literals[key] = self._add(value)
        return self._literals[key]

    def _write(self, jaxpr: Any, numbers: dict[Any, int], steps: list[list[Any]]) -> list[int]:
        for eqn in jaxpr.eqns:
            name, inputs = eqn.primitive.name, [self._read(x, numbers) for x in eqn.invars]
            if name in _CALLS:
                numbers.update(zip(eqn.outvars, self._inline(eqn, inputs, steps), strict=True))
            elif name in _IDENTITIES:
                numbers.update(zip(eqn.outvars, inputs, strict=True))
            else:
                if name == "reshape" and eqn.params["dimensions"] is not None:
                    inputs = [self._turn(eqn, inputs[0], steps)]
                out = [self._number() for _ in eqn.outvars]
                numbers.update(zip(eqn.outvars, out, strict=True))
                kinds = [self.kind(var.aval) for var in eqn.outvars]
                steps.append([_RENAMED.get(name, name), inputs, out, kinds, self.params(eqn)])
        return [self._read(x, numbers) for x in jaxpr.outvars]

    def _turn(self, eqn: Any, number: int, steps: list[list[Any]]) -> int:
        """Write a transposition before a reshape of permuted axes."""
        order, (kind, shape) = _plain(eqn.params["dimensions"]), self.kind(eqn.invars[0].aval)
        turned, kinds = self._number(), [[kind, [shape[d] for d in order]]]
        steps.append(["transpose", [number], [turned], kinds, {"permutation": order}])
        return turned

    def _inline(self, eqn: Any, inputs: list[int], steps: list[list[Any]]) -> list[int]:
        called = eqn.params[_CALLS[eqn.primitive.name]]
        called = called if isinstance(called, core.ClosedJaxpr) else core.ClosedJaxpr(called, [])
        known = self.add_consts(called.jaxpr.constvars, called.consts)
        known.update(zip(called.jaxpr.invars, inputs, strict=True))
        return self._write(called.jaxpr, known, steps)

    def params(self, eqn: Any) -> dict[str, Any]:
        """List the parameters of a primitive."""
        name, params = eqn.primitive.name, eqn.params
        if name == "cond":
            return {"branches": [self._closed(branch) for branch in params["branches"]]}
        if name == "while":
            return {
                "cond": self._closed(params["cond_jaxpr"]),
                "body": self._closed(params["body_jaxpr"]),
                "consts": [params["cond_nconsts"], params["body_nconsts"]],
            }
        if name == "scan":
            return {
                "body": self._closed(params["jaxpr"]),
                "reverse": params["reverse"],
                "length": int(params["length"]),
                **_scan_sizes(eqn),
            }
        if name in ("squeeze", "expand_dims"):
            return {}
        if name not in self.known:
            raise ValueError(f"a page cannot compute `{name}`, which this function uses")
        return {key: _plain(params[key]) for key in self.known[name]}

    def _closed(self, closed: Any) -> dict[str, Any]:
        return self.body(closed.jaxpr, self.add_consts(closed.jaxpr.constvars, closed.consts))


def _scan_sizes(eqn: Any) -> dict[str, int]:
    """Count a scan's constants and carried values; versions of JAX name the counts differently.

    Scanned arrays have one axis more outside than inside.
    """
    body = eqn.params["jaxpr"].jaxpr
    scanned = [
        len(outer.aval.shape) > len(inner.aval.shape)
        for outer, inner in zip(eqn.invars, body.invars, strict=True)
    ]
    num_carry = sum(
        len(outer.aval.shape) == len(inner.aval.shape)
        for outer, inner in zip(eqn.outvars, body.outvars, strict=True)
    )
    return {"num_consts": len(scanned) - sum(scanned) - num_carry, "num_carry": num_carry}


def _plain(value: Any) -> Any:
    """Convert a parameter of a primitive to a JSON value."""
    if value is None or isinstance(value, bool | str) or is_symbolic_dim(value):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, tuple | list):
        if hasattr(value, "_fields"):
            return {key: _plain(getattr(value, key)) for key in value._fields}  # pyright: ignore[reportAttributeAccessIssue]
        return [_plain(child) for child in value]
    if hasattr(value, "name"):  # an enumeration
        return str(value.name).lower()
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "__dict__"):
        return {key: _plain(child) for key, child in vars(value).items()}
    raise ValueError(f"a page cannot read {value!r}")


def _needed(steps: list[list[Any]], out: Sequence[int]) -> list[list[Any]]:
    """Keep the steps whose results are used."""
    used, kept = set(out), []
    for step in reversed(steps):
        if used.isdisjoint(step[2]):
            continue
        kept.append(step)
        used.update(step[1])
    return kept[::-1]
