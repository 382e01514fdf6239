"""Operations of traced programs evaluated with NumPy: one small function for each.

A rule in `RULES` has the name of its operation. It gets the operation's parameters and arguments,
and returns what the operation would, or `NotImplemented` where JAX is to be asked.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.check.values import Value, keys_from_words, words_of_keys
from jaxmarl_envs.threefry import threefry_rounds

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function `(params, *args)` as the rule for the operations of these names."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "ceil": np.ceil,
    "copy": np.asarray,
    "copy_p": np.asarray,
    "cos": np.cos,
    "eq": np.equal,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "pow": np.power,
    "rem": np.fmod,
    "shift_left": np.left_shift,
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": np.asarray,
    "sub": np.subtract,
    "tanh": np.tanh,
    "xor": np.bitwise_xor,
}
_REDUCTIONS: dict[str, Any] = {
    "reduce_and": np.bitwise_and,
    "reduce_max": np.maximum,
    "reduce_min": np.minimum,
    "reduce_or": np.bitwise_or,
    "reduce_prod": np.multiply,
    "reduce_sum": np.add,
    "reduce_xor": np.bitwise_xor,
}


def _elementwise(function: Callable[..., Any]) -> Rule:
    return lambda params, *args: function(*args)


def _reduction(function: Any) -> Rule:
    return lambda params, x: function.reduce(x, axis=tuple(params["axes"]), dtype=x.dtype)


RULES.update({name: _elementwise(function) for name, function in _ELEMENTWISE.items()})
RULES.update({name: _reduction(function) for name, function in _REDUCTIONS.items()})


@rule("div")
def _div(params: Any, x: Value, y: Value) -> Any:
    if np.issubdtype(x.dtype, np.inexact):
        return x / y
    # Towards zero, where NumPy rounds down; a division by zero gives -1.
    quotient = np.trunc(np.true_divide(x, np.where(y == 0, 1, y), dtype=np.float64))
    return np.where(y == 0, -1, quotient) if x.dtype.itemsize <= 4 else NotImplemented


@rule("shift_right_logical")
def _shift_right(params: Any, x: Value, y: Value) -> Any:
    return np.right_shift(x, y) if np.issubdtype(x.dtype, np.unsignedinteger) else NotImplemented


@rule("integer_pow")
def _integer_pow(params: Any, x: Value) -> Any:
    return x ** params["y"] if params["y"] >= 0 else 1 / x ** -params["y"]


@rule("convert_element_type")
def _convert(params: Any, x: Value) -> Any:
    return x.astype(params["new_dtype"])


@rule("bitcast_convert_type")
def _bitcast(params: Any, x: Value) -> Any:
    same = np.dtype(params["new_dtype"]).itemsize == x.dtype.itemsize
    return np.asarray(x, order="C").view(params["new_dtype"]) if same else NotImplemented


@rule("clamp")
def _clamp(params: Any, low: Value, x: Value, high: Value) -> Any:
    return np.minimum(np.maximum(x, low), high)


@rule("select_n")
def _select(params: Any, which: Value, *cases: Value) -> Any:
    if which.dtype == bool and len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return NotImplemented


@rule("optimization_barrier")
def _barrier(params: Any, *args: Value) -> Any:
    return args


@rule("iota")
def _iota(params: Any) -> Any:
    shape, axis = params["shape"], params["dimension"]
    count = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return np.broadcast_to(count, shape)


@rule("broadcast_in_dim")
def _broadcast(params: Any, x: Value) -> Any:
    shape = [1] * len(params["shape"])
    for size, axis in zip(x.shape, params["broadcast_dimensions"], strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), params["shape"])


@rule("squeeze")
def _squeeze(params: Any, x: Value) -> Any:
    return np.squeeze(x, tuple(params["dimensions"]))


@rule("reshape")
def _reshape(params: Any, x: Value) -> Any:
    return x.reshape(params["new_sizes"])


@rule("transpose")
def _transpose(params: Any, x: Value) -> Any:
    return x.transpose(params["permutation"])


@rule("rev")
def _rev(params: Any, x: Value) -> Any:
    return np.flip(x, tuple(params["dimensions"]))


@rule("concatenate")
def _concatenate(params: Any, *args: Value) -> Any:
    return np.concatenate(args, params["dimension"])


@rule("stack")
def _stack(params: Any, *args: Value) -> Any:
    return np.stack(args, params["axis"])


@rule("slice")
def _slice(params: Any, x: Value) -> Any:
    strides = params["strides"] or (1,) * x.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return x[tuple(slice(*bound) for bound in bounds)]


@rule("dynamic_slice")
def _dynamic_slice(params: Any, x: Value, *starts: Value) -> Any:
    return x[_window(x, starts, params["slice_sizes"])]


@rule("dynamic_update_slice")
def _dynamic_update_slice(params: Any, x: Value, update: Value, *starts: Value) -> Any:
    changed = x.copy()
    changed[_window(x, starts, update.shape)] = update
    return changed


def _window(x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Find a window of these sizes, moved to lie within the array."""
    firsts = (
        min(max(int(start), 0), length - size)
        for start, length, size in zip(starts, x.shape, sizes, strict=True)
    )
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


