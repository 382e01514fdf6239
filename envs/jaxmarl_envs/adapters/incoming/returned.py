"""What `reset` and `step` of environments in plain Python take and return, checked for its form."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

_OF_STEP = ("observations", "rewards", "terminations", "truncations", "infos")


def takes_seed(env: Any) -> bool:
    """Return whether `reset` of an environment takes `seed=`."""
    parameters = inspect.signature(env.reset).parameters.values()
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)


def check_seed(env: Any) -> None:
    """Raise a ValueError if an environment of Gymnasium or PettingZoo takes no seed."""
    if not takes_seed(env):
        raise ValueError(
            f"reset of {env} takes {inspect.signature(env.reset)}; expected (seed=None, "
            "options=None), as in Gymnasium and PettingZoo"
        )


def check_reset(found: Any) -> tuple[Any, Any]:
    """Return observations and infos as `reset` of Gymnasium and PettingZoo returns them.

    Raises:
        ValueError: For anything else, such as observations alone, as in Gym before 0.26.
    """
    if not isinstance(found, tuple) or len(found) != 2:
        raise ValueError(f"reset returns {shown(found)}; expected (observation, info)")
    return found


def check_step(found: Any) -> tuple[Any, ...]:
    """Return what `step` of Gymnasium and PettingZoo returns.

    Raises:
        ValueError: For anything else, such as four values, as in Gym before 0.26.
    """
    if not isinstance(found, tuple) or len(found) != 5:
        raise ValueError(
            f"step returns {shown(found)}; expected (observation, reward, terminated, truncated, "
            "info)"
        )
    return found


def check_step_by_agent(found: Any) -> tuple[Any, ...]:
    """Return what `step` of a parallel environment returns: five dictionaries by agent.

    Raises:
        ValueError: For anything else.
    """
    check_by_agent("step", _OF_STEP, check_step(found))
    return found


def check_by_agent(call: str, what: Sequence[str], found: Sequence[Any], hint: str = "") -> None:
    """Raise a ValueError unless all that is `found` are dictionaries.

    Args:
        call: which returned it.
        what: names of its parts.
        found: the parts.
        hint: what the message ends with.
    """
    for name, part in zip(what, found, strict=True):
        if type(part) is not dict and not isinstance(part, Mapping):
            raise ValueError(
                f"{call} returns {name} that are no dictionary by agent: {shown(part)}{hint}"
            )


def shown(value: Any) -> str:
    """Represent a value in one line that is not too long for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
