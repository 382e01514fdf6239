"""Registry of environments by name.

Packages add their names by entry points of the group `jaxmarl_envs`:

    [project.entry-points.jaxmarl_envs]
    harvest = "harvest.env:Harvest"
"""

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from jaxmarl_envs import user_envs
from jaxmarl_envs.adapters.incoming.own_code import RLLIB, bring_in, interface_of
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.permission import noting_imports
from jaxmarl_envs.user_env_names import full_name, is_own

EnvFactory = Callable[..., MultiAgentEnv]

# Import paths, so that naming an environment imports its package alone.
_ENTRY_POINTS: dict[str, EnvFactory | str] = {
    "asymmetric_play": "jaxmarl_envs.asymmetric_play:AsymmetricPlay",
    "basic": "jaxmarl_envs.toy:Basic",
    "combination_lock": "jaxmarl_envs.toy:CombinationLock",
    "convoy": "jaxmarl_envs.toy:Convoy",
    "crypto": "jaxmarl_envs.crypto:Crypto",
    "early_done": "jaxmarl_envs.toy:EarlyDone",
    "flex_agents": "jaxmarl_envs.toy:FlexAgents",
    "kuhn_poker": "jaxmarl_envs.poker:KuhnPoker",
    "leduc_holdem": "jaxmarl_envs.poker:LeducHoldem",
    "multi_spaces": "jaxmarl_envs.toy:MultiSpaces",
    "phantom_tic_tac_toe": "jaxmarl_envs.phantom_tic_tac_toe:PhantomTicTacToe",
    "press_your_luck": "jaxmarl_envs.toy:PressYourLuck",
    "relay": "jaxmarl_envs.toy:Relay",
    "round_robin": "jaxmarl_envs.toy:RoundRobin",
    "shuttle_grid": "jaxmarl_envs.shuttle_grid:ShuttleGrid",
    "tic_tac_toe": "jaxmarl_envs.tic_tac_toe:TicTacToe",
}

# Environments made from others, which must be given.
_COMPOSED: dict[str, str] = {
    "grouped": "jaxmarl_envs.wrappers:grouped",
    "gymnasium": "jaxmarl_envs.adapters.incoming.gymnasium:gymnasium",
    "gymnax": "jaxmarl_envs.adapters.incoming.gymnax:Lifted",
    "jaxmarl": "jaxmarl_envs.adapters.incoming.jaxmarl:JaxMARL",
    "joined": "jaxmarl_envs.wrappers:joined",
    "jumanji": "jaxmarl_envs.adapters.incoming.jumanji:jumanji",
    "openspiel": "jaxmarl_envs.adapters.incoming.openspiel:openspiel",
    "pettingzoo": "jaxmarl_envs.adapters.incoming.pettingzoo:pettingzoo",
    "pgx": "jaxmarl_envs.adapters.incoming.pgx:Pgx",
    "rllib": "jaxmarl_envs.adapters.incoming.rllib:rllib",
    "vmas": "jaxmarl_envs.adapters.incoming.vmas:vmas",
}


def names() -> tuple[str, ...]:
    """List all names that can be made without further options, in alphabetical order."""
    return tuple(sorted(_ENTRY_POINTS))


def all_names() -> tuple[str, ...]:
    """List all names: also those that need options, such as `grouped`, and `installed_names()`."""
    return tuple(sorted({*_ENTRY_POINTS, *_COMPOSED, *_installed()}))


def installed_names() -> tuple[str, ...]:
    """List the names that installed packages add, in alphabetical order."""
    return tuple(sorted(_installed()))


