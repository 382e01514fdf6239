"""From recorded windows of training to figures, their spread over runs, and ratios."""

import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from jaxmarl_envs.backend import usable_cores
from jaxmarl_ppo.machine.hardware import processor_name
from ray_baseline.scenarios import Measure, Scenario

# What is compiled, loaded or touched for the first time is no part of the rates.
WARM_UP_WINDOWS = 2
PACKAGES = ("jax", "ray", "torch", "numpy", "gymnasium")
RATES = ("env_steps_per_s", "decisions_per_s", "env_steps_per_core_s")
# Of these less is better.
COSTS = ("peak_memory_mb", "seconds_to", "steps_to")

Run = Mapping[str, Any]
# The median over runs, the least and the most.
Spread = dict[str, float]


def summarise(runs: Sequence[Run], scenario: Scenario) -> dict[str, Any]:
    """Sum up one side's runs of a scenario.

    Args:
        runs: as `processes.run_side` returns them.
        scenario: which it was.

    Returns:
        `figures`, each a `Spread` over runs, or None where a run lacks it, such as one that does
        not reach the target; `curves`, by measure, per run triples of seconds, environment steps
        and value; and `error`, None or a sentence.
    """
    curves = {m.label: [curve(run["windows"], m) for run in runs] for m in scenario.measures}
    found = [_figures(run["windows"]) | {"peak_memory_mb": run["peak_memory_mb"]} for run in runs]
    figures = {name: spread([of_run[name] for of_run in found]) for name in found[0]}
    for measure in scenario.measures:
        label, of_runs = measure.label, curves[measure.label]
        figures[f"last {label}"] = spread([points[-1][2] if points else None for points in of_runs])
        if measure.target is not None:
            reached = [first_at(points, measure.target) for points in of_runs]
            figures[f"seconds_to {label}"] = spread([at[0] if at else None for at in reached])
            figures[f"steps_to {label}"] = spread([at[1] if at else None for at in reached])
    errors = [run["error"] for run in runs if run["error"]]
    return {"figures": figures, "curves": curves, "error": errors[0] if errors else None}


def _figures(windows: Sequence[Run]) -> dict[str, float | None]:
    """Figures of one run: medians over its windows after the first ones."""
    measured = windows[min(WARM_UP_WINDOWS, max(len(windows) - 1, 0)) :]
    decisions = sum(window["decisions"] for window in measured)
    rows = sum(window["trained_rows"] for window in measured)
    return {
        **{name: _median(_rates(measured, name)) for name in RATES},
        "cores_kept_busy": _median([w["cpu_s"] / w["seconds"] for w in measured]),
        **{f"{part}_share": _median(_shares(measured, part)) for part in ("sampling", "learning")},
        "trained_rows_per_decision": rows / decisions if decisions else None,
    }


def curve(windows: Sequence[Run], measure: Measure) -> list[list[float]]:
    """Follow a measure: `[seconds since the start of the process, environment steps, value]`."""
    points, env_steps = [], 0
    for window in windows:
        returns = window["returns"]
        env_steps += window["env_steps"]
        if all(name in returns for name in measure.returns_of):
            value = sum(factor * returns[name] for name, factor in measure.returns_of.items())
            point = [round(window["wall_s"], 2), env_steps, round(measure.constant + value, 4)]
            points.append(point)
    return points


def first_at(points: Sequence[Sequence[float]], target: float) -> Sequence[float] | None:
    """Find the first point of a curve that reaches a value; None if it does not."""
    return next((point for point in points if point[2] >= target), None)


def spread(values: Sequence[float | None]) -> Spread | None:
    """Sum up one value per run; None where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return {"median": float(np.median(known)), "least": min(known), "most": max(known)}


def ratios(ours: Run, theirs: Run) -> dict[str, float | None]:
    """Return how many times better our medians are: faster, sooner, or smaller."""
    found = {}
    for name in ours["figures"]:
        mine, other = (_middle(side["figures"].get(name)) for side in (ours, theirs))
        if name in RATES:
            found[name] = _quotient(mine, other)
        elif name.startswith(COSTS):
            found[name] = _quotient(other, mine)
    return found


def machine() -> dict[str, Any]:
    """Return the date, the machine, and the versions of the packages that run."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
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


def _rates(windows: Sequence[Run], name: str) -> list[float]:
    """Per second of time, or of a core's work where that can be told."""
    what = name.removesuffix("_per_core_s").removesuffix("_per_s")
    seconds = "cpu_s" if name.endswith("_per_core_s") else "seconds"
    return [window[what] / window[seconds] for window in windows if window[seconds] > 0]


def _shares(windows: Sequence[Run], part: str) -> list[float]:
    """Return the fraction of its time that a side samples or learns, where it reports that."""
    return [w[f"{part}_s"] / w["seconds"] for w in windows if f"{part}_s" in w]


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _middle(found: Spread | None) -> float | None:
    return found["median"] if found else None


def _quotient(x: float | None, y: float | None) -> float | None:
    return x / y if x is not None and y else None
