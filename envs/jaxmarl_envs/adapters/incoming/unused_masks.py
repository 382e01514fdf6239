"""What environments in plain Python call like an action mask, where it is not used as one."""

import math
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, AgentSpaces

# Such as `legal_actions`, `avail_actions`, `validMoves`, `valid_action_mask`, `action_masks`.
_NAME = re.compile(
    r"(legal|valid|avail|available|allowed|possible|feasible)_?(action|move)s?(_?masks?)?"
    r"|(action|move)s?_?masks?",
    re.IGNORECASE,
)
# Methods that give masks to sb3-contrib, and to PyMARL. Others, such as Level-Based Foraging's
# `get_valid_actions`, are often an environment's own.
_METHODS = ("action_masks", "get_avail_actions", "get_avail_agent_actions")


class UnusedMaskWarning(UserWarning):
    """Something is called like an action mask, and is not used as one."""


class MayHaveMasks(Protocol):
    """A game that has been tried out; see `SlotGame`."""

    env: Any
    layout: ActionLayout

    @property
    def spaces(self) -> Sequence[Any]:
        """Spaces of the agents in its slots."""
        ...


def called_like_masks(info: Mapping[Any, Any]) -> set[str]:
    """Return the names of infos that may be action masks, `action_mask` itself included."""
    return {
        name
        for name, value in info.items()
        if isinstance(name, str) and _NAME.fullmatch(name)
        if isinstance(value, Mapping | list | tuple | set | frozenset) or np.ndim(value) > 0
    }


def warn_of_unused_masks(name: str, game: MayHaveMasks, infos: set[str]) -> None:
    """Warn of what is called like an action mask if no agent has one.

    Args:
        name: of the environment.
        game: the environment.
        infos: as `called_like_masks` returns them.
    """
    spaces = [space for space in game.spaces if isinstance(space, AgentSpaces)]
    if not spaces or MASK in infos or any(space.masked for space in spaces):
        return
    found = {f"info[{key!r}]" for key in infos}
    for space, own in zip(spaces, game.layout.factors, strict=True):
        found |= {
            f"observation{''.join(f'[{key!r}]' for key in part.path)}"
            for part in space.observation_parts
            if part.path and _NAME.fullmatch(str(part.path[-1]))
            if math.prod(part.shape) in (sum(own.counts), math.prod(own.counts))
        }
    found |= {
        f"{method}()"
        for env in _unwrapped(game.env)
        for method in _METHODS
        if callable(getattr(type(env), method, None))
    }
    if found:
        warnings.warn(
            f"environment {name!r} has {', '.join(sorted(found))}, which may be an action mask and "
            "is not used as one: every action counts as legal. If it is, return it as "
            f"observation[{MASK!r}] or info[{MASK!r}], with 1 for each legal option and 0 for all "
            "others",
            UnusedMaskWarning,
            stacklevel=4,
        )


def warn_of_divided_masks(name: str, agents: Collection[Any]) -> None:
    """Warn that masks in observations and infos differ.

    Args:
        name: of the environment.
        agents: who has both.
    """
    if agents:
        agent = min(map(str, agents))  # it stands for all
        warnings.warn(
            f"agent {agent!r} of environment {name!r} has an info[{MASK!r}] that does not say the "
            f"same as its observation[{MASK!r}], and is not used, as in PettingZoo; return one of "
            "them only",
            UnusedMaskWarning,
            stacklevel=4,
        )


def _unwrapped(env: Any) -> Iterator[Any]:
    """Yield an environment and those within it, up to 200."""
    for _ in range(200):
        if env is None:
            return
        yield env
        env = getattr(env, "env", None)
