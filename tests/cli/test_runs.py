"""`jaxmarl-ppo runs`, and other commands that are given a folder of runs."""

import json
import os
import sys

import pytest
from command_line import run
from run_folders import STEPS, end, log, make_group, make_run, record_of

from jaxmarl_ppo.cli import completion
from jaxmarl_ppo.runs.checkpoints import checkpoints_of

TINY = "--num-envs 4 --num-steps 8 --hidden-sizes 4 --network mlp --no-progress --no-check-env"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder with a finished run, a group, a failed start and a damaged run, in this order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    finished = make_run(tmp_path / "runs" / "first", saved_by="end")
    end(finished, "finished", env_steps=10 * STEPS)
    log(finished, 10 * STEPS)
    group = make_group(tmp_path / "runs" / "games" / "group", (1,))
    end(group, "stopped", "SIGINT")
    log(group, STEPS, name="evaluations.jsonl", exploitability={"greedy": 0.125})
    failed = make_run(tmp_path / "runs" / "failed", (), record=record_of("b"))
    damaged = make_run(tmp_path / "runs" / "odd", ())
    (damaged / "config.json").write_text("{")
    for age, folder in enumerate((damaged, failed, group, finished)):
        for path in (folder, *folder.rglob("*")):
            os.utime(path, (1e9 - 3600 * age, 1e9 - 3600 * age))
    return tmp_path / "runs"


def rows(out):
    return [line.strip() for line in out.splitlines()[3:] if line.strip()]


def test_the_runs_are_listed_newest_first(capsys, runs):
    status, out, errors = run(capsys, "runs")
    assert (status, errors) == (0, "")
    odd, failed, group, finished, problem = rows(out)
    assert odd.split()[:3] == ["odd", "-", "damaged"]
    assert problem.startswith("runs/odd/config.json cannot be read: ")
    assert failed.split()[:2] == ["failed", "tic_tac_toe"]
    assert "failed: before its first checkpoint" in failed
    assert group.startswith("games/group (2 seeds)")
    assert "stopped: Ctrl-C" in group
    assert "exploitability greedy 0.125" in group
    assert "finished" in finished
    assert "320 of 320" in finished
    assert "return x 0.25 o -0.25" in finished


def test_scripts_get_json(capsys, runs):
    _, out, _ = run(capsys, "runs", runs, "--json", "--sort", "name")
    failed, first, group, odd = json.loads(out)
    assert [each["name"] for each in (failed, first, group, odd)] == [
        "failed",
        "first",
        "games/group",
        "odd",
    ]
    assert first["state"] == "finished"
    assert first["results"] == {"agents/x/return_mean": 0.25, "agents/o/return_mean": -0.25}
    assert (first["env_steps"], first["planned_env_steps"]) == (320, 320)
    assert (group["kind"], group["parts"], group["reason"]) == ("group", 2, "SIGINT")
    assert group["results"] == {"evaluation/exploitability/greedy": 0.125}
    assert group["changed"] == "2001-09-08T23:46:40+00:00"
    assert group["bytes"] > failed["bytes"] > 0
    assert "cannot be read" in odd["problem"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("age", ["odd", "failed", "games/group", "first"]),
        ("env", ["odd", "failed", "games/group", "first"]),
        ("state", ["odd", "failed", "first", "games/group"]),
        ("steps", ["first", "games/group", "odd", "failed"]),
        ("size", ["games/group", "first", "odd", "failed"]),
    ],
)
def test_the_runs_are_sorted_as_asked(capsys, runs, sort, expected):
    _, out, _ = run(capsys, "runs", "--json", "--sort", sort)
    assert [each["name"] for each in json.loads(out)] == expected


def test_the_objective_is_the_result_where_there_is_one(capsys, runs):
    record = record_of()
    record["config"]["objective"]["measure"] = "agents/o/return_mean"
    folder = make_run(runs / "goal", (1,), record=record)
    log(folder, STEPS)
    _, out, _ = run(capsys, "runs", folder, "--json")
    (found,) = json.loads(out)
    assert found["results"] == {"agents/o/return_mean": -0.25}


