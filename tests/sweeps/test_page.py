"""The page and the table of a search."""

import re
from pathlib import Path

import pytest
from page_data import read_page
from rich.console import Console

from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.search import Choices, Range
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.sweeps.page import sweep_page
from jaxmarl_ppo.sweeps.progress import SweepProgress, ranked, trials_table
from jaxmarl_ppo.sweeps.results import SweepResult, TrialResult, best_of

SPACE = {"default_ppo.gamma": Range(0.5, 1.0), "mapping": Choices(["shared", {"x": "<b>"}])}
OBJECTIVE = ObjectiveConfig("evaluation/exploitability/greedy", "minimise")
CONFIG = TrainConfig(objective=ObjectiveConfig("agents/x/return_mean", "minimise"))


def trial(number, state, value, gamma=0.75, reason=None):
    values = {"default_ppo.gamma": gamma, "mapping": {"x": "<b>"}}
    return TrialResult(number, state, value, values, {}, reason, 3.14159, Path("x"))


TRIALS = [
    trial(0, "complete", 0.5),
    trial(1, "failed", float("nan"), reason="it <i>burnt</i>"),
    trial(2, "pruned", 0.01),
    trial(3, "complete", 0.25, 0.9),
    trial(4, "running", None),
]


def test_the_page_has_all_that_was_found():
    result = SweepResult(Path("x"), TRIALS, TRIALS[3], 5, None)
    html = sweep_page("game", result, SPACE, OBJECTIVE, {"default_ppo.gamma": 0.75}).html
    data = read_page(html)
    assert data["goal"] == "minimise"
    assert data["dimensions"][0] == {
        "path": "default_ppo.gamma", "choices": None, "low": 0.5, "high": 1.0, "log": False,
    }  # fmt: skip
    assert data["dimensions"][1]["choices"] == ["shared", {"x": "<b>"}]
    assert [t["value"] for t in data["trials"]] == [0.5, None, 0.01, 0.25, None]
    assert data["trials"][3]["values"] == [0.9, {"x": "<b>"}]
    assert data["trials"][1]["reason"] == "it <i>burnt</i>"
    # What trials hold comes to the page as data alone.
    assert "burnt" not in html
    assert "<b>" not in html


def test_complete_trials_stand_first_and_the_best_before_all():
    assert [t.number for t in ranked(TRIALS, CONFIG)] == [3, 0, 2, 1]
    assert best_of(TRIALS, "minimise").number == 3
    assert best_of(TRIALS, "maximise").number == 0
    assert best_of(TRIALS[1:3], "maximise") is None


def test_the_table_has_a_row_for_each():
    console = Console(width=120)
    with console.capture() as captured:
        console.print(trials_table(TRIALS))
    text = captured.get()
    assert re.search(r"3 +complete +0.25 +3 +0.9 +\{'x': '<b>'\}", text)


@pytest.mark.parametrize("shows", [True, False])
def test_each_trial_that_is_over_is_told_once(capsys, shows):
    progress = SweepProgress(shows, "a search", 5, CONFIG)
    with progress:
        progress.show(TRIALS[:1])
        progress.show(TRIALS)
        progress.show(TRIALS)
    lines = capsys.readouterr().out.splitlines()
    if not shows:
        assert lines == []
        return
    assert lines[0] == "a search"
    assert [line.split()[1] for line in lines[1:]] == ["0", "1", "2", "3"]
    assert "trial 1 failed nan: it <i>burnt</i>" in lines[2]
    assert lines[-1].endswith(
        "2 complete, 1 pruned, 1 failed, 1 running of 5, best 0.25 of trial 3"
    )
