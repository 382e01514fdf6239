"""Conversion between trees of arrays and the named arrays that a checkpoint stores."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.devices.sharding import own_rows
from jaxmarl_ppo.types import PyTree

# Paths of leaves that have other names in older checkpoints.
_FORMER_NAMES = {
    re.compile("state/(population|per_env)/banks/(.*)"): r"state/\1/policy_groups/\2",
    re.compile(r"(state/per_env/policy_groups/\d+/pending)/ticks"): r"\1/steps",
    re.compile(r"(state/per_env/policy_groups/\d+/pending/decisions)/member"): r"\1/policy_index",
    re.compile("metrics/sums/ticks"): "metrics/sums/env_steps",
    re.compile("metrics/fault/tick"): "metrics/fault/step",
}

# Paths of actions that are remembered in fewer bytes than in older checkpoints.
_NARROWER = re.compile("state/per_env/rollout/env_state/(.*/)?past")

# Paths of sums of the environment's own metrics.
_METRICS = re.compile("(metrics|state/per_env/running)/(.*/)?metrics/.+")


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Copy the leaves of a tree to the host, named by their paths in it; keys as their words.

    For leaves that are spread over processes, copy only the rows of this process.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    leaves = jax.device_get([own_rows(_words(leaf)) for _, leaf in flat])
    # Copied, since on a CPU this may be the device's own memory, which training reuses.
    return {_name(path): np.array(leaf) for (path, _), leaf in zip(flat, leaves, strict=True)}


def from_arrays(arrays: Mapping[str, np.ndarray], expected: PyTree, where: Path) -> PyTree:
    """Build a tree from the result of `to_arrays`.

    Args:
        arrays: by path.
        expected: a tree of the same structure, arrays or only their shapes and types.
        where: the file, for messages.

    Returns:
        The tree, its leaves as NumPy's arrays, keys as JAX's.

    Raises:
        ValueError: If an array is missing, superfluous, or of another shape or type.
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(expected)
    wanted = {_name(path): leaf for path, leaf in flat}
    # Checkpoints of format 1 lack arrays without elements.
    empty = {k: np.zeros(x.shape, x.dtype) for k, x in wanted.items() if not x.size}
    arrays = {**empty, **{_present_name(name): array for name, array in arrays.items()}}
    arrays = _with_own_metrics(_narrowed(arrays, wanted), wanted)
    for name in sorted(wanted.keys() | arrays.keys()):
        found = _describe(arrays.get(name))
        words = jax.eval_shape(_words, wanted[name]) if name in wanted else None
        if found != _describe(words):
            raise ValueError(
                f"{where} does not fit the run: {name} is {found}, but should be "
                f"{_describe(words)}{_reason(name, where)}"
            )
    leaves = [_typed(arrays[name], leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(structure, leaves)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _present_name(name: str) -> str:
    for former, present in _FORMER_NAMES.items():
        if match := former.fullmatch(name):
            name = match.expand(present)
    return name


def _narrowed(arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Write whole numbers in as many bytes as they have now, where that changes none of them."""
    narrowed = dict(arrays)
    for name in filter(_NARROWER.fullmatch, wanted.keys() & arrays.keys()):
        found, dtype = arrays[name], wanted[name].dtype
        values = found.astype(dtype)
        if found.dtype.kind in "iu" and dtype.kind in "iu" and (values == found).all():
            narrowed[name] = values
    return narrowed


def _with_own_metrics(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Begin sums of metrics at 0 that the environment did not have, and drop those it had.

    Which numbers an environment reports may change; no training depends on them.
    """
    new = {
        name: np.zeros(leaf.shape, leaf.dtype)
        for name, leaf in wanted.items()
        if name not in arrays and _METRICS.fullmatch(name)
    }
    kept = {
        name: array
        for name, array in arrays.items()
        if name in wanted or not _METRICS.fullmatch(name)
    }
    return {**kept, **new}


def _reason(name: str, where: Path) -> str:
    """Explain why an array of an optimiser may not fit; nothing for others."""
    if not re.match(r"state/training/\d+/opt_state(/|$)", name):
        return ""
    return (
        ". The optimiser keeps its state in another layout than when this was saved. One cause: "
        "earlier versions gave an optimiser that is a function all weights of a policy in one row, "
        "and now it sees each weight in its own shape. Another: another version of optax. This run "
        "cannot continue. To begin another run with its policies: "
        f"jaxmarl-ppo train ENV --load {where}"
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _typed(array: np.ndarray, leaf: Any) -> Any:
    if not _is_key(leaf):
        return array
    return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))


def _describe(array: Any) -> str:
    return "absent" if array is None else f"{array.dtype}{list(array.shape)}"
