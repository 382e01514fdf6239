"""Logs of a run: files of JSON lines, and TensorBoard event files.

An entry of `metrics.jsonl` has:

* `env_steps`, `decisions` and `iteration`: totals since training began.
* `episodes` and `decisions_per_step`: of the interval since the previous entry.
* `all`: of the interval's complete episodes; the returns of all agents add up.
* `policies` and `agents`: tables by name, of the interval.
* `league`: where results between players are kept; see `summary.summarise_league`.
* `env_params`: where the run has `env_schedules`; their values in the last iteration.
* `wall_s`: seconds of training, compilation included but not pauses.
* `env_steps_per_s` and `decisions_per_s`: rates of the interval, compilation excluded.
* `peak_memory_mb`: the greatest use so far, of the device, or on a CPU of the process.
* `seconds`: how long this process was in each phase of the run, such as compiling, training and
  evaluating.
* `rollout_share`: the share of an iteration's time that its rollout takes; from the first minute or
  so on.

The last five of these lines are wall-clock fields. An entry of `evaluations.jsonl` has `env_steps`,
`iteration`, `wall_s` and the numbers of a report of `evaluate_policies`.
"""

import contextlib
import functools
import importlib
import itertools
import math
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

from jaxmarl_ppo.config.as_json import dump_json
from jaxmarl_ppo.machine.files import open_to_append
from jaxmarl_ppo.policies.snapshot_files import parse_name
from jaxmarl_ppo.runs.callbacks import Callback, RunInfo, TrainResult
from jaxmarl_ppo.runs.entry_checks import is_entry, parse_line, present_names
from jaxmarl_ppo.runs.event_file import EventFile
from jaxmarl_ppo.runs.files import EVALUATIONS_FILE, LINEAGE_FILE, METRICS_FILE

# Fields that differ between two runs of one configuration; all others agree bit-for-bit.
WALL_CLOCK_FIELDS = (
    "wall_s",
    "env_steps_per_s",
    "decisions_per_s",
    "peak_memory_mb",
    "seconds",
    "rollout_share",
)


_MAX_LINE = 64_000_000  # of bytes, that are read in search of the newest line


class JsonLines:
    """A file of JSON lines, each written completely or not at all.

    Lines that a full disk rejects are kept and tried again with the next line, and at the end.

    Args:
        path: the file.
        num_kept: lines of it that stay; those after them are cut off.
    """

    def __init__(self, path: Path, num_kept: int = 0) -> None:
        self._path = path
        self._waiting: list[bytes] = []
        # Opened without a buffer, so that the written part is known after an error.
        self._end = _end_of_line(path, num_kept)
        self._file = open_to_append(path, self._end)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry, or keep it for later if the file cannot be written."""
        self._waiting.append(dump_json(entry).encode() + b"\n")
        try:
            self._write()
        except OSError as error:
            warnings.warn(
                f"{self._path} cannot be written ({error.strerror}); training continues, and "
                f"{len(self._waiting)} lines wait for the next try",
                RuntimeWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """Write pending lines, and close; may be called again."""
        if self._file.closed:
            return
        try:
            self._write()
        except OSError as error:
            warnings.warn(
                f"{self._path} cannot be written ({error.strerror}); its last "
                f"{len(self._waiting)} lines are lost",
                RuntimeWarning,
                stacklevel=2,
            )
        self._file.close()

    def _write(self) -> None:
        while self._waiting:
            line = memoryview(self._waiting[0])
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:
                self._file.truncate(self._end)  # not half a line
                raise
            self._end += len(self._waiting.pop(0))


def read_lines(
    path: Path, count: int, is_sound: Callable[[Mapping[str, Any]], bool] = lambda entry: True
) -> list[dict[str, Any]]:
    """Read the first entries of a file of JSON lines, as far as it is sound.

    Args:
        path: the file, which need not exist.
        count: number of entries to read; missing or damaged ones cause a warning.
        is_sound: checks that an entry has what its readers need.
    """
    entries: list[dict[str, Any]] = []
    if count and path.is_file():
        with path.open("rb") as file:
            for line in itertools.islice(file, count):
                try:
                    entry = parse_line(line)
                except ValueError:  # bytes that are no text are also one
                    break
                if not is_sound(entry):
                    break
                entries.append(entry)
    if len(entries) < count:
        warnings.warn(
            f"{path} holds {len(entries)} sound entries of {count}; the rest are lost",
            RuntimeWarning,
            stacklevel=2,
        )
    return entries


def sync_logs(run_dir: Path) -> None:
    """Flush the logs of a run to the disk, so that no checkpoint outlives entries that it counts.

    Raises:
        OSError: If one cannot be flushed.
    """
    for name in (METRICS_FILE, EVALUATIONS_FILE, LINEAGE_FILE):
        # This flushes the file, whichever handle wrote it; Windows requires write access for that.
        with contextlib.suppress(FileNotFoundError), (run_dir / name).open("r+b") as file:
            os.fsync(file.fileno())


def read_entries(path: Path, count: int | None = None) -> list[dict[str, Any]]:
    """Read the first entries of a log or of evaluations, as `read_lines`; None for all of them."""
    entries = read_lines(path, count_lines(path) if count is None else count, is_entry)
    return [present_names(entry) for entry in entries]


def read_newest(path: Path) -> dict[str, Any] | None:
    """Read the newest entry of a log or of evaluations from its end, however long it is.

    Returns:
        The last complete line; None where there is none, or it is damaged.

    Raises:
        OSError: If the file cannot be read.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        size, length = file.seek(0, os.SEEK_END), 0
        lines: list[bytes] = []
        while not lines and length < min(size, _MAX_LINE):
            length = min(size, 2 * length or 65_536)
            file.seek(size - length)
            # Half a line may follow the last line break, and precede the first one.
            lines = file.read(length).split(b"\n")[length < size : -1]
    with contextlib.suppress(ValueError):
        entry = parse_line(lines[-1]) if lines else {}
        if is_entry(entry):
            return present_names(entry)
    return None


