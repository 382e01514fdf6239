"""Environments by name."""

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv

EnvFactory = Callable[..., MultiAgentEnv]

# Import paths, so that naming an environment imports that one alone.
_ENTRY_POINTS: dict[str, EnvFactory | str] = {
    "crypto": "jaxmarl_envs.crypto:Crypto",
    "shuttle_grid": "jaxmarl_envs.shuttle_grid:ShuttleGrid",
    "tic_tac_toe": "jaxmarl_envs.tic_tac_toe:TicTacToe",
}


def names() -> tuple[str, ...]:
    """All registered names, in alphabetical order."""
    return tuple(sorted(_ENTRY_POINTS))


def register(name: str, factory: EnvFactory) -> None:
    """Make `make(name, **kwargs)` return `factory(**kwargs)`.

    Raises:
        ValueError: the name is taken.
    """
    if name in _ENTRY_POINTS:
        raise ValueError(f"environment {name!r} is registered already; choose another name")
    _ENTRY_POINTS[name] = factory


def make(name: str, **kwargs: Any) -> tuple[MultiAgentEnv, Any]:
    """Build an environment and its default parameters.

    Args:
        name: one of `names()`.
        **kwargs: the environment's structure, such as sizes and horizon: whatever its class takes.

    Returns:
        `(env, params)`; `params` may be changed with `params.replace(...)`.

    Raises:
        ValueError: an unknown name or keyword; the message lists the valid ones.
    """
    if name not in _ENTRY_POINTS:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown environment {name!r}; {hint}valid names: {', '.join(names())}")
    factory = _ENTRY_POINTS[name]
    if isinstance(factory, str):
        module, attribute = factory.split(":")
        factory = getattr(importlib.import_module(module), attribute)
    _check_keywords(name, factory, kwargs)
    env = factory(**kwargs)
    env.made_as = (name, kwargs)
    return env, env.default_params


def _check_keywords(name: str, factory: EnvFactory, kwargs: dict[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for key in kwargs:
        if key not in parameters:
            raise ValueError(
                f"{name!r} takes no option {key!r}; valid options: {', '.join(parameters)}"
            )
