"""`jaxmarl-ppo sweep`: what it takes, and what it says."""

import importlib.util
import json
import re
import sys

import pytest
from command_line import run, status_of

from jaxmarl_ppo.cli import sweep as command

SPACE = """
env = { name = "tic_tac_toe", kwargs = { size = 2, k = 2 } }
total_env_steps = 128
num_envs = 4
num_steps = 16
log_interval = 1
[default_policy.network]
hidden_sizes = [4]
[default_ppo]
num_minibatches = 1
[objective]
measure = "agents/x/return_mean"
[space.default_ppo]
gamma = { choices = [0.5, 0.75] }
[search]
sampler = "grid"
num_members = 2
"""


@pytest.fixture
def space(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


@pytest.mark.rare
def test_a_search_says_what_it_found_and_goes_on(capsys, space):
    status, out, errors = run(capsys, "sweep", "space.toml", "--run-dir", "run", "--no-check-env")
    assert (status, errors) == (0, "")
    lines = [line for line in out.splitlines() if re.match(r"trial \d complete", line)]
    assert len(lines) == 2
    assert "default_ppo.gamma 0.5" in out
    assert "2 of 2 trials are over" in out
    assert "train it: jaxmarl-ppo train --config run/best.toml" in out
    status, again, _ = run(capsys, "sweep", "run", "--no-check-env", "--no-progress")
    assert status == 0
    assert again == out[out.index(again[:40]) :]
    train = "train --config run/best.toml --run-dir best --no-progress --no-check-env"
    assert status_of(train) == 0
    assert json.loads((space.parent / "best" / "config.json").read_text())["env"]["make"] == {
        "name": "tic_tac_toe",
        "kwargs": {"size": 2, "k": 2},
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "takes a file or the folder of a search"),
        (["nothing.toml"], "'nothing.toml' cannot be read: No such file"),
        (["."], "'.' is not the folder of a search"),
        ([".", "--run-dir", "x"], "--run-dir has no effect beside the folder ."),
        (["space.toml", "--num-trial", "3"], "did you mean --num-trials?"),
        (["space.toml", "--storage", "study.db"], "storage must be postgresql://"),
        (["space.toml", "--num-trials", "0"], "num_trials must be a whole number of at least 1"),
        (["space.toml", "--gamma", "0.9"], "the option for default_ppo.gamma has no effect, since"),
        (["space.toml", "--ppo.gama", "0.9"], "did you mean --ppo.gamma?"),
        (["space.toml", "--num-envs", "none"], "num_envs must be a whole number"),
        ([".", "--num-envs", "4"], "options of its runs (num_envs) have no effect on the search"),
    ],
)
def test_what_cannot_be_is_one_sentence(capsys, space, words, message):
    status, out, errors = run(capsys, "sweep", *words)
    assert (status, out) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.rare
def test_options_of_all_runs_override_the_file_s(capsys, space):
    options = "--num-envs 8 --network gru --env-kwargs k=1 --seed 3 --quiet --no-check-env"
    assert run(capsys, "sweep", "space.toml", "--run-dir", "run", *options.split()) == (0, "", "")
    for number in range(2):
        record = json.loads((space.parent / f"run/trials/{number:06}/config.json").read_text())
        assert record["config"]["num_envs"] == 8
        assert record["config"]["default_policy"]["network"]["kind"] == "gru"
        assert record["env"]["make"]["kwargs"] == {"size": 2, "k": 1}
    # Of options that both have, the search's own is meant.
    assert json.loads((space.parent / "run/search.json").read_text())["search"]["seed"] == 3
    status, out, errors = run(capsys, "sweep", "run", "--quiet", "--no-check-env")
    assert (status, out, errors) == (0, "", "")


def test_code_that_a_file_names_is_not_run(capsys, space):
    space.write_text(
        SPACE.replace('{ name = "tic_tac_toe", kwargs = { size = 2, k = 2 } }', '"a.py:A"')
    )
    (space.parent / "a.py").write_text("raise SystemExit(3)")
    status, _, errors = run(capsys, "sweep", "space.toml")
    assert status == 2
    assert "no code is run because a file names it; if you trust it, name it too: --env" in errors


def test_a_search_needs_optuna(space, monkeypatch):
    found = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "optuna" else found(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    monkeypatch.delitem(sys.modules, "jaxmarl_ppo.sweeps")
    with pytest.raises(ValueError, match=r"needs optuna: pip install \./envs '\.\[optuna\]'"):
        command.main(["space.toml"])
