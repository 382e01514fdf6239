"""Gymnasium's spaces, read without the adapters' code: observations, masks and actions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxmarl_envs.lockstep.original import Chosen

_MASK, _REST = "action_mask", ("observation", "observations")


def numbers_of(space: Any, seen: Any) -> np.ndarray:
    """Flatten an observation as Gymnasium does, without its mask, and bytes of images from 0 to 1.

    Returns:
        `[D]` float32.
    """
    if isinstance(space, spaces.Dict) and _MASK in space.spaces:
        rest = {key: part for key, part in space.spaces.items() if key != _MASK}
        if len(rest) == 1 and next(iter(rest)) in _REST:
            (key,) = rest
            return numbers_of(rest[key], seen[key])
        space, seen = spaces.Dict(rest), {key: seen[key] for key in rest}
    if isinstance(space, spaces.Dict):
        return np.concatenate([numbers_of(space[key], seen[key]) for key in space.spaces])
    if isinstance(space, spaces.Tuple):
        return np.concatenate([numbers_of(*pair) for pair in zip(space, seen, strict=True)])
    values = np.asarray(spaces.flatten(space, seen), np.float32)
    is_bytes = isinstance(space, spaces.Box) and space.dtype == np.uint8
    return values / 255 if is_bytes and len(space.shape) > 1 and space.high.min() == 255 else values


def legal_of(space: Any, source: Any) -> np.ndarray | None:
    """Read a mask with a flag for every option, in a row, out of an observation or infos.

    Returns:
        `[W]` bool; None where there is no mask, or one of another form.
    """
    mask = source.get(_MASK) if isinstance(source, Mapping) else None
    if mask is None:
        return None
    is_rows = isinstance(mask, Sequence) and all(np.ndim(row) == 1 for row in mask)
    row = np.concatenate(mask) if is_rows else np.ravel(mask)
    return row.astype(bool) if row.size == sum(_counts(space)) else None


def action_of(space: Any, chosen: Chosen | None, joint: bool = False) -> Any:
    """Build an action of choices and numbers; of zeros, where nothing was chosen."""
    counts, (choices, numbers) = _counts(space), chosen or (np.zeros(0, int), np.zeros(0))
    if chosen is None:
        choices, numbers = np.zeros(len(counts), int), np.zeros(spaces.flatdim(space))
    elif joint:
        choices = np.array(np.unravel_index(choices[0], counts))
    return _build(space, iter(choices.tolist()), iter(numbers))


def _counts(space: Any) -> list[int]:
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel().tolist()
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    if isinstance(space, spaces.Box) and space.dtype.kind != "f":
        # As Python's integers: a byte cannot hold the 256 values that it has.
        ends = zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True)
        return [high - low + 1 for low, high in ends]
    if isinstance(space, spaces.Dict):
        return [n for part in space.spaces.values() for n in _counts(part)]
    return [n for part in space for n in _counts(part)] if isinstance(space, spaces.Tuple) else []


def _build(space: Any, choices: Iterator[int], numbers: Iterator[Any]) -> Any:
    if isinstance(space, spaces.Discrete):
        return int(space.start) + next(choices)
    if isinstance(space, spaces.Dict):
        return {key: _build(part, choices, numbers) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_build(part, choices, numbers) for part in space)
    is_box = isinstance(space, spaces.Box)
    is_continuous = is_box and space.dtype.kind == "f"
    source = numbers if is_continuous else choices
    values = [next(source) for _ in range(int(np.prod(space.shape)))]
    start = 0 if is_continuous else space.low if is_box else getattr(space, "start", 0)
    return np.asarray(np.reshape(values, space.shape) + start, space.dtype)
