"""Building an environment of JaxMARL from plain values, and saying which values there are."""

import inspect
import io
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.compiled import unknown_id
from jaxmarl_envs.permission import ask_permission

# What the particle environments take without naming it, all of it arrays or numbers.
_PARTICLE_OPTIONS = (
    *("rad", "moveable", "silent", "collide", "mass", "accel", "max_speed"),
    *("u_noise", "c_noise", "damping", "contact_force", "contact_margin"),
)


def build(env_id: str, options: dict[str, Any]) -> Any:
    """Build a JaxMARL environment.

    Raises:
        ImportError: If JaxMARL, or a package that this environment of it needs, is not installed.
        ValueError: For an unknown id or option, or a value that JaxMARL rejects.
    """
    jaxmarl = _import_jaxmarl()
    if env_id not in jaxmarl.registered_envs:
        raise unknown_id(env_id, jaxmarl.registered_envs)
    needs = [name for name in _required(env_id) if name not in options]
    if needs:
        raise ValueError(f"JaxMARL environment {env_id!r} needs the options {', '.join(needs)}")
    kind = type(_construct(jaxmarl, env_id, {name: options[name] for name in _required(env_id)}))
    takes = _parameters(kind)
    # MABrax would reset itself within its own `step_env`, and lose the last observation.
    fixed = {"auto_reset": False} if takes.pop("auto_reset", None) is not None else {}
    unknown = [name for name in options if name not in takes]
    if unknown:
        raise ValueError(
            f"JaxMARL environment {env_id!r} takes no option {unknown[0]!r}; "
            f"valid options: {', '.join(takes)}"
        )
    _ask_permission(options)
    given = {name: _value(env_id, name, value, takes[name]) for name, value in options.items()}
    try:
        return _construct(jaxmarl, env_id, {**given, **fixed})
    except (AssertionError, TypeError, ValueError, KeyError, NotImplementedError) as error:
        raise ValueError(
            f"JaxMARL environment {env_id!r} cannot be built with the options {options}: {error}"
        ) from error


def _ask_permission(options: Any) -> None:
    """Check permission to read a folder from which JaxNav unpickles maps, at any depth."""
    if isinstance(options, dict):
        for name, value in options.items():
            if name == "dir_path" and value is not None:
                ask_permission(str(value))
            _ask_permission(value)
    elif isinstance(options, list | tuple):
        for value in options:
            _ask_permission(value)


def _import_jaxmarl() -> Any:
    """Import JaxMARL without what its import prints.

    The import also puts back the streams with which the process began, so that to redirect the
    present ones is not enough, and what the caller has redirected must be redirected again.
    """
    names = ("stdout", "stderr", "__stdout__", "__stderr__")
    streams = {name: getattr(sys, name) for name in names}
    try:
        sys.stdout = sys.__stdout__ = io.StringIO()  # pyright: ignore[reportAttributeAccessIssue]
        return import_extra("jaxmarl", "jaxmarl")
    finally:
        for name, stream in streams.items():
            setattr(sys, name, stream)


def _required(env_id: str) -> tuple[str, ...]:
    """List the options without a default, which only the learned enemy has."""
    return ("policy", "params") if env_id == "LearnedPolicyEnemySMAX" else ()


def _construct(jaxmarl: Any, env_id: str, options: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        # Recommendations of the second Overcooked, and of what is to follow MABrax.
        for message in ("OvercookedV2 is now released", "MABrax is deprecated"):
            warnings.filterwarnings("ignore", message, DeprecationWarning)
        return jaxmarl.make(env_id, **options)


def _parameters(kind: type) -> dict[str, Any]:
    """Collect names and defaults of all that a constructor takes, also of what it hands on."""
    found: dict[str, Any] = {}
    for cls in kind.__mro__:
        if "__init__" not in vars(cls):
            continue
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        named = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        found = {**named, **found}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            return found
        if cls.__name__ == "SimpleMPE":
            return {**found, **dict.fromkeys(_PARTICLE_OPTIONS, jnp.zeros(()))}
        if cls.__name__ == "EnemySMAX":
            smax = import_extra("jaxmarl.environments.smax", "jaxmarl")
            return {**_parameters(smax.SMAX), **found}
    return found


def _value(env_id: str, name: str, value: Any, default: Any) -> Any:
    """Turn an option into what JaxMARL takes: scenarios and layouts by name, lists as arrays."""
    if isinstance(value, str) and name == "scenario":
        scenarios = import_extra("jaxmarl.environments.smax.smax_env", "jaxmarl")
        return _by_name(env_id, name, value, scenarios.MAP_NAME_TO_SCENARIO)
    if isinstance(value, str) and name == "layout":
        environments = import_extra("jaxmarl.environments", "jaxmarl")
        second = env_id == "overcooked_v2"
        return _by_name(
            env_id,
            name,
            value,
            environments.overcooked_v2_layouts if second else environments.overcooked_layouts,
        )
    if isinstance(value, list | tuple) and isinstance(default, jax.Array):
        return jnp.asarray(value)
    return value


def _by_name(env_id: str, option: str, name: str, table: dict[str, Any]) -> Any:
    if name not in table:
        raise ValueError(
            f"{option}={name!r} of JaxMARL environment {env_id!r}: valid names: {', '.join(table)}"
        )
    return table[name]
