"""`--processes N`: what the processes get, and what becomes of them."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from command_line import run, status_of

from jaxmarl_ppo.cli import processes
from jaxmarl_ppo.cli.processes import JobOptions, launch, shares
from jaxmarl_ppo.runs.files import LOCK_FILE
from jaxmarl_ppo.runs.lock import check_free


@pytest.mark.parametrize(
    ("num_cores", "count", "expected"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1], [2, 3, 4]]),
        (2, 2, [[0], [1]]),
        (2, 3, [[0], [1], [0]]),
        (3, 1, [[0, 1, 2]]),
    ],
)
def test_cores_are_shared_out(num_cores, count, expected):
    assert [list(share) for share in shares(num_cores, count)] == expected


def started(code):
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def end(children):
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["pass", "pass"], 0),
        (["raise SystemExit(143)", "raise SystemExit(143)"], 143),
        (["import time; time.sleep(60)", "raise SystemExit(2)"], 2),
        (["import time; time.sleep(60)", "import os; os.kill(os.getpid(), 9)"], 137),
        (["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"], 137),
        (["raise SystemExit(3)", "raise SystemExit(2)"], 2),
        (["raise SystemExit(3)", "raise SystemExit(3)"], 3),
    ],
    ids=["well", "alike", "one_fails", "one_is_killed", "both_ended", "for_another", "unknown"],
)
def test_the_status_is_that_of_the_first_that_does_not_end_well(
    monkeypatch, capsys, codes, expected
):
    monkeypatch.setattr(processes, "_PATIENCE_S", 0.3)
    children = [started(code) for code in codes]
    for child in children:  # those who do end have ended when it looks first
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)
    try:
        began = time.monotonic()
        assert processes._wait(children) == expected
        assert time.monotonic() - began < 30.0
        assert all(child.poll() is not None for child in children)
    finally:
        end(children)
    told = "error: process 1 was ended by SIGKILL\n" if expected == 137 else ""
    assert capsys.readouterr().err == told


def test_what_others_say_is_told_with_their_number(capsys):
    child = started("import sys; print('warning: no room', file=sys.stderr)")
    processes._tell(3, child)
    child.wait()
    assert capsys.readouterr().err == "process 3: warning: no room\n"


def test_signals_are_passed_on_to_the_first_process():
    code = "import signal; signal.signal(15, lambda *_: exit(7)); print(1, flush=True)\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code + "while True: signal.pause()"], stdout=subprocess.PIPE
    )
    try:
        child.stdout.read(1)
        with processes._passing_on(child):
            signal.raise_signal(signal.SIGTERM)
            assert child.wait(10.0) == 7
            signal.raise_signal(signal.SIGTERM)  # there is nobody any more
    finally:
        end([child])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_processes_are_started_on_their_cores_with_their_numbers(monkeypatch):
    commands = []

    def start(common, index):
        commands.append([*common, index, processes.usable_cores()])
        child = started("pass")
        if not index:
            child.stderr.close()
        return child

    monkeypatch.setattr(processes, "_start", start)
    cores = processes.usable_cores()
    args = ["crypto", "--processes", "2", "--seed", "3", "--processes=2"]
    assert launch(JobOptions(processes=2), "train", args) == 0
    port = commands[0][commands[0].index("--coordinator") + 1]
    assert port.startswith("127.0.0.1:")
    job = ["--distributed", "--coordinator", port, "--num-processes", "2"]
    assert commands == [
        ["train", "crypto", "--seed", "3", *job, index, max(1, cores // 2)] for index in range(2)
    ]
    assert processes.usable_cores() == cores
    assert threading.active_count() < 20


def test_kill_of_the_command_ends_its_processes_and_frees_the_folder(tmp_path):
    """Which is early here, while they compile."""
    run_dir = tmp_path / "run"
    lock = run_dir / LOCK_FILE
    command = [sys.executable, "-m", "jaxmarl_ppo", "train", "crypto", "--processes", "2"]
    launcher = subprocess.Popen(
        [*command, "--run-dir", str(run_dir)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        while not (lock.exists() and lock.read_text()):  # which is written when it is held
            assert launcher.poll() is None, launcher.stderr.read()
            time.sleep(0.05)
        children = processes_of(launcher.pid)
        assert is_locked(run_dir)
        assert len(children) >= 2
    finally:
        launcher.kill()
        launcher.communicate()
    deadline = time.monotonic() + 30.0
    while is_locked(run_dir) or any(map(lives, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_locked(run_dir):
    try:
        check_free(run_dir)
    except ValueError:
        return True
    return False


def processes_of(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return list(map(int, found.stdout.split()))


def lives(pid):
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return found.stdout.strip() not in ("", "Z", "Zs")


def test_a_job_on_a_cluster_needs_a_folder_that_all_share(capsys):
    _, _, errors = run(capsys, "train crypto --ray auto --num-hosts 2")
    assert "--ray needs --run-dir, a folder that all hosts share" in errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--processes", "0"], "--processes must be at least 1, got 0"),
        (["--processes", "2", "--distributed"], "drop one of them"),
        (["--num-processes", "2"], "--num-processes has no effect without --distributed"),
        (["--process-id", "0"], "--process-id has no effect without --distributed"),
        (["--coordinator", "a:1"], "--coordinator has no effect without --distributed"),
        (["--num-hosts", "2"], "--num-hosts has no effect without --ray"),
        (["--max-failures", "2"], "--max-failures has no effect without --ray"),
        (["--ray", "auto"], "--ray needs --num-hosts, how many hosts are to train"),
        (["--ray", "auto", "--num-hosts", "0"], "--num-hosts must be at least 1, got 0"),
        (["--ray", "auto", "--processes", "2"], "--ray starts a job; drop --processes"),
        (["--ray", "auto", "--distributed"], "--ray starts a job; drop --distributed"),
        (
            ["--ray", "auto", "--num-hosts", "1", "--max-failures=-1"],
            "--max-failures must be at least 0, got -1",
        ),
        (["--process-id", "x"], "--process-id: 'x' is not a whole number"),
        (["--num-proceses", "2"], "did you mean --num-processes?"),
    ],
)
@pytest.mark.parametrize("command", ["train", "resume"])
def test_options_that_do_not_go_together(capsys, tmp_path, command, args, message):
    what = {"train": "crypto", "resume": str(tmp_path)}[command]
    assert status_of(command, what, *args) == 2
    assert message in capsys.readouterr().err
