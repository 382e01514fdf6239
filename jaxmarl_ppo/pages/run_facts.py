"""How a run stands, as facts for the head of a page."""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_ppo.runs.status import (
    FAILED,
    NO_END,
    RUNNING,
    STOPPED,
    Status,
    planned_env_steps,
)


def progress_facts(
    entries: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    status: Status | None,
    of: str = "",
) -> list[list[str]]:
    """Format how a run stands as pairs of name and text; "bad" marks what did not go to its end.

    Args:
        entries: of its log.
        record: the content of its `config.json`.
        status: of the run; None if only its log is known.
        of: whose environment steps they are, in a group.
    """
    last = entries[-1] if entries else {}
    done, planned = last.get("env_steps", 0), None
    facts = []
    if status is not None:
        done, planned = status.env_steps, planned_env_steps(record)
        how = ["status", _in_words(status)]
        facts.append([*how, "bad"] if status.state in (STOPPED, FAILED) else how)
    share = f" of {planned:,} ({100 * done // planned}\u00a0%)" if planned else ""
    facts.append([f"environment steps {of}".rstrip(), f"{done:,}{share}"])
    facts.append(["agent steps", f"{last.get('decisions', 0):,}"])
    facts.append(["training time", _duration(last.get("wall_s") or 0.0)])
    if status is not None and status.time is not None:
        is_open = status.state == RUNNING or status.reason == NO_END
        name = "newest entry" if is_open else "ended"
        facts.append([name, f"{status.time[:16].replace('T', ' ')} UTC"])
    return facts


def _in_words(status: Status) -> str:
    """Name a state and its reason: "stopped by Ctrl-C (SIGINT)"."""
    if status.reason is None:
        return status.state
    if status.reason in signal.Signals.__members__:
        name = "Ctrl-C (SIGINT)" if status.reason == "SIGINT" else status.reason
        return f"{status.state} by {name}"
    return f"{status.state}: {status.reason}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
