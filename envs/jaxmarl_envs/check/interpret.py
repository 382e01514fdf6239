"""Traced functions evaluated with NumPy, one operation after the other, without the compiler.

Compiling an environment takes seconds, evaluating a few of its ticks like this milliseconds. What
NumPy has no counterpart for is handed to JAX, which compiles that one operation. Results are those
of the compiled function up to the rounding of floats, random draws included.

Keys are arrays of one opaque element (`np.void`) for each key, so that all that moves elements
about moves keys too.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from jaxmarl_envs.threefry import threefry_rounds

_PREPARED_BY_JAX = 1000  # operations in whose time JAX compiles one that it has not seen
_ELEMENTS = 10_000  # in an array that counts as one more operation
_THREEFRY = ("key<fry>", "key<unrolled>")  # types of keys that draw the same numbers
_DRAWS = ("random_bits", "random_split", "random_fold_in")

Value = np.ndarray
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


class OutOfBudget(Exception):  # noqa: N818
    """Evaluating on would take too long, or has effects outside the program."""


class Interpreter:
    """Evaluates traced functions until a number of operations is used up.

    Args:
        budget: operations that all calls together may take; each is some twenty microseconds.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._prepared: set[Any] = set()
        self._debug_info: Any = None

    def __call__(self, traced: ClosedJaxpr, args: Sequence[Any]) -> list[Value]:
        """Evaluate a traced function.

        Args:
            traced: what `jax.make_jaxpr` returns.
            args: a number or array for each of its inputs.

        Returns:
            An array for each of its outputs.

        Raises:
            OutOfBudget: the budget is used up, or an operation has effects.
        """
        values = [_as_array(x, v.aval) for x, v in zip(args, traced.jaxpr.invars, strict=True)]
        self._debug_info = traced.jaxpr.debug_info
        with np.errstate(all="ignore"), _on_host():
            return self.closed(traced, values)

    def closed(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        """Evaluate a function within the one that was asked for."""
        jaxpr, consts = opened(closed)
        return self._run(jaxpr, consts, args)

    def _run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Value]) -> list[Value]:
        known: dict[Any, Value] = dict(zip(jaxpr.invars, args, strict=True))
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            known[var] = _as_array(const, var.aval)

        def read(atom: Any) -> Value:
            return _as_array(atom.val, atom.aval) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            results = self._evaluate(eqn, [read(atom) for atom in eqn.invars])
            for var, result in zip(eqn.outvars, results, strict=True):
                known[var] = _as_array(result, var.aval)
        return [read(atom) for atom in jaxpr.outvars]

    def _evaluate(self, eqn: JaxprEqn, args: list[Value]) -> Sequence[Any]:
        if eqn.effects:
            raise OutOfBudget(f"{eqn.primitive.name} has effects")
        self._spend(1 + sum(x.size for x in args) // _ELEMENTS)
        name = eqn.primitive.name
        if name in _CALLS:
            return self.closed(eqn.params[_CALLS[name]], args)
        if name in _CONTROL:
            return _CONTROL[name](self, eqn.params, args)
        known = name in RULES and (name not in _DRAWS or _is_threefry(eqn.invars[0].aval))
        result = RULES[name](eqn.params, *args) if known else NotImplemented
        if result is NotImplemented:
            return self._ask_jax(eqn, args)
        return result if eqn.primitive.multiple_results else [result]

    def _spend(self, operations: int) -> None:
        self.budget -= operations
        if self.budget < 0:
            raise OutOfBudget("too many operations")

    def _ask_jax(self, eqn: JaxprEqn, args: list[Value]) -> Sequence[Any]:
        shapes = tuple((x.shape, x.dtype.str) for x in args)
        asked = (eqn.primitive.name, shapes, str(eqn.params))
        if asked not in self._prepared:
            self._spend(_PREPARED_BY_JAX)
            self._prepared.add(asked)
        inputs = {
            atom: _as_keys(x, atom.aval)
            for atom, x in zip(eqn.invars, args, strict=True)
            if not isinstance(atom, Literal)
        }
        alone = Jaxpr((), list(inputs), eqn.outvars, [eqn], debug_info=self._debug_info)
        return jaxpr_as_fun(ClosedJaxpr(alone, ()))(*inputs.values())


def opened(closed: ClosedJaxpr | Jaxpr) -> tuple[Jaxpr, list[Any]]:
    """Split a program into its operations and the values of its constants.

    Before JAX 0.11 a `Jaxpr` has no constants of its own, and since then both classes are one,
    whose `jaxpr` is itself.
    """
    jaxpr: Any = getattr(closed, "jaxpr", closed)
    return jaxpr, list(getattr(closed, "consts", ()))


# ---- Values --------------------------------------------------------------------------------------


def is_key(aval: Any) -> bool:
    """Tell whether a traced value is an array of keys."""
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def keys_from_words(words: np.ndarray) -> Value:
    """Turn words `[..., W]` of any unsigned type into keys `[...]`."""
    words = np.asarray(words, order="C")
    dtype = np.dtype((np.void, words.dtype.itemsize * words.shape[-1]))
    return words.view(dtype)[..., 0]


def words_of_keys(keys: Value) -> np.ndarray:
    """Turn keys `[...]` into their words `[..., W]` uint32."""
    return np.asarray(keys, order="C")[..., None].view(np.uint32)


def _is_threefry(aval: Any) -> bool:
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    return partitionable and str(aval.dtype) in _THREEFRY


def _as_array(x: Any, aval: Any) -> Value:
    if not is_key(aval):
        return np.asarray(x, aval.dtype)
    return x if isinstance(x, np.ndarray) else keys_from_words(np.asarray(jax.random.key_data(x)))


def _as_keys(x: Value, aval: Any) -> Any:
    if not is_key(aval):
        return x
    return jax.random.wrap_key_data(jnp.asarray(words_of_keys(x)), impl=aval.dtype._impl)


@contextlib.contextmanager
def _on_host() -> Iterator[None]:
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX has been told to leave the CPU alone
        device = None
    with jax.default_device(device):
        yield


# ---- Functions within functions ------------------------------------------------------------------

# Operations that call a function, and the parameter that holds it.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}


def _cond(run: Interpreter, params: dict[str, Any], args: list[Value]) -> list[Value]:
    branches = params["branches"]
    return run.closed(branches[int(np.clip(args[0], 0, len(branches) - 1))], args[1:])


def _while(run: Interpreter, params: dict[str, Any], args: list[Value]) -> list[Value]:
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    asked, done, carry = args[:first], args[first:second], args[second:]
    while run.closed(params["cond_jaxpr"], [*asked, *carry])[0]:
        carry = run.closed(params["body_jaxpr"], [*done, *carry])
    return carry


def _scan(run: Interpreter, params: dict[str, Any], args: list[Value]) -> Any:
    first = params["num_consts"]
    second = first + params["num_carry"]
    consts, carry, columns = args[:first], args[first:second], args[second:]
    places = range(params["length"])
    rows = []
    for place in reversed(places) if params["reverse"] else places:
        results = run.closed(params["jaxpr"], [*consts, *carry, *(x[place] for x in columns)])
        carry = results[: params["num_carry"]]
        rows.append(results[params["num_carry"] :])
    if not rows:
        raise OutOfBudget("a scan over nothing")
    if params["reverse"]:
        rows.reverse()
    return [*carry, *(np.stack(column) for column in zip(*rows, strict=True))]


_CONTROL: dict[str, Rule] = {"cond": _cond, "while": _while, "scan": _scan}


# ---- Operations ----------------------------------------------------------------------------------


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Evaluate the operations of these names by a function `(params, *args)`."""

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
    """Hash the place of every entry of an array of this shape, for every key."""
    words = words_of_keys(keys).reshape(*keys.shape, *(1,) * len(shape), -1)
    low = np.arange(np.prod(shape, dtype=int), dtype=np.uint32).reshape(shape)
    return threefry_rounds((words[..., 0], words[..., 1]), (np.zeros_like(low), low))
