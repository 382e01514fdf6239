"""Tables of docs/learning.md that a script prints from its record."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import continuous_actions  # noqa: E402
import optimisers  # noqa: E402


@pytest.mark.parametrize("script", [continuous_actions, optimisers])
def test_the_document_shows_what_is_recorded(script):
    runs = json.loads(script.RECORD.read_text())["runs"]
    assert script.make_table(runs) in (ROOT / "docs" / "learning.md").read_text()


def test_the_means_of_tasks_are_scaled_from_uniform_play_to_the_best():
    results = {"squashed": -1.0, "beta": 3.0, "clipped": 1.0, "before": 1.0, "uniform": -5.0}
    runs = [
        {
            "task": task,
            "family": family,
            "seed": seed,
            **{acting: {"result": result, "result_se": 0.5} for acting in ("sample", "greedy")},
        }
        for task in continuous_actions.TASKS
        for family, result in results.items()
        for seed in ((0, 1) if family != "uniform" else (0,))
    ]
    lines = continuous_actions.make_table(runs).splitlines()
    assert lines[2].endswith(
        "| -1.00 ± 0.00 | 3.00 ± 0.00 | 1.00 ± 0.00 | 1.00 ± 0.00 | -5.00 ± 0.50 |"
    )
    assert lines[-1] == "| all, scaled | greedy | 0.500 | 1.000 | 0.750 | 0.750 | 0.000 |"
