"""From recorded windows of training to rates, times to a return and ratios."""

import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_ppo.machine.cores import usable_cores
from jaxmarl_ppo.machine.hardware import processor_name
from ray_baseline.scenarios import Scenario

# What is compiled, loaded or touched for the first time is no part of the rates.
WARM_UP_WINDOWS = 2
PACKAGES = ("jax", "ray", "torch", "numpy", "gymnasium")
# What ratios are given of; of the last two less is better.
RATES = ("env_steps_per_s", "decisions_per_s", "env_steps_per_core_s")
COSTS = ("seconds_to_target", "peak_memory_mb")

Run = Mapping[str, Any]


def summarise(runs: Sequence[Run], scenario: Scenario) -> dict[str, Any]:
    """What one side's runs of a scenario came to.

    Args:
        runs: as `processes.run_side` returns them.
        scenario: which it was.

    Returns:
        Medians over all windows after each run's first ones, `*_range` with least and greatest;
        medians over runs of the seconds to the target (None if not all runs got there) and of peak
        memory; `curves`, per run pairs of seconds and return; and `error`.
    """
    measured = [window for run in runs for window in _measured(run["windows"])]
    curves = [curve(run["windows"], scenario) for run in runs]
    rates = {name: _rates(measured, name) for name in RATES}
    errors = [run["error"] for run in runs if run["error"]]
    decisions = sum(window["decisions"] for window in measured)
    rows = sum(window["trained_rows"] for window in measured)
    return {
        **{name: float(np.median(values)) if values else None for name, values in rates.items()},
        **{f"{name}_range": [min(v), max(v)] if v else None for name, v in rates.items()},
        "num_windows": len(measured),
        "cores_kept_busy": _median([w["cpu_s"] / w["seconds"] for w in measured]),
        "trained_rows_per_decision": rows / decisions if decisions else None,
        "seconds_to_target": _median([seconds_to(c, scenario.target) for c in curves]),
        "peak_memory_mb": _median([run["peak_memory_mb"] for run in runs]),
        "curves": curves,
        "error": errors[0] if errors else None,
    }


def curve(windows: Sequence[Run], scenario: Scenario) -> list[list[float]]:
    """`[seconds since the start of the process, return]` of every window that has a return."""
    points = []
    for window in windows:
        returns = window["returns"]
        if scenario.return_of and all(name in returns for name in scenario.return_of):
            value = sum(factor * returns[name] for name, factor in scenario.return_of.items())
            points.append([round(window["wall_s"], 2), round(value, 4)])
    return points


def seconds_to(points: Sequence[Sequence[float]], target: float | None) -> float | None:
    """When a curve first reaches a return; None if it does not."""
    return next((t for t, value in points if target is not None and value >= target), None)


def ratios(ours: Run, theirs: Run) -> dict[str, float | None]:
    """How many times better ours is: faster, sooner, or smaller."""
    better = {name: _quotient(ours[name], theirs[name]) for name in RATES}
    return better | {name: _quotient(theirs[name], ours[name]) for name in COSTS}


def machine() -> dict[str, Any]:
    """What figures are taken on, and the versions of what runs."""
    return {
        "processor": processor_name(),
        "cores": usable_cores(),
        "python": sys.version.split()[0],
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _measured(windows: Sequence[Run]) -> Sequence[Run]:
    """All but the first ones, as long as one is left."""
    return windows[min(WARM_UP_WINDOWS, max(len(windows) - 1, 0)) :]


def _rates(windows: Sequence[Run], name: str) -> list[float]:
    """Per second of time, or of a core's work where that can be told."""
    what = name.removesuffix("_per_core_s").removesuffix("_per_s")
    seconds = "cpu_s" if name.endswith("_per_core_s") else "seconds"
    return [window[what] / window[seconds] for window in windows if window[seconds] > 0]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known and len(known) == len(values) else None


def _quotient(x: float | None, y: float | None) -> float | None:
    return x / y if x is not None and y else None
