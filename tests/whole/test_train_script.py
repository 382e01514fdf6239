"""The script that trains from Python does what the command line does."""

import runpy
import sys
from pathlib import Path

import pytest

from jaxmarl_ppo.runs.log import read_newest
from jaxmarl_ppo.runs.run_folder import read_record

SCRIPT = Path(__file__).parents[2] / "scripts" / "train.py"


def call(monkeypatch, folder, *words):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_an_environment_is_trained_with_its_preset_and_evaluated(monkeypatch, capsys, tmp_path):
    call(monkeypatch, tmp_path, "relay", "--seed", "3", "--total-env-steps", "1000")
    (run,) = (tmp_path / "runs").iterdir()
    record = read_record(run)
    assert (record["config"]["seed"], record["config"]["total_env_steps"]) == (3, 1000)
    assert read_newest(run / "metrics.jsonl")["env_steps"] >= 1000
    assert "relay: " in capsys.readouterr().out


def test_an_unknown_environment_is_an_error_of_one_line(monkeypatch, tmp_path):
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, tmp_path, "tictactoe")
    assert str(caught.value).startswith("error: unknown environment 'tictactoe'; did you mean")
    assert list(tmp_path.iterdir()) == []
