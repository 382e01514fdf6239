"""Where metrics go: a file of JSON lines and TensorBoard events."""

import math
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from jaxmarl_ppo.config.as_json import dump_json
from jaxmarl_ppo.runs.files import METRICS_FILE

# What differs between two runs of one configuration; all else is the same to the bit.
WALL_CLOCK_FIELDS = ("wall_s", "env_steps_per_s", "decisions_per_s", "peak_memory_mb")


class RunLog:
    """Writes each entry to `metrics.jsonl`, flushed at once, and to TensorBoard.

    An entry has `env_steps`, `decisions` and `iteration` (totals since training began), `episodes`
    and `decisions_per_tick` (of the interval since the entry before), `policies` and `agents`
    (tables by name, of the interval), `league` where results between players are kept (see
    `summary.summarise_league`), and the wall-clock fields: `wall_s` counts seconds since
    training began, compilation included; `env_steps_per_s` and `decisions_per_s` are rates of the
    interval, compilation excluded; `peak_memory_mb` is the greatest use so far, of the device, or
    on a CPU of the process.
    """

    def __init__(self, run_dir: Path) -> None:
        # Its import takes a third of a second.
        from tensorboardX import SummaryWriter

        self._file = (run_dir / METRICS_FILE).open("w", encoding="utf-8")
        self._events = SummaryWriter(str(run_dir))
        self._warned = False

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append an entry."""
        self._file.write(dump_json(entry) + "\n")
        self._file.flush()
        for name, value in scalars(entry):
            if math.isfinite(value):
                self._events.add_scalar(name, value, entry["env_steps"])
            elif not self._warned:
                self._warned = True
                warnings.warn(
                    f"{name} is {value} after {entry['env_steps']:,} environment steps; what is "
                    "not finite is left out of TensorBoard's curves",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def close(self) -> None:
        """Flush and close both."""
        self._file.close()
        self._events.close()

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def peak_memory_mb() -> float | None:
    """Return the peak of the first device's memory so far, or on a CPU of the process's.

    None where neither is known.
    """
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 1e6
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def scalars(entry: Mapping[str, Any]) -> list[tuple[str, float]]:
    """List every number of an entry, named by its path, such as `policies/shared/entropy`."""
    found = []
    for key, value in entry.items():
        if isinstance(value, Mapping):
            found += [(f"{key}/{name}", number) for name, number in scalars(value)]
        elif isinstance(value, int | float):
            found.append((key, float(value)))
    return found
