"""Environments named in a file, made without running code that the user has not permitted.

The record of a run, a configuration and a file of a search each name an environment, which is made
here; `jaxmarl_envs.permission` decides what may be imported for it.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.permission import NotPermitted, importing_only, unused
from jaxmarl_ppo.config.checks import check_name, check_sequence, show
from jaxmarl_ppo.types import PyTree


def make_env(
    name: str,
    kwargs: Mapping[str, Any],
    permitted: Sequence[str],
    source: str,
    option: str = "--env",
) -> tuple[MultiAgentEnv, PyTree]:
    """Make the environment named in a file, importing only code that the user also names.

    Args:
        name: of the environment.
        kwargs: that it is made with.
        permitted: names of code that the user gave, see `permission.importing_only`.
        source: what names the environment, for the message.
        option: by which the user can name the first piece of code.

    Raises:
        ValueError: If it cannot be made, or not without the user's permission.
    """
    used: list[str] = []
    try:
        with importing_only(*permitted) as used:
            return jaxmarl_envs.make(name, **kwargs)
    except NotPermitted as error:
        given = f"; you named {', '.join(map(repr, permitted))}" if permitted else ""
        option = "--allow-import" if used else option
        keyword = f"env={error.name!r}" if option == "--env" else f"allow_imports=[{error.name!r}]"
        raise ValueError(
            f"{source} names {error.name!r}, and no code is run because a file names it{given}; if "
            f"you trust it, name it too: {option} {shlex.quote(error.name)}, or from Python "
            f"{keyword}"
        ) from None
    except (ValueError, ImportError):
        raise
    except Exception as error:  # a class may raise anything for recorded arguments
        reason = " ".join(str(error).split())
        raise ValueError(
            f"environment {name!r} cannot be made with {show(kwargs)}: {reason}"
        ) from error


def check_allow_imports(allow_imports: object) -> Sequence[str]:
    """Raise an error unless these can be names of code.

    Raises:
        ValueError: If they are not a sequence of strings.
    """
    names = check_sequence("allow_imports", allow_imports, "names such as 'package.module:Class'")
    return [check_name("an element of allow_imports", name) for name in names]


def check_effect(env: MultiAgentEnv, allow_imports: Sequence[str]) -> None:
    """Raise an error if a permitted name was not used by any import.

    Raises:
        ValueError: If one was; the message names it and what was imported.
    """
    for name in unused(allow_imports, env.imports):
        imported = ", ".join(env.imports) or "nothing"
        raise ValueError(
            f"naming {name!r} has no effect: environment {env.name!r} imports {imported} by its "
            "name; drop it"
        )


def as_options(imports: Sequence[str], first: str = "--env") -> str:
    """Write the options by which a command permits these imports, with a space in front."""
    flags = (first, *("--allow-import",) * len(imports))
    return "".join(
        f" {flag} {shlex.quote(name)}" for flag, name in zip(flags, imports, strict=False)
    )
