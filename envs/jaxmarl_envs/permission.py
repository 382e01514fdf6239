"""Permission to import the code that a file names.

A file that is read, such as the record of a run, a configuration or a search, does not decide which
code runs. Code that makes an environment from a file does so within `importing_only`, with the
names that the user gave. Everything that imports a module by a name, or hands a name to a library
that may import or unpickle what it stands for, asks `ask_permission` first: there is no other list
and no other rule.

Code that may always be imported is installed and meant to be found by its name: what this package
and the entry points of installed packages register, and the packages of environments that an
adapter declares. A package belongs in that list only if none of its environments imports or
unpickles files named in their arguments.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxmarl_envs.user_env_names import full_name


class NotPermitted(ValueError):  # noqa: N818
    """A file names code that the user has not named.

    Attributes:
        name: what it names.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is not imported because a file names it")


@dataclass(frozen=True)
class _Scope:
    """Names that may be imported, and lists that record imports.

    Attributes:
        names: that may be imported; None for all.
        used: lists that a name is added to when it is imported.
    """

    names: frozenset[str] | None
    used: tuple[list[str], ...]


_EVERYTHING = _Scope(None, ())
_scope: contextvars.ContextVar[_Scope] = contextvars.ContextVar("permission", default=_EVERYTHING)


@contextlib.contextmanager
def importing_only(*names: str) -> Iterator[list[str]]:
    """Let the body import only the code that `names` name, wherever a file names it.

    Args:
        *names: exactly as they are passed to an environment, but paths of files may be relative.

    Yields:
        The names that were imported, a list that grows.

    Raises:
        NotPermitted: If something else would be imported.
    """
    permitted = frozenset(map(full_name, names))
    around = _scope.get().names
    with _entered(permitted if around is None else permitted & around) as used:
        yield used


@contextlib.contextmanager
def noting_imports() -> Iterator[list[str]]:
    """Collect the names by which the body imports code; what may be imported stays the same.

    Yields:
        The names, a list that grows.
    """
    with _entered(_scope.get().names) as used:
        yield used


def ask_permission(name: str, place: object = None, known: Sequence[str] = ()) -> None:
    """Raise an error unless the code that a name stands for may be imported.

    Args:
        name: as the user would name it.
        place: location of the code: a module, `module:attribute`, or the class or function itself,
            which a library's registry may hold; it has been imported, but not to be called with
            what a file says. None for what no list can hold.
        known: packages and modules that may be imported together with all that is in them.

    Raises:
        NotPermitted: See `importing_only`.
    """
    module = place.partition(":")[0] if isinstance(place, str) else _module_of(place)
    if any(f"{module}.".startswith(f"{package}.") for package in known):
        return
    name, scope = full_name(name), _scope.get()
    if scope.names is not None and name not in scope.names:
        raise NotPermitted(name)
    for used in scope.used:
        if name not in used:
            used.append(name)


def unused(names: Sequence[str], used: Sequence[str]) -> list[str]:
    """List those of the names that the user permitted which nothing was imported by."""
    return [name for name in names if full_name(name) not in used]


def _module_of(found: object) -> str:
    return getattr(found, "__module__", None) or ""


@contextlib.contextmanager
def _entered(names: frozenset[str] | None) -> Iterator[list[str]]:
    used: list[str] = []
    token = _scope.set(_Scope(names, (*_scope.get().used, used)))
    try:
        yield used
    finally:
        _scope.reset(token)