@functools.cache
def _installed() -> dict[str, list[EntryPoint]]:
    """Collect what installed packages register, by name."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group="jaxmarl_envs"):
        found.setdefault(entry.name, []).append(entry)
    return found


def register(name: str, factory: EnvFactory) -> None:
    """Make `make(name, **kwargs)` return `factory(**kwargs)`.

    Raises:
        ValueError: If the name is taken.
    """
    if name in all_names():
        raise ValueError(f"environment {name!r} is registered already; choose another name")
    _ENTRY_POINTS[name] = factory


def make(name: str, /, **kwargs: Any) -> tuple[MultiAgentEnv, Any]:
    """Build an environment and its default parameters.

    Args:
        name: one of `all_names()`, or `package.module:Class` or `path/to/file.py:Class`, which is
            imported: a class of `MultiAgentEnv`, or a function that returns one or
            `(env, params)`; or a class of another library's environments, or a function that
            returns one, with the options of its adapter. One with RLlib's interface has those of
            `"rllib"`.
        **kwargs: the environment's structure, such as sizes and horizon: whatever its class takes.

    Returns:
        `(env, params)`; `params` may be changed with `params.replace(...)`.

    Raises:
        ValueError: For an unknown name or keyword, or a missing keyword; the message lists the
            valid ones. Also if the named code is faulty, by file and line.
    """
    with noting_imports() as imports:
        env, params = _make(name, kwargs)
    # An environment may be a frozen dataclass.
    object.__setattr__(env, "imports", tuple(imports))
    return env, params


def _make(name: str, kwargs: dict[str, Any]) -> tuple[MultiAgentEnv, Any]:
    if is_own(name):
        name = full_name(name)
        return _make_own(name, name, user_envs.load(name), kwargs)
    if name not in all_names():
        close = difflib.get_close_matches(str(name), all_names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        valid = ", ".join(all_names())
        raise ValueError(
            f"unknown environment {name!r}; {hint}valid names: {valid}, and of your own "
            f"{user_envs.HOW_TO_NAME}"
        )
    if name in _installed():
        return _make_own(name, *_import_installed(name), kwargs)
    factory = _factory(name)
    _check_keywords(name, factory, kwargs)
    env = factory(**kwargs)
    # A wrapper has noted in full what it wraps.
    if env.made_as is None or env.made_as[0] != name:
        env.made_as = (name, kwargs)
    return env, env.default_params


def _factory(name: str) -> EnvFactory:
    """Import what makes a registered environment."""
    factory = _ENTRY_POINTS.get(name) or _COMPOSED[name]
    if isinstance(factory, str):
        module, attribute = factory.split(":")
        return getattr(importlib.import_module(module), attribute)
    return factory


def _make_own(
    name: str, code: str, factory: user_envs.EnvFactory, kwargs: dict[str, Any]
) -> tuple[MultiAgentEnv, Any]:
    """Make an environment by its class or function, which `code` names."""
    if isinstance(factory, type) and interface_of(factory) is RLLIB:
        # It is made from RLlib's `env_config`.
        factory = functools.partial(_factory("rllib"), code)
    else:
        _check_missing(name, factory, kwargs)
        factory = functools.partial(bring_in, factory)
    _check_keywords(name, factory, kwargs)
    return user_envs.build(name, factory, kwargs)


def _import_installed(name: str) -> tuple[str, user_envs.EnvFactory]:
    """Import the one environment of a name that an installed package registers.

    Returns:
        What its code is called, and its class or function.

    Raises:
        ValueError: If there are several, or it cannot be imported.
    """
    entries = _installed()[name]
    places = [
        f"{entry.module}:{entry.attr} of the installed package "
        f"{entry.dist.name if entry.dist else 'unknown'!r}"
        for entry in entries
    ]
    if name in _ENTRY_POINTS or name in _COMPOSED:
        places.insert(0, "the one of jaxmarl_envs")
    if len(places) > 1:
        raise ValueError(
            f"several environments have the name {name!r}: {' and '.join(places)}; a package may "
            "not register a name that is taken: name the environment as package.module:Class, or "
            "uninstall the package"
        )
    code = f"{entries[0].module}:{entries[0].attr}"
    try:
        return code, user_envs.import_factory(code)
    except ValueError as error:
        raise ValueError(f"environment {name!r}, {places[0]}: {error}") from error


def _check_missing(name: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters
    missing = [
        key
        for key, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and key not in kwargs
    ]
    if missing:
        raise ValueError(
            f"{name!r} needs the option {', '.join(missing)}; its options: {', '.join(parameters)}"
        )


def _check_keywords(name: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    _check_missing(name, factory, kwargs)
    parameters = inspect.signature(factory).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for key in kwargs:
        if key not in parameters:
            raise ValueError(
                f"{name!r} takes no option {key!r}; valid options: "
                f"{', '.join(parameters) or 'none'}"
            )
