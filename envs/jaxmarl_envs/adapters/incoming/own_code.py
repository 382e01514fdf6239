"""Environments of other libraries that are named by their code: classes and functions."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxmarl_envs.core import MultiAgentEnv

# What classes with RLlib's interface may have that need not derive from RLlib's own.
_OF_SEVERAL = ("possible_agents", "agents", "get_agent_ids", "observation_spaces")


class Interface(NamedTuple):
    """Interface of a library's environments.

    Attributes:
        module: in this package, of the adapter.
        adapter: its function. Of a library in JAX it takes an environment, else a function that
            makes one, which is called in every process.
        in_jax: whether the library is in JAX.
    """

    module: str
    adapter: str
    in_jax: bool = False

    def load(self) -> Callable[..., MultiAgentEnv]:
        """Import the adapter, which may need the library."""
        return getattr(importlib.import_module(f"{__package__}.{self.module}"), self.adapter)


RLLIB = Interface("rllib", "from_rllib_env")
_LIBRARIES = {
    "ray": RLLIB,
    "pettingzoo": Interface("pettingzoo", "from_pettingzoo"),
    "gymnasium": Interface("gymnasium", "from_gymnasium"),
    "jaxmarl": Interface("jaxmarl", "from_jaxmarl", in_jax=True),
    "gymnax": Interface("gymnax", "from_gymnax", in_jax=True),
    "jumanji": Interface("jumanji", "from_jumanji", in_jax=True),
    "pgx": Interface("pgx", "from_pgx", in_jax=True),
}
# In words.
LIBRARIES = "RLlib, PettingZoo, Gymnasium, JaxMARL, gymnax, Jumanji or pgx"


def interface_of(env: Any) -> Interface | None:
    """Find the interface of an environment, or of a class of them, by the library of its class.

    Without a library, or if it is one of several agents and only Gymnasium's, it has RLlib's
    interface if it has its methods `reset` and `step`.

    Returns:
        None for this package's own interface and for unknown ones.
    """
    kind = env if isinstance(env, type) else type(env)
    if issubclass(kind, MultiAgentEnv):
        return None
    names = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if any(hasattr(env, name) for name in _OF_SEVERAL):
        names.discard("gymnasium")
    for library, interface in _LIBRARIES.items():
        if library in names:
            return interface
    is_stepped = all(callable(getattr(env, method, None)) for method in ("reset", "step"))
    return RLLIB if is_stepped else None


def bring_in(make: Callable[..., Any], **options: Any) -> Any:
    """Make an environment by a class or function, and bring it in if it is another library's.

    Args:
        make: the class or function.
        **options: its arguments, and options of the adapter that have other names.

    Returns:
        What the adapter returns; without one, what the class or function returns.

    Raises:
        ValueError: For an unknown option, or as the adapter.
    """
    name = getattr(make, "__name__", type(make).__name__)
    parameters = inspect.signature(make).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    interface = interface_of(make) if isinstance(make, type) else None
    of_adapter = _options(interface)
    arguments = {
        key: value
        for key, value in options.items()
        if key in parameters or (takes_any and key not in of_adapter)
    }
    made = None
    if interface is None:  # what a function makes is seen once it is there
        made = make(**arguments)
        interface = interface_of(made)
        of_adapter = _options(interface)
    others = {key: value for key, value in options.items() if key not in arguments}
    for key in others:
        if key not in of_adapter:
            raise ValueError(
                f"{name} takes no option {key!r}; valid options: "
                f"{', '.join([*parameters, *of_adapter]) or 'none'}"
            )
    if interface is None:
        return made
    if interface.in_jax:
        return interface.load()(make(**arguments) if made is None else made, **others)
    if callable(close := getattr(made, "close", None)):
        close()
    return interface.load()(functools.partial(make, **arguments), name=name, **others)


def _options(interface: Interface | None) -> list[str]:
    """List an adapter's options, which follow what it brings in; none without an adapter."""
    if interface is None:
        return []
    _, *names = inspect.signature(interface.load()).parameters
    return [name for name in names if name != "name"]
