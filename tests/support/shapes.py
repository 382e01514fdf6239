"""Arrays against the shapes that comments beside the fields of records promise.

`reward: jax.Array  # [T, E, A]: what was paid` is a promise about every `Outcomes`. So that nobody
reads a wrong one, tests follow a training step and hold each record that crosses a room to what its
class says. Letters stand for one size each, `...` for any axes or those that the holder names:
under `decisions: Decisions  # [E, S]` a field `[..., N]` is `[E, S, N]`. What is otherwise is said:
``# [C, B]; `hidden` is [C, H]``.
"""

import ast
import functools
import inspect
import math
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

SHAPE = r"(\[[^\]]*\]|\(\))(?: (bool|int|uint8|float|keys?)\b)?"
PROMISE = re.compile(rf"(?:per (?:policy )?group )?{SHAPE}(?:,? or {SHAPE})?(?: (leaves)\b)?")
EXCEPTION = re.compile(r"`(\w+)` is (\[[^\]]*\])")
ARGUMENT = re.compile(r"^ +(\w+): `(\[[^`]*\]|\(\))`( (?:int|bool|leaves)\b)?", re.MULTILINE)
DTYPES = {
    "bool": jnp.bool_,
    "int": jnp.integer,
    "uint8": jnp.uint8,
    "float": jnp.floating,
    "key": jax.dtypes.prng_key,
    "keys": jax.dtypes.prng_key,
    None: jnp.number,
}


class Promise:
    """A shape, or one of two, that a comment promises."""

    def __init__(self, text: str) -> None:
        found = PROMISE.match(text)
        assert found, f"no shape in {text!r}"
        first, dtype, second, second_dtype, leaves = found.groups()
        self.forms = [(axes_of(first), dtype)]
        if second:
            self.forms.append((axes_of(second), second_dtype))
        self.of_leaves = bool(leaves)
        self.text = found.group()
        self.exceptions = {name: Promise(shape) for name, shape in EXCEPTION.findall(text)}

    def under(self, holder: "Promise | None") -> "Promise":
        """Return what is promised of a field where its record is held as `holder` says."""
        within = Promise("[...]")
        within.forms = [(joined(axes, holder), dtype) for axes, dtype in self.forms]
        within.of_leaves, within.text = self.of_leaves, self.text
        within.exceptions = self.exceptions
        return within


def axes_of(text: str) -> tuple[str, ...]:
    """Read `[E, S, H]` or `()`; `D...` is any number of axes, as `...` is."""
    names = (name.strip() for name in text[1:-1].split(","))
    return tuple("..." if name.endswith("...") else name for name in names if name)


def joined(axes: tuple[str, ...], holder: Promise | None) -> tuple[str, ...]:
    """Put the axes of a field behind those of its holder, naming once what both name."""
    if holder is None:
        return axes
    outer = tuple(name for name in holder.forms[0][0] if name != "...")
    rest = axes[1:] if axes[:1] == ("...",) else axes
    shared = outer.index(rest[0]) if rest and rest[0] in outer else len(outer)
    return (*outer[:shared], *rest)


@functools.cache
def promises_of(cls: type) -> dict[str, Promise]:
    """Read the shapes in the comments beside, or right above, the fields of a record."""
    promises: dict[str, Promise] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("jaxmarl") or base is object:
            continue
        source = textwrap.dedent(inspect.getsource(base))
        lines, last = source.splitlines(), 0
        for node in ast.parse(source).body[0].body:
            if isinstance(node, ast.AnnAssign):
                comments = [line.partition("# ")[2] for line in lines[last : node.end_lineno]]
                text = next((text for text in comments if PROMISE.match(text)), None)
                if text is not None:
                    promises[node.target.id] = Promise(text)
            last = node.end_lineno
    return promises


def arguments_of(function: Any) -> dict[str, Promise]:
    """Read the shapes that a function's docstring promises of its arguments."""
    found = ARGUMENT.findall(inspect.getdoc(function).partition("\nArgs:")[2])
    return {name: Promise(shape + suffix) for name, shape, suffix in found}


def is_record(value: Any) -> bool:
    """Tell whether a value is a named tuple or dataclass of ours."""
    named = hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__")
    return named and type(value).__module__.startswith("jaxmarl")


def field_names(record: Any) -> tuple[str, ...]:
    """Name the fields of a record."""
    return getattr(record, "_fields", None) or tuple(record.__dataclass_fields__)


class Sizes:
    """How long every axis is: given, or learnt where it is first met.

    Attributes:
        sizes: by letter.
        own: sizes of some letters in records of some classes.
        met: letters that were compared or learnt.
    """

    def __init__(self, sizes: dict[str, int], own: dict[type, dict[str, int]]) -> None:
        self.sizes, self.own, self.met = dict(sizes), own, set[str]()

    def faults(
        self, value: Any, place: str, promise: Promise | None = None, owner: type = object
    ) -> Iterator[str]:
        """Tell of every array in `value` that is not as promised."""
        if is_record(value):
            if promise is None and type(value).__module__.startswith("jaxmarl_envs"):
                return  # which are promised of one environment, and held for many
            own = promises_of(type(value))
            for name in field_names(value):
                inner = own[name].under(promise) if name in own else None
                if promise is not None and name in promise.exceptions and inner is not None:
                    inner.forms = [(promise.exceptions[name].forms[0][0], None)]
                field = getattr(value, name)
                yield from self.faults(field, f"{place}.{name}", inner, type(value))
        elif isinstance(value, (tuple, list)) and promise is not None and promise.of_leaves:
            for leaf in jax.tree.leaves(value):
                yield from self._fault(leaf, place, promise, owner)
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                yield from self.faults(item, f"{place}[{index}]", promise, owner)
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from self.faults(item, f"{place}[{key!r}]", promise, owner)
        elif hasattr(value, "shape") and promise is not None:
            yield from self._fault(value, place, promise, owner)

    def _fault(self, x: Any, place: str, promise: Promise, owner: type) -> Iterator[str]:
        sizes = self.sizes | self.own.get(owner, {})
        fits = (
            self._has(x.shape, axes, sizes)
            and (promise.of_leaves or jnp.issubdtype(x.dtype, DTYPES[dtype]))
            for axes, dtype in promise.forms
        )
        if not any(fits):
            known = {name: sizes.get(name) for axes, _ in promise.forms for name in axes}
            yield f"{place}: {x.dtype}{list(x.shape)} is to be {promise.text}, {known}"

    def _has(self, shape: tuple[int, ...], axes: tuple[str, ...], sizes: dict[str, int]) -> bool:
        if axes[-1:] == ("...",):
            axes, shape = axes[:-1], shape[: len(axes) - 1]
        if axes[:1] == ("...",):
            axes, shape = axes[1:], shape[len(shape) - len(axes) + 1 :]
        if len(axes) != len(shape):
            return False
        for name, size in zip(axes, shape, strict=True):
            letters = name.split(" * ")
            if not name.isupper():
                continue  # a word, for an axis that no letter stands for
            self.met.update(letters)
            if len(letters) == 1:
                self.sizes.setdefault(name, size)
            if math.prod((self.sizes | sizes)[letter] for letter in letters) != size:
                return False
        return True
