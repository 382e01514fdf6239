"""Runs one side in processes of its own: limited in time, killable, its memory watched."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent.parent
CHILD = (sys.executable, "-m", "ray_baseline.child")
# After its time is up a side may finish its iteration and close down.
GRACE_S = 60.0
MEMORY_INTERVAL_S = 0.5
MAX_ERROR_CHARS = 300


def run_side(
    side: str,
    scenario: str,
    seconds: float,
    seed: int = 0,
    rllib: Mapping[str, Any] | None = None,
    command: Sequence[str] = CHILD,
) -> dict[str, Any]:
    """Train one side of a scenario.

    Args:
        side: a key of `report.SIDES`.
        scenario: a key of `scenarios.SCENARIOS`.
        seconds: from the start of the process until it is to stop.
        seed: of everything random.
        rllib: fields of `RllibSettings` to be changed.
        command: what is run, with the request as its last argument.

    Returns:
        `"windows"`, what the process recorded; `"peak_memory_mb"` of all its processes together,
        None where that cannot be told; and `"error"`, None or a sentence.
    """
    with tempfile.TemporaryDirectory() as folder:
        record, errors = Path(folder) / "record", Path(folder) / "errors"
        request = {
            "side": side,
            "scenario": scenario,
            "seconds": seconds,
            "seed": seed,
            "rllib": dict(rllib or {}),
            "started": time.time(),
            "record": str(record),
        }
        paths = (str(SCRIPTS), os.environ.get("PYTHONPATH", ""))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [*command, json.dumps(request)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            peak, error = _watch(process, seconds + GRACE_S)
        lines = record.read_text().splitlines() if record.exists() else []
        if error is None and process.returncode:
            error = _what_failed(errors.read_text()) or f"exit status {process.returncode}"
        # A process that was killed may have left half a line.
        windows = [json.loads(line) for line in lines if line.endswith("}")]
        if error is None and not windows:
            error = "it recorded nothing"
        return {"windows": windows, "peak_memory_mb": peak, "error": error}


def _watch(process: subprocess.Popen[bytes], limit_s: float) -> tuple[float | None, str | None]:
    """Wait for a process; its peak memory in MB, and why it was killed, if it was."""
    peaks: list[float] = [0.0]
    stopped = threading.Event()

    def sample() -> None:
        while not stopped.wait(MEMORY_INTERVAL_S):
            peaks.append(session_memory_mb(process.pid))

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    error = None
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        error = f"killed after {limit_s:.0f} s"
    finally:
        stopped.set()
        watcher.join()
        kill_session(process)
    return max(peaks) or None, error


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, Ray's daemons included."""
    for pid in session_members(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def session_members(session: int) -> list[int]:
    """Processes of a session, of which `start_new_session` made one; none but on Linux."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            # After the name, which is in brackets: state, parent, group, session.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                members.append(int(folder.name))
    return members


def _at_work(session: int) -> list[int]:
    """A session's processes, but for those that only keep cores awake."""
    found = []
    for pid in session_members(session):
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(pid) != os.SCHED_IDLE:
                found.append(pid)
    return found


def session_cpu_s(session: int) -> float:
    """Seconds of cores that a session's processes have used so far."""
    ticks = 0
    for pid in _at_work(session):
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # in user and in system mode
    return ticks / os.sysconf("SC_CLK_TCK")


def session_memory_mb(session: int) -> float:
    """Memory of a session's processes in MB; what several share counts once."""
    total_kb = 0
    for pid in _at_work(session):
        with contextlib.suppress(OSError, IndexError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total_kb += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb * 1024 / 1e6


def _what_failed(text: str) -> str:
    """The last exception in what a process wrote, or else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (exceptions or lines or [""])[-1][:MAX_ERROR_CHARS]