@rule("argmax")
def _argmax(params: Any, x: Value) -> Any:
    return np.argmax(x, params["axes"][0])


@rule("argmin")
def _argmin(params: Any, x: Value) -> Any:
    return np.argmin(x, params["axes"][0])


@rule("cumsum")
def _cumsum(params: Any, x: Value) -> Any:
    return NotImplemented if params["reverse"] else np.cumsum(x, params["axis"], dtype=x.dtype)


@rule("gather")
def _gather(params: Any, x: Value, indices: Value) -> Any:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    batch = indices.shape[:-1]
    fills = "FILL" in str(params["mode"])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(x.ndim) if axis not in dropped]
    inside = np.ones(batch, bool)
    places = []
    for axis, (length, size) in enumerate(zip(x.shape, sizes, strict=True)):
        start = np.zeros(batch, np.int64)
        if axis in numbers.start_index_map:
            start = indices[..., numbers.start_index_map.index(axis)].astype(np.int64)
            inside &= (start >= 0) & (start <= length - size)
            start = np.clip(start, 0, length - size)
        elif axis in numbers.operand_batching_dims:
            along = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(axis)]
            start = np.broadcast_to(
                np.moveaxis(np.arange(length)[(...,) + (None,) * (len(batch) - 1)], 0, along), batch
            )
        shape = [1] * len(kept)
        if axis in kept:
            shape[kept.index(axis)] = size
        places.append(start.reshape(*batch, *[1] * len(kept)) + np.arange(size).reshape(shape))
    found = x[tuple(places)]
    if fills and not inside.all():
        if x.dtype.kind == "V":
            return NotImplemented
        inside = inside.reshape(*batch, *[1] * len(kept))
        found = np.where(inside, found, _filling(params["fill_value"], x.dtype))
    return np.moveaxis(found, range(len(batch), found.ndim), numbers.offset_dims)


def _filling(value: Any, dtype: np.dtype) -> Any:
    """Choose what stands for an element that is not there, as `jax.lax.gather` does."""
    if value is not None:
        return value
    if np.issubdtype(dtype, np.inexact):
        return np.nan
    if dtype.kind == "b":
        return True
    info = np.iinfo(dtype)
    return info.max if info.min == 0 else info.min


# ---- Random numbers ------------------------------------------------------------------------------


@rule("random_wrap")
def _random_wrap(params: Any, words: Value) -> Any:
    return keys_from_words(words)


@rule("random_unwrap")
def _random_unwrap(params: Any, keys: Value) -> Any:
    return words_of_keys(keys)


@rule("random_bits")
def _random_bits(params: Any, keys: Value) -> Any:
    if params["bit_width"] != 32:
        return NotImplemented
    high, low = _hash_places(keys, params["shape"])
    return high ^ low


@rule("random_split")
def _random_split(params: Any, keys: Value) -> Any:
    return keys_from_words(np.stack(_hash_places(keys, params["shape"]), axis=-1))


@rule("random_fold_in")
def _random_fold_in(params: Any, keys: Value, data: Value) -> Any:
    words = words_of_keys(keys)
    low = np.asarray(data).astype(np.uint32)
    hashed = threefry_rounds((words[..., 0], words[..., 1]), (np.zeros_like(low), low))
    return keys_from_words(np.stack(hashed, axis=-1))


def _hash_places(keys: Value, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Hash the place of every entry of an array of `shape`, for each of `keys [...]`."""
    words = words_of_keys(keys).reshape(*keys.shape, *(1,) * len(shape), -1)
    low = np.arange(np.prod(shape, dtype=int), dtype=np.uint32).reshape(shape)
    return threefry_rounds((words[..., 0], words[..., 1]), (np.zeros_like(low), low))
