"""Spaces, actions and masks in the forms that gymnasium has for them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.actions import ActionLayout, factors_of
from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.spaces import Discrete, MultiDiscrete, Space, Tuple


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


def in_layout(layout: ActionLayout, choices: np.ndarray, numbers: np.ndarray) -> Any:
    """Widen what `take_apart` found of one slot, `[..., C]` and `[..., N]`, to actions of it."""
    wide = (len(layout.counts), layout.num_numbers)
    return layout.join(
        *(
            np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, width - x.shape[-1])])
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

    return _walk(space, iter(factors_of(space).counts), box, _spaces().Tuple, NoMask)


def flat_mask_space(space: Space) -> Any:
    """Return gymnasium's space of the legal options of all choices, one after the other."""
    return _spaces().Box(0, 1, (sum(factors_of(space).counts),), np.float32)


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
            {key: seen, "action_mask": mask_space(chosen)}
            if factors_of(chosen).counts
            else {key: seen}
        )
        for seen, chosen in zip(feature_spaces, action_spaces, strict=True)
    ]


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