def test_names_are_shown_as_text(capsys, runs):
    record = record_of()
    record["env"]["name"] = "\x1b[2Jcleared"
    make_run(runs / "two\nlines\x1b[31m", (), record=record)
    (runs / os.fsdecode(b"no\xfftext")).mkdir()
    make_run(runs / os.fsdecode(b"no\xfftext") / "[bold]", ())
    for words in ((), ("--json",), ("--prune", "--yes")):
        status, out, errors = run(capsys, "runs", *words)
        assert status == 0
        assert "\x1b" not in out + errors
        assert "[bold]" in out
        assert r"two\nlines" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "folder 'nowhere' does not exist; give that of your runs"),
        (["--yes"], "--yes has no effect without --prune"),
        (["--prune", "--json"], "--json has no effect with --prune"),
        (["--prune", "--sort", "size"], "--sort has no effect with --prune"),
        (["--sort", "colour"], "--sort: unknown choice 'colour'; valid: age, name, env, state"),
        (["runs/first/checkpoints"], "'runs/first/checkpoints' lies within a run; name '"),
        (["runs/first/checkpoints/000000001", "--json"], "lies within a run; name '"),
        (["runs/games/group/members", "--prune"], "lies within a run, which is pruned as a whole"),
    ],
)
def test_what_cannot_be_listed_is_told(capsys, runs, words, message):
    status, _, errors = run(capsys, "runs", *words)
    assert status == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_a_folder_without_runs_has_none(capsys, tmp_path):
    assert run(capsys, "runs", tmp_path) == (0, f"no runs in {tmp_path}\n", "")


def test_nothing_goes_without_an_answer(capsys, runs, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    status, out, errors = run(capsys, "runs", "--prune")
    assert status == 2
    assert "runs/first: 2 old checkpoints, " in out
    assert "runs/failed: failed without a checkpoint, " in out
    assert "runs/odd: stays as it is: " in out
    assert "standard input is no terminal to answer on; add --yes" in errors
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer in ("n", "", EOFError):

        def reply(question, answer=answer):
            if answer is EOFError:
                raise EOFError
            return answer

        monkeypatch.setattr("builtins.input", reply)
        status, out, _ = run(capsys, "runs", "--prune")
        assert status == 0
        assert out.endswith("nothing was removed\n")
    assert len(checkpoints_of(runs / "first")) == 3
    assert (runs / "failed").exists()


@pytest.mark.parametrize("asks", [True, False])
def test_what_was_listed_goes(capsys, runs, monkeypatch, asks):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: asks, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "y")
    status, out, errors = run(capsys, "runs", "--prune", *([] if asks else ["--yes"]))
    assert (status, errors) == (0, "")
    frees = next(line for line in out.splitlines() if line.startswith("removing them frees "))
    assert out.endswith(f"{frees.removeprefix('removing them frees ')} freed\n")
    assert [path.name for path in checkpoints_of(runs / "first")] == ["000000003"]
    assert not (runs / "failed").exists()
    assert (runs / "odd").exists()
    assert len(checkpoints_of(runs / "games" / "group")) == 1
    _, out, _ = run(capsys, "runs", "--prune")
    assert out.endswith("nothing to remove in runs\n")


@pytest.mark.parametrize("command", ["evaluate", "report", "watch", "resume", "play", "export"])
def test_a_folder_of_runs_is_answered_with_the_runs_in_it(capsys, runs, command):
    status, _, errors = run(capsys, command, "runs")
    assert status == 2
    assert errors == (
        "error: 'runs' holds no run itself; name one of the runs in it, such as 'runs/odd', "
        f"'runs/failed', 'runs/first': jaxmarl-ppo {command} runs/odd\n"
    )
    assert (
        "name one of the runs in it, such as 'runs/games/group'"
        in run(capsys, command, "runs/games")[2]
    )


def test_a_search_is_answered_with_its_trials(capsys, runs):
    search = make_run(runs / "search", (), record=record_of(None))
    (search / "search.json").write_text("{}")
    make_run(search / "trials" / "000000", (), record=record_of(None))
    status, _, errors = run(capsys, "evaluate", "runs/search")
    assert status == 2
    assert errors == (
        "error: 'runs/search' is a search, which jaxmarl-ppo sweep runs/search resumes; name one "
        "of its trials, such as 'runs/search/trials/000000': jaxmarl-ppo evaluate "
        "runs/search/trials/000000\n"
    )


def test_a_trained_run_is_listed(capsys, tmp_path):
    words = f"train tic_tac_toe {TINY} --total-env-steps 96 --log-interval 1 --max-minutes 1e-6"
    assert run(capsys, *words.split(), "--run-dir", tmp_path / "run")[0] == 0
    _, out, _ = run(capsys, "runs", tmp_path, "--json")
    (found,) = json.loads(out)
    assert (found["name"], found["env"], found["state"]) == ("run", "tic_tac_toe", "stopped")
    assert found["reason"] == "max_minutes=1e-06 are over"
    assert (found["env_steps"], found["planned_env_steps"]) == (0, 96)


def test_completion_knows_the_command():
    assert {"--prune", "--yes", "--sort", "--json"} <= set(completion.words_of_commands()["runs"])
