"""Spaces, actions and masks in the forms that gymnasium has for them."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space, Tuple


def to_gymnasium_space(space: Space) -> Any:
    """Turn one of our spaces into the same one of gymnasium."""
    if isinstance(space, Discrete):
        return _spaces().Discrete(space.n)
    if isinstance(space, MultiDiscrete):
        return _spaces().MultiDiscrete(space.nvec)
    if isinstance(space, Tuple):
        return _spaces().Tuple([to_gymnasium_space(part) for part in space.spaces])
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), space.shape)
        for bound in (space.low, space.high)
    )
    return _spaces().Box(low, high, dtype=np.float32)


# ---- Actions -------------------------------------------------------------------------------------


def take_apart(space: Space, actions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Take actions apart into choices `[E, choices]` int32 and numbers `[E, numbers]` float32.

    Args:
        space: the agent's own.
        actions: `E` elements of it, an array `[E, ...]`, or of a `Tuple` a sequence of such.

    Raises:
        ValueError: If they are not of the space.
    """
    if isinstance(space, Tuple):
        parts = [take_apart(*pair) for pair in _pairs(space, actions)]
        if len({len(choices) for choices, _ in parts}) > 1:
            raise _not_of(space, actions)
        choices, numbers = zip(*parts, strict=True)
        return np.concatenate(choices, axis=1), np.concatenate(numbers, axis=1)
    array = np.asarray(actions)
    if array.ndim == 0 or array.shape[1:] != space.shape:
        raise _not_of(space, actions)
    flat = array.reshape(len(array), math.prod(space.shape))
    if isinstance(space, Box):
        return np.zeros((len(flat), 0), np.int32), flat.astype(np.float32)
    most = space.n if isinstance(space, Discrete) else np.array(space.nvec)
    if array.dtype.kind not in "iub" or ((flat < 0) | (flat >= most)).any():
        raise _not_of(space, actions)
    return flat.astype(np.int32), np.zeros((len(flat), 0), np.float32)


def batch_of_one(space: Space, action: Any) -> Any:
    """Give an action the axis of a batch.

    Raises:
        ValueError: If it is not a sequence of as many parts as a `Tuple` has.
    """
    if isinstance(space, Tuple):
        return tuple(batch_of_one(*pair) for pair in _pairs(space, action))
    return np.asarray(action)[None]


def _pairs(space: Tuple, action: Any) -> list[tuple[Space, Any]]:
    if not isinstance(action, Sequence) or len(action) != len(space.spaces):
        raise _not_of(space, action)
    return list(zip(space.spaces, action, strict=True))


def _not_of(space: Space, actions: Any) -> ValueError:
    return ValueError(f"actions {actions} are not of the space {to_gymnasium_space(space)}")


def in_layout(layout: ActionLayout, choices: np.ndarray, numbers: np.ndarray) -> Any:
    """Widen what `take_apart` found of one slot `[E, ...]` to actions of the layout."""
    wide = (len(layout.counts), layout.num_numbers)
    return layout.join(
        *(
            np.pad(x, ((0, 0), (0, width - x.shape[1])))
            for x, width in zip((choices, numbers), wide, strict=True)
        )
    )


# ---- Masks ---------------------------------------------------------------------------------------


def legal_options(layout: ActionLayout, slot: int, mask: np.ndarray) -> list[np.ndarray]:
    """Return of each of the slot's own choices which options are legal, `[..., options]` each.

    Args:
        layout: of the environment's masks.
        slot: the agent's.
        mask: the slot's, `[..., W]`.
    """
    counts = layout.factors[slot].counts
    pairs = zip(layout.starts, counts, strict=False)
    return [mask[..., start : start + count] for start, count in pairs]


def sampling_mask(space: Space, legal: Sequence[np.ndarray]) -> Any:
    """Write legal options as `sample(mask=...)` of gymnasium's space takes them.

    Returns:
        `[options]` int8 for `Discrete`, a tuple of one for each choice for `MultiDiscrete`, None
        for `Box`, and a tuple of these for `Tuple`.
    """
    return _walk(space, iter(legal), lambda options: options.astype(np.int8), tuple, lambda: None)


def sampling_mask_space(space: Space) -> Any:
    """Return gymnasium's space of a `sampling_mask`."""
    from jaxmarl_envs.adapters.outgoing.no_mask import NoMask  # which needs gymnasium

    def box(count: int) -> Any:
        return _spaces().Box(0, 1, (count,), np.int8)

    return _walk(space, iter(_counts(space)), box, _spaces().Tuple, NoMask)


def flat_mask_space(space: Space) -> Any:
    """Return gymnasium's space of the legal options of all choices, one after the other."""
    return _spaces().Box(0, 1, (sum(_counts(space)),), np.float32)


def with_masks(
    feature_spaces: Sequence[Any],
    action_spaces: Sequence[Space],
    key: str,
    mask_space: Callable[[Space], Any],
) -> list[Any]:
    """Make observation spaces that are dicts of features, under `key`, and `"action_mask"`.

    Those of agents without a choice have features alone.
    """
    return [
        _spaces().Dict(
            {key: seen, "action_mask": mask_space(chosen)} if _counts(chosen) else {key: seen}
        )
        for seen, chosen in zip(feature_spaces, action_spaces, strict=True)
    ]


def _counts(space: Space) -> list[int]:
    """List the options of each choice."""
    if isinstance(space, Tuple):
        return [count for part in space.spaces for count in _counts(part)]
    if isinstance(space, Box):
        return []
    return [space.n] if isinstance(space, Discrete) else list(space.nvec)


def _walk(
    space: Space,
    choices: Iterator[Any],
    one: Callable[[Any], Any],
    several: Callable[[list[Any]], Any],
    numbers: Callable[[], Any],
) -> Any:
    """Build something of the structure of a space from what there is for each choice in order."""
    if isinstance(space, Tuple):
        return several([_walk(part, choices, one, several, numbers) for part in space.spaces])
    if isinstance(space, Discrete):
        return one(next(choices))
    if isinstance(space, MultiDiscrete):
        return several([one(next(choices)) for _ in space.nvec])
    return numbers()


@functools.cache
def _spaces() -> Any:
    return import_extra("gymnasium.spaces", "gymnasium")
