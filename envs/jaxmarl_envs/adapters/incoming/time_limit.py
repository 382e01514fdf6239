"""Limits on the length of episodes, and whether an end at one truncates or terminates."""

import jax
import jax.numpy as jnp

AT_TIME_LIMIT = ("truncates", "terminates")


def check_horizon(horizon: object, name: str = "horizon") -> None:
    """Check that an argument, called `name`, is a number of steps, or None.

    Raises:
        ValueError: If it is not.
    """
    is_count = isinstance(horizon, int) and not isinstance(horizon, bool) and horizon >= 1
    if horizon is not None and not is_count:
        raise ValueError(f"{name}={horizon!r}: give a whole number of at least 1, or None")


def check_at_time_limit(at_time_limit: object) -> None:
    """Check that an argument is one of `AT_TIME_LIMIT`, or None.

    Raises:
        ValueError: If it is not.
    """
    if at_time_limit is not None and at_time_limit not in AT_TIME_LIMIT:
        raise ValueError(
            f"at_time_limit={at_time_limit!r}: valid choices are {', '.join(AT_TIME_LIMIT)}"
        )


def check_limits(name: str, horizon: object, at_time_limit: object, has_own: bool) -> None:
    """Check both arguments, and that there is a time limit for `at_time_limit` to apply to.

    Args:
        name: of the environment, for messages.
        horizon: as in `check_horizon`.
        at_time_limit: as in `check_at_time_limit`.
        has_own: whether a limit of the environment itself is known.

    Raises:
        ValueError: If one is invalid, or there is no limit.
    """
    check_horizon(horizon)
    check_at_time_limit(at_time_limit)
    if at_time_limit is not None and horizon is None and not has_own:
        raise ValueError(
            f"at_time_limit={at_time_limit!r} has no effect: no limit of {name!r} is known; give "
            "it as horizon"
        )


def earliest(*limits: int | None) -> int | None:
    """Return the smallest of some limits, or None if all are None."""
    return min((limit for limit in limits if limit is not None), default=None)


def read_ends(
    terminated: jax.Array,
    truncated: jax.Array,
    continues: jax.Array,
    *,
    time: jax.Array | None,
    horizon: int | jax.Array | None,
    at_time_limit: str | None,
    knows_time: bool,
) -> tuple[jax.Array, jax.Array]:
    """Truncate what goes on at the horizon, and read ends at the time limit as the user wants.

    Args:
        terminated: which games the library ends by their own rules at this step, bool of any shape.
        truncated: which games it ends by a time limit, like all of the same shape.
        continues: which games it does not end.
        time: the number of this step, `[]` int; None where steps are not counted.
        horizon: the step that is the last, if any.
        at_time_limit: what an end at the time limit is; None for what it is by itself.
        knows_time: whether `truncated` already has every end by time, so that an end by the game's
            own rules at the very horizon remains one.

    Returns:
        `terminated` and `truncated`.
    """
    late = jnp.bool_(False) if time is None or horizon is None else time >= horizon
    truncated = truncated | (continues & late)
    if at_time_limit == "terminates":
        return terminated | truncated, jnp.zeros_like(truncated)
    if at_time_limit == "truncates" and not knows_time:
        return terminated & ~late, truncated | (terminated & late)
    return terminated, truncated
