"""Environments by name."""

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv

EnvFactory = Callable[..., MultiAgentEnv]

# Import paths, so that naming an environment imports its package alone.
_ENTRY_POINTS: dict[str, EnvFactory | str] = {
    "asymmetric_play": "jaxmarl_envs.asymmetric_play:AsymmetricPlay",
    "basic": "jaxmarl_envs.toy:Basic",
    "crypto": "jaxmarl_envs.crypto:Crypto",
    "early_done": "jaxmarl_envs.toy:EarlyDone",
    "flex_agents": "jaxmarl_envs.toy:FlexAgents",
    "multi_spaces": "jaxmarl_envs.toy:MultiSpaces",
    "press_your_luck": "jaxmarl_envs.toy:PressYourLuck",
    "relay": "jaxmarl_envs.toy:Relay",
    "round_robin": "jaxmarl_envs.toy:RoundRobin",
    "shuttle_grid": "jaxmarl_envs.shuttle_grid:ShuttleGrid",
    "tic_tac_toe": "jaxmarl_envs.tic_tac_toe:TicTacToe",
}

# Environments made of others; they need to be told of which.
_COMPOSED: dict[str, str] = {
    "grouped": "jaxmarl_envs.wrappers:grouped",
    "gymnax": "jaxmarl_envs.adapters.incoming.gymnax:Lifted",
    "jaxmarl": "jaxmarl_envs.adapters.incoming.jaxmarl:JaxMARL",
    "pettingzoo": "jaxmarl_envs.adapters.incoming.pettingzoo:pettingzoo",
    "pgx": "jaxmarl_envs.adapters.incoming.pgx:Pgx",
}


def names() -> tuple[str, ...]:
    """List all names that can be made without further options, in alphabetical order."""
    return tuple(sorted(_ENTRY_POINTS))


def all_names() -> tuple[str, ...]:
    """List all names, those that need options included: other libraries' games and `grouped`."""
    return tuple(sorted([*_ENTRY_POINTS, *_COMPOSED]))


def register(name: str, factory: EnvFactory) -> None:
    """Make `make(name, **kwargs)` return `factory(**kwargs)`.

    Raises:
        ValueError: the name is taken.
    """
    if name in all_names():
        raise ValueError(f"environment {name!r} is registered already; choose another name")
    _ENTRY_POINTS[name] = factory


def make(name: str, /, **kwargs: Any) -> tuple[MultiAgentEnv, Any]:
    """Build an environment and its default parameters.

    Args:
        name: one of `all_names()`.
        **kwargs: the environment's structure, such as sizes and horizon: whatever its class takes.

    Returns:
        `(env, params)`; `params` may be changed with `params.replace(...)`.

    Raises:
        ValueError: an unknown name or keyword, or a keyword that is missing; the message lists the
            valid ones.
    """
    if name not in all_names():
        close = difflib.get_close_matches(str(name), all_names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        valid = ", ".join(all_names())
        raise ValueError(f"unknown environment {name!r}; {hint}valid names: {valid}")
    factory = _ENTRY_POINTS.get(name) or _COMPOSED[name]
    if isinstance(factory, str):
        module, attribute = factory.split(":")
        factory = getattr(importlib.import_module(module), attribute)
    _check_keywords(name, factory, kwargs)
    env = factory(**kwargs)
    env.made_as = (name, kwargs)
    return env, env.default_params


def _check_keywords(name: str, factory: EnvFactory, kwargs: dict[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters
    missing = [
        key
        for key, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and key not in kwargs
    ]
    if missing:
        raise ValueError(
            f"{name!r} needs the option {', '.join(missing)}; its options: {', '.join(parameters)}"
        )
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for key in kwargs:
        if key not in parameters:
            raise ValueError(
                f"{name!r} takes no option {key!r}; valid options: "
                f"{', '.join(parameters) or 'none'}"
            )
