"""Status of a run: running, finished, stopped or failed, and how far it is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.as_json import read_json, write_json
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.files import END_FILE, METRICS_FILE
from jaxmarl_ppo.runs.lock import is_locked

RUNNING, FINISHED, STOPPED, FAILED = STATES = ("running", "finished", "stopped", "failed")
NO_END = "no end was recorded, as after kill -9"


@dataclass(frozen=True)
class Status:
    """Status of a run.

    Attributes:
        state: one of `STATES`.
        reason: what stopped it, a signal's name or a sentence; None if nothing did, or it is not
            known.
        env_steps: environment steps done.
        time: of its end, or of its newest log entry, in UTC (ISO 8601); None if unknown.
    """

    state: str
    reason: str | None
    env_steps: int
    time: str | None


def record_end(result: TrainResult) -> Status:
    """Write how a run has ended into its folder, and return it.

    Args:
        result: of the run.
    """
    state = FAILED if result.failed else STOPPED if result.interrupted else FINISHED
    status = Status(state, result.stopped_by, result.env_steps, _utc(datetime.now(UTC)))
    write_json(result.run_dir / END_FILE, asdict(status))
    return status


def read_status(
    run_dir: Path, record: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> Status:
    """Read the status of a run; nothing in its folder is changed.

    Args:
        run_dir: its folder.
        record: the content of its `config.json`.
        entries: of its log.
    """
    is_running = is_locked(run_dir)
    if not is_running:
        recorded = read_end(run_dir)
        if recorded is not None:
            return recorded
    env_steps = entries[-1]["env_steps"] if entries else 0
    planned = planned_env_steps(record)
    is_finished = planned is not None and env_steps >= planned
    state = RUNNING if is_running else FINISHED if is_finished else STOPPED
    reason = NO_END if state == STOPPED else None
    log = run_dir / METRICS_FILE
    changed = datetime.fromtimestamp(log.stat().st_mtime, UTC) if log.is_file() else None
    return Status(state, reason, env_steps, None if changed is None else _utc(changed))


def planned_env_steps(record: Mapping[str, Any]) -> int | None:
    """Return the environment steps that a run has when it is finished; None if unknown."""
    config = record["config"]
    keys = ("total_env_steps", "num_envs", "num_steps")
    values = [config.get(key) for key in keys] if isinstance(config, Mapping) else []
    numbers = [value for value in values if type(value) is int and value > 0]
    if len(numbers) != len(keys):
        return None
    total, num_envs, num_steps = numbers
    per_iteration = num_envs * num_steps
    return -(-total // per_iteration) * per_iteration


def read_end(run_dir: Path) -> Status | None:
    """Read what `record_end` has written; None if it is missing or damaged."""
    try:
        status = Status(**read_json(run_dir / END_FILE))
    except (ValueError, TypeError):
        return None
    is_sound = (
        status.state in STATES
        and isinstance(status.reason, str | None)
        and type(status.env_steps) is int
        and isinstance(status.time, str | None)
    )
    return status if is_sound else None


def _utc(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
