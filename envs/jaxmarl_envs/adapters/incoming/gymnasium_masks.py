"""Action masks of environments in plain Python, in every form in which users have them.

| space | mask |
| --- | --- |
| `Discrete(n)` | `[n]` |
| `MultiDiscrete` | one for each choice in a list or tuple; a table `[C, n]` of choices with equally many options; or those of all choices in one row |
| `MultiBinary(n)` | the same; or Gymnasium's own `[n]`, in which 0 and 1 stand for what a bit must be, and 2 for either |
| `Tuple`, `Dict` | one for each part in a tuple, list or dictionary, None for a part without; or those of all choices in one row |
| `Box`, which has no choices | none, or one of which every entry is True |
| of several choices, with `joint=True` | of the combinations, in a row in the order of `numpy.ndindex` or an array with an axis for each choice; or as above |

Entries are True or False, or 1 or 0; where a bit may be either, also 2.
"""  # noqa: E501

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.gymnasium_actions import Actions

Legal = list[np.ndarray | None]  # of each choice, its legal options `[options]`; None for all


def legal_options(space: Any, actions: Actions, mask: Any, joint: bool | None) -> Legal:
    """Read which options of each choice are legal, `[options]` bool each; None for all.

    Args:
        space: Gymnasium's.
        actions: as `read_actions` reads it.
        mask: in one of the forms at the top of this file.
        joint: whether choices are learned as one, over their combinations; None where the user has
            not said whether a mask that can be read in two ways is of combinations.

    Returns:
        For each choice as it is learned: one entry where `joint`.

    Raises:
        ValueError: For anything else, or a mask that can be read in two ways; the message continues
            the sentence "agent 'a' has the action_mask ...".
    """
    counts = actions.counts
    if len(counts) < 2:
        return _of_choices(space, actions, mask)
    of_combinations = _are_combinations(counts, mask)
    of_choices = not of_combinations or _is_also_of_choices(space, counts, mask)
    if of_combinations and of_choices and joint is None:
        raise ValueError(
            "can be read as one for each choice and as one of combinations; give joint=False if it "
            "is for each choice, or joint=True if it is of combinations, which are then learned as "
            "one choice"
        )
    if of_combinations and not (of_choices and not joint):
        if not joint:
            raise ValueError(
                f"is of all {math.prod(counts)} combinations of its choices; give joint=True, so "
                "that combinations are learned as one choice"
            )
        return [_flags(np.ravel(mask))]
    legal = _of_choices(space, actions, mask)
    if not joint:
        return legal
    every = [np.ones(n, bool) if own is None else own for n, own in zip(counts, legal, strict=True)]
    return [functools.reduce(lambda x, y: np.logical_and.outer(x, y).ravel(), every)]


def _are_combinations(counts: Sequence[int], mask: Any) -> bool:
    """Return whether the shape of a mask is that of one over combinations."""
    if isinstance(mask, Mapping | tuple):  # whose parts are those of the space
        return False
    shape = _shape(mask)
    return shape in ((math.prod(counts),), tuple(counts))


def _is_also_of_choices(space: Any, counts: Sequence[int], mask: Any) -> bool:
    """Return whether a mask that may be over combinations may also be one for each choice."""
    same = len(set(counts)) == 1
    return _shape(mask) in (
        (sum(counts),),
        (len(counts), counts[0]) if same else (-1,),
        space.shape if _is_binary(space) else (-1,),
    )


def _of_choices(space: Any, actions: Actions, mask: Any) -> Legal:
    """Read a mask that is one for each choice."""
    counts = actions.counts
    if mask is None:
        return [None] * len(counts)
    if not counts:
        if isinstance(mask, Mapping) or _shape(mask) is None or not np.all(mask):
            raise ValueError("makes something illegal in a space without choices")
        return []
    is_complete = not (isinstance(mask, list | tuple) and any(entry is None for entry in mask))
    if is_complete and _shape(mask) == (sum(counts),):
        flags = _flags(np.asarray(mask))
        return [flags] if len(counts) == 1 else list(np.split(flags, np.cumsum(counts)[:-1]))
    spaces = import_extra("gymnasium.spaces", "gymnasium")
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _of_parts(space, actions, mask)
    if _is_binary(space) and _shape(mask) == space.shape:
        bits = np.ravel(mask)
        if not np.isin(bits, (0, 1, 2)).all():
            raise ValueError("has entries other than 0, 1 and 2")
        return [np.array([bit != 1, bit != 0]) for bit in bits]
    parts = list(mask) if isinstance(mask, Sequence | np.ndarray) else []
    if [_shape(part) for part in parts] == [(count,) for count in counts]:
        return [_flags(np.asarray(part)) for part in parts]
    raise ValueError(f"does not have {_wanted(counts)}")


def _of_parts(space: Any, actions: Actions, mask: Any) -> Legal:
    """Read a mask with one entry for each part of a Tuple or a Dict."""
    parts = space.spaces
    if isinstance(parts, Mapping):
        if not isinstance(mask, Mapping) or not mask.keys() <= parts.keys():
            raise ValueError(f"is not a dictionary with keys among {', '.join(map(repr, parts))}")
        parts, masks = parts.values(), [mask.get(key) for key in parts]
    else:
        if not isinstance(mask, Sequence | np.ndarray) or len(mask) != len(parts):
            raise ValueError(f"does not have one entry for each of the {len(parts)} parts")
        masks = mask
    each = map(_of_choices, parts, actions.parts, masks)
    return [own for legal in each for own in legal]


def _flags(entries: np.ndarray) -> np.ndarray:
    if entries.dtype.kind not in "biuf" or not ((entries == 0) | (entries == 1)).all():
        raise ValueError("has entries that are neither True, False, 1 nor 0")
    return entries.astype(bool)


def _shape(mask: Any) -> tuple[int, ...] | None:
    """Return the shape of a mask; None where its rows differ in length."""
    try:
        return np.shape(mask)
    except ValueError:
        return None


def _is_binary(space: Any) -> bool:
    return isinstance(space, import_extra("gymnasium.spaces", "gymnasium").MultiBinary)


def _wanted(counts: Sequence[int]) -> str:
    if len(counts) == 1:
        return f"the shape ({counts[0]},)"
    return f"one entry for each choice, of {', '.join(map(str, counts))} options"
