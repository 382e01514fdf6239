"""The results page of a search."""

import math
from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.search import Choices, Dimension, Space
from jaxmarl_ppo.pages.page import Page, make_page, read_static
from jaxmarl_ppo.sweeps.results import SweepResult, TrialResult

PAGE_FILE = "sweep.html"
_STATIC = ("base.css", "report.css", "base.js", "chart.js", "table.js", "sweep.js")


def sweep_page(
    title: str,
    result: SweepResult,
    space: Space,
    objective: ObjectiveConfig,
    importance: Mapping[str, float],
) -> Page:
    """Make the page of a search.

    Args:
        title: of the page.
        result: of the search.
        space: of the search.
        objective: of the search.
        importance: of each dimension, as shares; empty where unknown.
    """
    states = [trial.state for trial in result.trials]
    facts = [[state, str(states.count(state))] for state in dict.fromkeys(states)]
    data = {
        "title": f"{title}: search",
        "facts": [["objective", f"{objective.goal} {objective.measure}"], *facts],
        "measure": objective.measure,
        "goal": objective.goal,
        "dimensions": [_dimension(path, dimension) for path, dimension in space.items()],
        "trials": [_trial(trial, space) for trial in result.trials],
        "importance": {path: round(share, 4) for path, share in importance.items()},
    }
    return make_page(
        data["title"], read_static("head.html") + read_static("sweep.html"), _STATIC, data
    )


def _dimension(path: str, dimension: Dimension) -> dict[str, Any]:
    if isinstance(dimension, Choices):
        return {"path": path, "choices": list(dimension.values)}
    ends = {"low": dimension.low, "high": dimension.high, "log": dimension.log}
    return {"path": path, "choices": None, **ends}


def _trial(trial: TrialResult, space: Space) -> dict[str, Any]:
    value = trial.value
    return {
        "number": trial.number,
        "state": trial.state,
        "value": value if value is not None and math.isfinite(value) else None,
        "values": [trial.values.get(path) for path in space],
        "seconds": None if trial.seconds is None else round(trial.seconds, 1),
        "reason": trial.reason,
    }
