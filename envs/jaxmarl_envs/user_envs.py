"""Environments named by their code: `package.module:Class` or `path/to/file.py:Class`.

To make one is to import a module, which runs the code in it: `permission` says which names may be.
"""

import hashlib
import importlib
import importlib.util
import inspect
import json
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from jaxmarl_envs.adapters.incoming.own_code import LIBRARIES, interface_of
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.permission import ask_permission
from jaxmarl_envs.user_code import telling_of
from jaxmarl_envs.user_env_names import HOW_TO_NAME

# Modules of files whose own names stand for something else: no other process can import them.
RENAMED: set[str] = set()
EnvFactory = Callable[..., MultiAgentEnv | tuple[MultiAgentEnv, Any]]


def load(name: str) -> EnvFactory:
    """Import the code of an environment.

    Args:
        name: of a class or function, as `full_name` writes it.

    Raises:
        NotPermitted: See `permission.importing_only`.
        ValueError: If there is no such file, module or class, or importing it raises.
    """
    ask_permission(name)
    return import_factory(name)


def load_callable(name: str) -> Callable[..., Any]:
    """Import a class or function that need not be an environment of this package.

    Raises:
        NotPermitted: See `permission.importing_only`.
        ValueError: If there is no such file, module or attribute, or importing it raises.
    """
    ask_permission(name)
    found = _import_attribute(name)
    if not callable(found):
        raise ValueError(
            f"environment {name!r} has type {type(found).__name__}, expected a class, or a "
            "function that makes an environment"
        )
    return found


def import_factory(name: str) -> EnvFactory:
    """Import a class or function that needs no permission; see `load`."""
    found, attribute = _import_attribute(name), name.rpartition(":")[2]
    if isinstance(found, type) and not issubclass(found, MultiAgentEnv) and not interface_of(found):
        raise ValueError(
            f"environment {name!r}: {attribute!r} is a class, but no jaxmarl_envs.MultiAgentEnv, "
            f"and none of {LIBRARIES}"
        )
    if not callable(found):
        raise ValueError(
            f"environment {name!r}: {attribute!r} has type {type(found).__name__}, expected a "
            "MultiAgentEnv's class, or a function that makes an environment"
        )
    return cast(EnvFactory, found)


def _import_attribute(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError:
        there = ", ".join(_factories(module)) or "none"
        raise ValueError(
            f"environment {name!r}: {place} has no {attribute!r}; environments in it: {there}"
        ) from None


def build(name: str, factory: EnvFactory, kwargs: dict[str, Any]) -> tuple[MultiAgentEnv, Any]:
    """Call a class or function of the user's, and note on the environment how it was made.

    Args:
        name: to be recorded; nothing is recorded if `kwargs` cannot be written as JSON.
        factory: what `load` returns.
        kwargs: its keyword arguments.

    Raises:
        ValueError: If it raises, or what it returns is no environment.
    """
    given = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
    called = getattr(factory, "__name__", name.rpartition(":")[2])
    call = f"environment {name!r}, {called}({given})"
    with telling_of(call):
        made = factory(**kwargs)
    env, *rest = made if isinstance(made, tuple) and len(made) == 2 else (made,)
    if not isinstance(env, MultiAgentEnv):
        raise ValueError(
            f"{call} returns a {type(made).__name__}, expected a MultiAgentEnv or (env, "
            f"params), or an environment of {LIBRARIES}"
        )
    # An environment may be a frozen dataclass.
    object.__setattr__(env, "made_as", (name, kwargs) if _is_json(kwargs) else None)
    if rest:
        return env, rest[0]
    with telling_of(f"environment {name!r}, default_params"):
        return env, env.default_params


def _import_file(path: Path) -> ModuleType:
    """Import a file once, and let it import files beside it."""
    if not path.is_file():
        raise ValueError(f"environment file {str(path)!r} does not exist")
    if str(path.parent) not in sys.path:
        # Last, so that it hides nothing that is installed.
        sys.path.append(str(path.parent))
    with telling_of(f"importing {path}"):
        if _is_found_by_name(path):
            return importlib.import_module(path.stem)
        return _import_under_another_name(path)


def _is_found_by_name(path: Path) -> bool:
    """Return whether importing a file's name, as other modules and processes do, finds it."""
    if path.stem in sys.modules:
        found = getattr(sys.modules[path.stem], "__file__", None)
    else:
        importlib.invalidate_caches()  # it may have been written just now
        spec = None if "." in path.stem else importlib.util.find_spec(path.stem)
        found = None if spec is None else spec.origin
    return found is not None and Path(found).resolve() == path


def _import_under_another_name(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"{path.stem.replace('.', '_')}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # for every file that ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    RENAMED.add(name)
    return module


def _import_module(name: str) -> ModuleType:
    with telling_of(f"importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            missing = error.name
    raise ValueError(
        f"there is no module {missing!r}; name an environment as {HOW_TO_NAME}, the module "
        "installed or in the present folder"
    )


def _factories(module: ModuleType) -> list[str]:
    """List what a module defines that could make an environment."""
    return sorted(
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, MultiAgentEnv)
        and value.__module__ == module.__name__
    )


def _is_json(kwargs: dict[str, Any]) -> bool:
    try:
        json.dumps(kwargs, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
