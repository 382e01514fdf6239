"""Compilation target, this machine or one that is only described; usable CPU cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import jax

T = TypeVar("T")
# Platform and devices that `compiling_for` names; None for what JAX finds.
_named: tuple[str, tuple[Any, ...]] | None = None


def backend() -> str:
    """Name the platform that programs are compiled for: `cpu`, `gpu` or `tpu`."""
    return jax.default_backend() if _named is None else _named[0]


def local_devices() -> list[Any]:
    """List the devices of this process that programs are compiled for."""
    return jax.local_devices() if _named is None else list(_named[1])


def usable_cores() -> int:
    """Count the CPU cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def skip_unless(needed: jax.Array, compute: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """Compute what is seldom needed: on a CPU only then, elsewhere always.

    A branch saves a CPU the work. An accelerator would wait for its host to choose the way, which
    takes longer than work that is small.

    Args:
        needed: `()` bool.
        compute: gives what `otherwise` gives, as far as it counts, where nothing is needed.
        otherwise: what there is before.
    """
    return jax.lax.cond(needed, compute, otherwise) if backend() == "cpu" else compute()


@contextmanager
def compiling_for(platform: str, devices: Sequence[Any]) -> Iterator[None]:
    """Compile for devices that need not be there; nothing can be run on those that are not.

    Functions that were traced for another platform are forgotten, and so are these in the end.

    Args:
        platform: `gpu` or `tpu`, as JAX names backends.
        devices: of a topology that JAX compiles for.
    """
    global _named
    before, _named = _named, (platform, tuple(devices))
    jax.clear_caches()
    try:
        yield
    finally:
        _named = before
        jax.clear_caches()
