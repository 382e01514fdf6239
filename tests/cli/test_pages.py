"""`watch`, `play` and `report`: what they write, say and refuse."""

import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from command_line import run as call
from page_data import read_page
from run_folders import leave_run

import jaxmarl_envs
from jaxmarl_ppo import MLP, PolicySpec, TrainConfig, make_learner


def make_run(folder, env, **kwargs):
    env, params = jaxmarl_envs.make(env, **kwargs)
    policy = PolicySpec(network=MLP(hidden_sizes=(4,)))
    config = TrainConfig(num_envs=2, num_steps=8, mapping="shared", default_policy=policy)
    return leave_run(folder, make_learner(env, params, config), config)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "board", "tic_tac_toe")


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "lives", "flex_agents")


def test_watch_writes_a_page_into_the_run(run, capsys):
    status, out, _ = call(capsys, "watch", run, "--episodes", "2")
    assert status == 0
    assert out.startswith(f"saved in {run / 'watch.html'} (")
    first = (run / "watch.html").read_text()
    assert first.startswith("<!doctype html>")
    call(capsys, "watch", run, "--episodes", "2")
    assert (run / "watch.html").read_text() == first
    call(capsys, "watch", run, "--episodes", "2", "--seed", "1")
    assert (run / "watch.html").read_text() != first


def test_watch_writes_pictures_too(run, tmp_path, capsys):
    page, pictures = tmp_path / "page.html", tmp_path / "pictures"
    args = ("--episodes", "1", "--opponent", "minimax", "--out", page, "--svg", pictures)
    status, out, _ = call(capsys, "watch", run, *args)
    assert status == 0
    assert page.is_file()
    assert f"{pictures}: {len(list(pictures.iterdir()))} pictures" in out


def test_a_folder_that_is_not_there_is_answered_with_the_newest_run(run, capsys):
    for missing in ("boar", "elsewhere"):
        status, _, err = call(capsys, "watch", run.parent / missing)
        assert status == 2
        assert f"does not exist; the newest one there is '{run}'" in err


SHORT = ["--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "4", "--total-env-steps", "32"]


@pytest.mark.parametrize("plays", [True, False])
def test_a_run_ends_with_episodes_in_its_report(plays, tmp_path, capsys):
    options = ["--ppo.num-minibatches", "1", *([] if plays else ["--no-plays"])]
    target = tmp_path / "run"
    status, out, _ = call(capsys, "train", "tic_tac_toe", *SHORT, *options, "--run-dir", target)
    assert status == 0
    told = f"results, with episodes to watch: {target / 'report.html'}\n"
    assert out.endswith(told) == plays
    data = read_page((target / "report.html").read_text())
    assert ("replay" in data, "evaluation" in data) == (plays, plays)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "takes the folder of a run"),
        (("RUN", "--episodes", "0"), "episodes must be a whole number of at least 1, got 0"),
        (("RUN", "--opponent", "nobody"), "unknown opponent 'nobody'; valid: shared, random"),
        (("RUN", "--checkpoint", "best"), "checkpoint"),
        (("nowhere",), "does not exist"),
    ],
)
def test_watch_refuses(run, capsys, args, message):
    args = [run if arg == "RUN" else arg for arg in args]
    status, _, err = call(capsys, "watch", *args)
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "takes the folder of a run"),
        (("RUN", "more"), "unexpected argument 'more'"),
        (("RUN", "--env", "crypto"), "crypto"),
        (("RUN", "--opponent", "nobody"), "unknown opponent 'nobody'"),
        (("RUN", "--port", "70000"), "--port must be from 0 to 65535, got 70000"),
        (("RUN", "--port", "80", "--export", "x.html"), "--port has no effect with --export"),
        (("LIVES",), "'flex_agents' has no picture"),
        (("LIVES", "--export", "x.html"), "'flex_agents' has no picture"),
    ],
)
def test_play_refuses(run, lives, capsys, args, message):
    args = [{"RUN": run, "LIVES": lives}.get(arg, arg) for arg in args]
    status, _, err = call(capsys, "play", *args)
    assert status == 2
    assert message in err


def test_play_writes_a_page(run, tmp_path, capsys):
    path = tmp_path / "game.html"
    status, out, _ = call(capsys, "play", run, "--export", path)
    assert status == 0
    assert out.startswith(f"saved in {path} (")
    assert "readProgram" in path.read_text()


def test_play_serves_until_it_is_interrupted(run):
    command = [sys.executable, "-m", "jaxmarl_ppo", "play", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            address = re.fullmatch(r"play at (http://127\.0\.0\.1:\d+/\S+/)\n", line)[1]
            with urllib.request.urlopen(address, timeout=30) as response:
                assert "tic_tac_toe" in response.read().decode()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in (0, 130)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "takes the folder of a run"),
        (("RUN", "nowhere"), "run folder 'nowhere' does not exist"),
        (("RUN", "--port", "80"), "--port has no effect without --live"),
        (("RUN", "--live", "--out", "x.html"), "--out has no effect with --live"),
        (("RUN", "--live", "--port", "-1"), "--port must be from 0 to 65535, got -1"),
    ],
)
def test_report_refuses(run, capsys, args, message):
    status, _, err = call(capsys, "report", *[run if arg == "RUN" else arg for arg in args])
    assert status == 2
    assert message in err


def test_report_is_written_into_a_single_runs_folder(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = call(capsys, "report", run)
    assert status == 0
    assert out.startswith(f"saved in {run / 'report.html'} (")
    status, out, _ = call(capsys, "report", run, run)
    assert status == 0
    assert (tmp_path / "report.html").is_file()
