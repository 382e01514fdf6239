"""Classes of PettingZoo's and Gymnasium's environments that are named by their code."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.trial import split_options

Adapter = Callable[..., HostEnv]
# What classes with RLlib's interface may have that need not derive from RLlib's own.
_OF_SEVERAL = ("possible_agents", "agents", "get_agent_ids", "observation_spaces")


def adapter_of(kind: type) -> Adapter | None:
    """Choose the adapter of a class by the library that it derives from.

    Returns:
        None for none of these libraries: the class then has RLlib's interface or its own.
    """
    libraries = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "ray" in libraries:
        return None
    if "pettingzoo" in libraries:
        return from_pettingzoo
    has_several = any(hasattr(kind, name) for name in _OF_SEVERAL)
    return from_gymnasium if "gymnasium" in libraries and not has_several else None


def bring_in_class(kind: type, adapter: Adapter, **options: Any) -> HostEnv:
    """Bring in a class's environments.

    Args:
        kind: the class.
        adapter: from `adapter_of`.
        **options: arguments of the class, and those options of the adapter that are none.

    Raises:
        ValueError: For an unknown option, or as the adapter.
    """
    parameters = inspect.signature(kind).parameters
    own, others = split_options(adapter, {k: v for k, v in options.items() if k not in parameters})
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in () if takes_any else others:
        valid, _ = split_options(adapter, inspect.signature(adapter).parameters)
        raise ValueError(
            f"{kind.__name__} takes no option {name!r}; valid options: "
            f"{', '.join([*parameters, *valid])}"
        )
    arguments = {name: value for name, value in options.items() if name not in own}
    return adapter(functools.partial(kind, **arguments), name=kind.__name__, **own)
