"""Cores are kept awake where that helps, at the lowest priority, and sleep again afterwards."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxmarl_envs import make
from jaxmarl_ppo import TrainConfig, Trainer
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.machine import awake

linux = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs Linux's idle priority")


@pytest.fixture
def machine(monkeypatch):
    """A virtual machine of four cores without a quota; calls change it."""

    def change(backend="cpu", cores=4, virtual=True, quota=False):
        monkeypatch.setattr("jax.default_backend", lambda: backend)
        monkeypatch.setattr(awake, "usable_cores", lambda: cores)
        monkeypatch.setattr(awake, "is_virtual", lambda: virtual)
        monkeypatch.setattr(awake, "has_cpu_quota", lambda: quota)

    change()
    return change


@linux
@pytest.mark.parametrize(
    ("found", "num_devices", "helps"),
    [
        ({}, 4, True),
        ({}, 3, False),
        ({"cores": 1}, 1, False),
        ({"virtual": False}, 4, False),
        ({"quota": True}, 4, False),
        ({"backend": "gpu"}, 4, False),
    ],
)
def test_it_is_known_where_it_helps(machine, found, num_devices, helps):
    machine(**found)
    assert awake.helps(num_devices) is helps


@linux
def test_it_can_be_had_where_it_helps_little(machine):
    machine(virtual=False, quota=True)
    awake.check_possible()


def test_cores_that_do_not_matter_are_not_kept_awake_in_vain(machine, monkeypatch):
    machine(backend="gpu")
    with pytest.raises(ValueError, match=r"keep_cores_awake=True, but .* gpu; leave it out"):
        awake.check_possible()
    machine()
    monkeypatch.delattr(os, "SCHED_IDLE", raising=False)
    assert awake.helps(4) is False
    with pytest.raises(ValueError, match="priority"):
        awake.check_possible()


def children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def has_ended(pid):
    """Gone, or not waited for yet by whoever has inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@linux
def test_one_process_of_the_lowest_priority_spins_on_every_core():
    before, cores = children(), sorted(os.sched_getaffinity(0))
    with contextlib.suppress(KeyError), awake.cores_awake(True):
        spinners = children() - before
        assert len(spinners) == len(cores)

        def settled():
            return all(os.sched_getscheduler(pid) == os.SCHED_IDLE for pid in spinners)

        wait_for(settled)
        wait_for(lambda: sorted(c for p in spinners for c in os.sched_getaffinity(p)) == cores)
        for pid in spinners:
            os.kill(pid, signal.SIGINT)  # what Ctrl-C sends to all of a terminal's processes
        time.sleep(0.1)
        assert not any(has_ended(pid) for pid in spinners)
        raise KeyError
    assert children() == before


@linux
def test_nothing_is_started_where_cores_may_sleep():
    with awake.cores_awake(False):
        assert not [p for p in children() if "SCHED_IDLE" in Path(f"/proc/{p}/cmdline").read_text()]


@linux
def test_spinning_ends_with_a_process_that_is_killed():
    code = (
        "import os, signal, sys\n"
        "from jaxmarl_ppo.machine import awake\n"
        "from pathlib import Path\n"
        "with awake.cores_awake(True):\n"
        "    print(Path(f'/proc/self/task/{os.getpid()}/children').read_text(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    spinners = [int(pid) for pid in done.stdout.split()]
    assert spinners
    wait_for(lambda: all(has_ended(pid) for pid in spinners))


def test_a_virtual_machine_is_told_by_its_processor(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("model name: a hypervisor\nflags\t\t: fpu vme\n")
    assert not awake.is_virtual(path)
    path.write_text("model name: x\nflags\t\t: fpu hypervisor vme\n")
    assert awake.is_virtual(path)
    assert not awake.is_virtual(tmp_path / "none")


@pytest.mark.parametrize(
    ("groups", "file", "content", "limited"),
    [
        ("0::/\n", "cpu.max", "max 100000\n", False),
        ("0::/\n", "cpu.max", "200000 100000\n", True),
        ("0::/user/job\n", "user/job/cpu.max", "50000 100000\n", True),
        ("0::/on/the/host\n", "cpu.max", "50000 100000\n", True),
        ("3:cpu,cpuacct:/box\n", "cpu/box/cpu.cfs_quota_us", "-1\n", False),
        ("3:cpu,cpuacct:/box\n", "cpu/cpu.cfs_quota_us", "150000\n", True),
        ("3:memory:/box\n", "cpu/cpu.cfs_quota_us", "150000\n", False),
        ("0::/\n", "elsewhere", "1\n", False),
    ],
)
def test_a_quota_of_time_is_seen(tmp_path, groups, file, content, limited):
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mount" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mount" / file).write_text(content)
    assert awake.has_cpu_quota(tmp_path / "cgroup", tmp_path / "mount") is limited
    assert not awake.has_cpu_quota(tmp_path / "none", tmp_path / "mount")


class CompilationError(Exception):
    pass


@linux
@pytest.mark.parametrize("wanted", [True, False])
def test_a_run_keeps_them_awake_from_compilation_on(monkeypatch, tmp_path, wanted):
    running = []

    @contextlib.contextmanager
    def record(wanted):
        running.append(wanted)
        yield
        running.clear()

    def compile_nothing(_):
        assert running == [wanted]
        raise CompilationError

    monkeypatch.setattr(awake, "cores_awake", record)
    monkeypatch.setattr(CompiledRuns, "compile", compile_nothing)
    env, params = make("tic_tac_toe")
    config = TrainConfig(num_envs=2, num_steps=4, total_env_steps=8)
    run = Trainer(env, params, config, tmp_path / "run", progress=False, keep_cores_awake=wanted)
    with pytest.raises(CompilationError):
        run.train()


def test_a_run_says_so_where_it_cannot(machine, tmp_path):
    machine(backend="tpu")
    env, params = make("tic_tac_toe")
    with pytest.raises(ValueError, match="keep_cores_awake=True, but training runs on a tpu"):
        Trainer(env, params, TrainConfig(), tmp_path / "run", keep_cores_awake=True)
    assert not (tmp_path / "run").exists()
