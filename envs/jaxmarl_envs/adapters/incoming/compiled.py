"""Shared parts of the adapters for JAX libraries, whose environments are compiled."""

import difflib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NEVER = np.iinfo(np.int32).max  # a time limit that no episode reaches


def unknown_id(env_id: Any, valid: Iterable[str]) -> ValueError:
    """Make the error for an id that a library does not know, with the closest and all valid ids."""
    valid = tuple(valid)
    close = difflib.get_close_matches(str(env_id), valid, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ValueError(f"unknown env_id {env_id!r}; {hint}valid ids: {', '.join(valid)}")


def check_interface(function: str, game: Any, library: str, *names: str) -> None:
    """Check that an object has the methods and attributes that an adapter calls.

    Raises:
        ValueError: If it lacks one of `names`, of the interface of `library`.
    """
    missing = [name for name in names if not hasattr(game, name)]
    if missing:
        raise ValueError(
            f"{function} takes an environment of {library}'s interface; {game!r} has no "
            f"{', '.join(missing)}"
        )


def options_of(name: str, space: Any) -> int | None:
    """Count the options of a library's Discrete; None for a space of another kind.

    Raises:
        ValueError: If it has `n`, but not the integers from 0 to `n - 1`, as Gymnasium's Discrete
            with a `start`, and its MultiBinary.
    """
    if not hasattr(space, "n"):
        return None
    if getattr(space, "shape", ()) or getattr(space, "start", 0) != 0:
        raise ValueError(
            f"{name!r}: the space {space!r} does not consist of the integers from 0 to n - 1; give "
            "a Discrete of the environment's own library, and convert its elements yourself"
        )
    return int(space.n)


def strongly_typed(tree: Any) -> Any:
    """Turn Python numbers, such as clocks of a first state, into arrays of the type of a step's."""
    return jax.tree.map(_strongly_typed, tree)


def _strongly_typed(x: Any) -> jax.Array:
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x.astype(x.dtype)


def check_planes(planes: Any) -> None:
    """Raise an error unless an option `planes` is a bool."""
    if not isinstance(planes, bool):
        raise ValueError(f"planes={planes!r}: planes must be True or False")
