"""Tables of docs/learning.md that a script prints from its record."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import continuous_actions  # noqa: E402
import curriculum  # noqa: E402
import few_steps  # noqa: E402
import optimisers  # noqa: E402
import published_tables  # noqa: E402
import smax_at_length  # noqa: E402
from ray_baseline.scenarios import Measure  # noqa: E402

from jaxmarl_ppo import TrainConfig  # noqa: E402
from jaxmarl_ppo.config.presets import SLOW_ENV, preset  # noqa: E402


@pytest.mark.parametrize(
    "script", [continuous_actions, curriculum, optimisers, published_tables, smax_at_length]
)
def test_the_document_shows_what_is_recorded(script):
    runs = json.loads(script.RECORD.read_text())["runs"]
    assert script.make_table(runs) in (ROOT / "docs" / "learning.md").read_text()


@pytest.mark.slow
def test_what_is_not_learnt_alone_is_learnt_with_a_curriculum():
    returns = [curriculum.train(row, 3, env_steps=300_000) for row in curriculum.ROWS.values()]
    assert returns[0]["return"] < 0.6
    assert returns[1]["return"] > 0.95


def test_the_document_shows_how_many_steps_were_needed():
    recorded = json.loads(few_steps.RECORD.read_text())["env_steps"]
    assert few_steps.make_table(recorded) in (ROOT / "docs" / "learning.md").read_text()
    assert {tuple(rows) for rows in recorded.values()} == {tuple(few_steps.ROWS)}


def test_a_row_changes_only_what_it_says():
    config = preset("basic", SLOW_ENV).config
    assert few_steps.changed(config, few_steps.ROWS["the preset"]) == config
    wider = few_steps.changed(config, few_steps.ROWS["64 environments of 64 steps"])
    assert wider == dataclasses.replace(config, num_envs=64)
    plain = few_steps.changed(config, few_steps.ROWS["none of it: TrainConfig()"])
    assert plain == dataclasses.replace(TrainConfig(), total_env_steps=config.total_env_steps)


def test_the_mean_is_over_the_latest_episodes_and_enough_of_them():
    measure = Measure("score", {"a": 1.0, "b": -0.5}, constant=2.0)
    recent = [
        {"a": (9, 100.0), "b": (9, 100.0)},
        {"a": (2, 4.0)},
        {},
        {"a": (2, 2.0), "b": (1, 6.0)},
    ]
    assert few_steps.smoothed(recent[1:], measure, 5) == 2.0 + 3.0 - 3.0
    assert few_steps.smoothed(recent[1:], measure, 6) is None
    assert few_steps.smoothed(recent[1:3], measure, 2) is None


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