def count_lines(path: Path) -> int:
    """Count the terminated lines of a file; 0 without a file."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _end_of_line(path: Path, num_lines: int) -> int:
    """Return how many bytes the first lines of a file take."""
    if not num_lines or not path.is_file():  # reading from a pipe could block
        return 0
    with path.open("rb") as file:
        for _ in range(num_lines):
            file.readline()
        return file.tell()


class JsonLinesLogger(Callback):
    """Writes `metrics.jsonl` and `evaluations.jsonl`."""

    def __init__(self) -> None:
        self._run: RunInfo | None = None
        self._metrics: JsonLines | None = None
        self._evaluations: JsonLines | None = None

    def on_start(self, run: RunInfo) -> None:
        """Open the log to continue at its end."""
        self._run = run
        self._metrics = JsonLines(run.run_dir / METRICS_FILE, len(run.history))
        if (run.run_dir / EVALUATIONS_FILE).exists():
            self._open_evaluations()

    def on_log(self, entry: Mapping[str, Any]) -> None:
        """Append an entry."""
        assert self._metrics is not None
        self._metrics.append(entry)

    def on_evaluation(self, report: Mapping[str, Any]) -> None:
        """Append an evaluation to a separate file."""
        if self._evaluations is None:
            self._open_evaluations()
        assert self._evaluations is not None
        self._evaluations.append(report)

    def on_end(self, result: TrainResult) -> None:
        """Close the files."""
        self.close()

    def close(self) -> None:
        """Close the files; may be called again."""
        for file in (self._metrics, self._evaluations):
            if file is not None:
                file.close()

    def _open_evaluations(self) -> None:
        assert self._run is not None
        path = self._run.run_dir / EVALUATIONS_FILE
        self._evaluations = JsonLines(path, len(self._run.evaluations))


class TensorBoardLogger(Callback):
    """Writes every number of entries and evaluations as TensorBoard's events."""

    def __init__(self) -> None:
        self._run_dir: Path | None = None
        self._purge_step: int | None = None
        self._events: EventFile | None = None
        self._warned = False

    def on_start(self, run: RunInfo) -> None:
        """Invalidate events that a dead process wrote after the last kept entry."""
        self._run_dir = run.run_dir
        _protos()  # now, so that the first entry does not wait for it
        if not run.resumed_at:
            return
        kept = run.history[-1]["env_steps"] if run.history else 0
        self._purge_step = kept + 1
        for report in run.evaluations:
            if report["env_steps"] > kept:
                self.on_evaluation(report)

    def on_log(self, entry: Mapping[str, Any]) -> None:
        """Write every number of an entry, and a table of win rates."""
        league = entry.get("league", {})
        tables = (
            {"league/win_rate": _matrix(league["players"], league["win_rate"])} if league else {}
        )
        self._write(scalars(entry), entry["env_steps"], tables)

    def on_evaluation(self, report: Mapping[str, Any]) -> None:
        """Write every number of an evaluation."""
        self._write(scalars({"evaluation": report}), report["env_steps"])

    def on_end(self, result: TrainResult) -> None:
        """Close the file of events."""
        self.close()

    def close(self) -> None:
        """Close the file of events; may be called again."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _write(
        self, numbers: list[tuple[str, float]], step: int, tables: Mapping[str, str] | None = None
    ) -> None:
        protos = _protos()
        finite = [(name, number) for name, number in numbers if math.isfinite(number)]
        if len(finite) < len(numbers) and not self._warned:
            self._warned = True
            name, number = next(pair for pair in numbers if not math.isfinite(pair[1]))
            warnings.warn(
                f"{name} is {number} after {step:,} environment steps; what is not finite is left "
                "out of TensorBoard's curves",
                RuntimeWarning,
                stacklevel=2,
            )
        values = [protos.Summary.Value(tag=name, simple_value=number) for name, number in finite]
        for name, table in (tables or {}).items():
            values += protos.text(name, table).value
        try:
            if self._events is None:
                self._events = self._open()
            summary = protos.Summary(value=values)
            event = protos.Event(step=step, wall_time=time.time(), summary=summary)
            self._events.write(event.SerializeToString())
            self._events.flush()
        except OSError as error:
            # A record may have been truncated; readers stop there.
            with contextlib.suppress(OSError):
                self.close()
            self._events = None
            warnings.warn(
                f"TensorBoard's events cannot be written ({error.strerror}); training continues",
                RuntimeWarning,
                stacklevel=2,
            )

    def _open(self) -> EventFile:
        protos = _protos()
        assert self._run_dir is not None
        number = len(list(self._run_dir.glob("events.out.tfevents.*")))
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{number}"
        events = EventFile(self._run_dir / name)
        first = [protos.Event(wall_time=time.time(), file_version="brain.Event:2")]
        if self._purge_step is not None:
            start = protos.SessionLog(status=protos.SessionLog.START)
            first.append(
                protos.Event(wall_time=time.time(), step=self._purge_step, session_log=start)
            )
        for event in first:
            events.write(event.SerializeToString())
        self._purge_step = None
        return events


@functools.cache
def _protos() -> Any:
    """Import TensorBoard's messages, which takes a third of a second."""
    # By name, since what is in the modules is made as they are imported.
    events, summaries = (
        importlib.import_module(f"tensorboardX.proto.{name}")
        for name in ("event_pb2", "summary_pb2")
    )
    return SimpleNamespace(
        Event=events.Event,
        SessionLog=events.SessionLog,
        Summary=summaries.Summary,
        text=importlib.import_module("tensorboardX.summary").text,
    )


def _matrix(players: list[str], win_rate: list[list[float | None]]) -> str:
    """Write the win rates of rows against columns as a table of Markdown."""
    lines = [["", *players], ["---"] * (1 + len(players))]
    for player, row in zip(players, win_rate, strict=True):
        lines.append([f"**{player}**", *("" if x is None else f"{x:.0%}" for x in row)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def peak_memory_mb() -> float | None:
    """Return the peak of the first device's memory so far, or on a CPU of the process's.

    None where neither is known.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 1e6
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def scalars(entry: Mapping[str, Any]) -> list[tuple[str, float]]:
    """List the numbers of an entry, named by their paths, such as `policies/shared/entropy`.

    Snapshots are left out: each would have a curve of a few points.
    """
    found = []
    for key, value in entry.items():
        if parse_name(key) is not None:
            continue
        if isinstance(value, Mapping):
            found += [(f"{key}/{name}", number) for name, number in scalars(value)]
        elif isinstance(value, int | float):
            found.append((key, float(value)))
    return found
