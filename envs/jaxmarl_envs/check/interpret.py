"""Traced functions evaluated with NumPy, one operation after the other, without the compiler.

Compiling an environment takes seconds, evaluating a few of its steps like this milliseconds. What
NumPy has no counterpart for is handed to JAX, which compiles that one operation. Results are those
of the compiled function up to the rounding of floats, random draws included.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from jaxmarl_envs.check.operations import RULES, Rule
from jaxmarl_envs.check.values import Value, is_key, keys_from_words, words_of_keys

_PREPARED_BY_JAX = 1000  # operations in whose time JAX compiles one that it has not seen
_ELEMENTS = 10_000  # in an array that counts as one more operation
_THREEFRY = ("key<fry>", "key<unrolled>")  # types of keys that draw the same numbers
_DRAWS = ("random_bits", "random_split", "random_fold_in")


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
            OutOfBudget: If the budget is used up, or an operation has effects.
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
    except RuntimeError:  # JAX is configured without the CPU
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
