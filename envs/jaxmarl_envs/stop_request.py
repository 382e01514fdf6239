"""Requests to stop, heard while environments in plain Python are waited for.

Whoever handles signals makes and withdraws a request; whoever waits for an environment looks here
several times a second, so that one that hangs cannot keep a run from ending.
"""

import time

# Seconds for which an environment may continue without an answer once a stop is requested.
GRACE_S = 10.0

_requested_at: float | None = None
_at_once = False


def request(at_once: bool = False) -> None:
    """Request a stop.

    Args:
        at_once: wait for no answer any more.
    """
    global _requested_at, _at_once
    if _requested_at is None:
        _requested_at = time.monotonic()
    _at_once = _at_once or at_once


def withdraw() -> None:
    """Withdraw all requests."""
    global _requested_at, _at_once
    _requested_at, _at_once = None, False


def is_due(since: float) -> bool:
    """Return whether to give up on an environment.

    Args:
        since: when it was last seen to move, by `time.monotonic`.
    """
    if _requested_at is None:
        return False
    return _at_once or time.monotonic() - max(since, _requested_at) >= GRACE_S
