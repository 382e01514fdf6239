"""Several processes train one run together, go on with it, stop together and end together."""

import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import job
import numpy as np
import pytest
from job import Job

import jaxmarl_envs
from jaxmarl_ppo import Trainer, join_processes
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of, newest_sound
from jaxmarl_ppo.runs.log import WALL_CLOCK_FIELDS, read_lines
from jaxmarl_ppo.runs.manifest import read_position
from jaxmarl_ppo.runs.run_folder import load_run

NUM_ITERATIONS = 10
EVALUATION = {"every_env_steps": 5 * job.NUM_ENVS * job.NUM_STEPS, "episodes": 4}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run that two processes have trained."""
    place = tmp_path_factory.mktemp("two")
    run_dir = place / "run"
    plan = {"run_dir": str(run_dir), "num_iterations": NUM_ITERATIONS, "evaluation": EVALUATION}
    started = Job(place, 2, plan)
    assert started.wait() == [0, 0], started.said(0) + started.said(1)
    return run_dir


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The same run, which this process has trained on two devices."""
    run_dir = tmp_path_factory.mktemp("one") / "run"
    job.train(run_dir, NUM_ITERATIONS, evaluation=dict(EVALUATION))
    return run_dir


@pytest.fixture
def copy(two, tmp_path):
    """A copy of what two processes have trained, to go on with."""
    return shutil.copytree(two, tmp_path / "run")


def entries(run_dir, name):
    lines = (run_dir / name).read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if k not in WALL_CLOCK_FIELDS} for line in lines
    ]


def test_two_processes_come_to_the_bit_to_what_two_devices_come_to(one, two):
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert entries(one, name) == entries(two, name)
        assert entries(one, name)
    policies = "params/policies.msgpack"
    assert (one / policies).read_bytes() == (two / policies).read_bytes()
    found, expected = (read_arrays(checkpoints_of(run)[0]) for run in (two, one))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_the_first_process_alone_keeps_the_record(one, two):
    def files(run_dir):
        return {p.name for p in run_dir.iterdir() if "tfevents" not in p.name}

    assert files(one) == files(two)
    assert len(list(two.glob("events*"))) == 1
    record = json.loads((two / "config.json").read_text())
    assert (record["config"]["num_devices"], record["platform"]["num_processes"]) == (2, 2)


def test_each_process_writes_its_part_of_a_checkpoint(copy):
    (folder,) = checkpoints_of(copy)
    part = folder / "state-1.msgpack"
    assert part.is_file()
    read_position(folder)
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match=r"state-1\.msgpack differs from its checksum"):
        read_position(folder)
    part.unlink()
    with pytest.raises(ValueError, match=r"state-1\.msgpack is missing"):
        read_position(folder)


def test_one_process_goes_on_with_what_two_began(one, copy, tmp_path):
    expected = shutil.copytree(one, tmp_path / "expected")
    total = 2 * NUM_ITERATIONS * job.NUM_ENVS * job.NUM_STEPS
    found = Trainer.resume(copy, total_env_steps=total, progress=False).train()
    # As many devices as before, so the same draw too.
    whole = Trainer.resume(expected, total_env_steps=total, progress=False).train()
    jax.tree.map(np.testing.assert_array_equal, found.population, whole.population)


def test_fewer_devices_go_on_with_another_draw_and_say_so(copy, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    with pytest.warns(RuntimeWarning, match=r"processes, 1 instead of 2, .* its 2 devices"):
        trainer = Trainer.resume(copy, total_env_steps=10**4, progress=False)
    assert trainer.learner.num_devices == 1


@pytest.mark.rare
def test_a_signal_to_one_process_stops_all_with_a_checkpoint(copy, tmp_path):
    plan = {"run_dir": str(copy), "num_iterations": 10**6, "resumes": True}
    started = Job(tmp_path, 2, plan)
    logged = copy / "metrics.jsonl"
    count = len(logged.read_text().splitlines())
    started.wait_for(lambda: len(logged.read_text().splitlines()) > count)
    started.processes[1].send_signal(signal.SIGTERM)
    assert started.wait() == [0, 0], started.said(0) + started.said(1)
    assert "process 1 came to TrainResult" in started.said(1)
    _, position = newest_sound(copy)
    assert position.saved_by == "SIGTERM"
    assert position.iteration > NUM_ITERATIONS
    assert read_lines(logged, position.num_entries)


@pytest.mark.rare
def test_a_folder_that_is_renamed_while_several_train_is_told_by_all(copy, tmp_path):
    plan = {"run_dir": str(copy), "num_iterations": 10**6, "resumes": True}
    started = Job(tmp_path, 2, plan)
    logged = copy / "metrics.jsonl"
    count = len(logged.read_text().splitlines())
    started.wait_for(lambda: len(logged.read_text().splitlines()) > count)
    copy.rename(tmp_path / "elsewhere")
    started.processes[1].send_signal(signal.SIGTERM)
    assert started.wait() == [1, 3], started.said(0) + started.said(1)
    assert "was renamed to" in started.said(0)
    assert "was renamed to" in started.said(1)
    assert not copy.exists()
    _, position = newest_sound(tmp_path / "elsewhere")
    assert position.iteration == NUM_ITERATIONS


def test_one_that_is_killed_ends_all_and_the_checkpoint_stays(copy, tmp_path):
    command = [sys.executable, "-m", "jaxmarl_ppo", "resume", str(copy), "--processes", "2"]
    command += ["--total-env-steps", "1e9"]
    said = tmp_path / "said.txt"
    logged = copy / "metrics.jsonl"
    count = len(logged.read_text().splitlines())
    with said.open("wb") as file:
        launcher = subprocess.Popen(
            command, env=job.environment(), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        while len(logged.read_text().splitlines()) == count:
            assert launcher.poll() is None, said.read_text()
        os.kill(children(launcher.pid)[1], signal.SIGKILL)
        assert launcher.wait(30.0) == 128 + signal.SIGKILL
    finally:
        launcher.kill()
    assert "process 1 of 2 (process id" in said.read_text()
    assert "has died; process 0 of 2" in said.read_text()
    assert "error: process 1 was ended by SIGKILL" in said.read_text()
    _, position = newest_sound(copy)
    assert position.iteration == NUM_ITERATIONS


def children(pid):
    """The processes that a process has started, in their order."""
    found = subprocess.run(
        ["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    return sorted(map(int, found.stdout.split()))


def test_processes_that_were_started_differently_are_refused(tmp_path):
    plan = {"run_dir": str(tmp_path / "run"), "num_iterations": 1}
    started = Job(tmp_path, 2, plan, plans=[{"seed": 0}, {"seed": 7}])
    assert started.wait() == [1, 1]
    for index in range(2):
        said = started.said(index)
        assert "has config.seed=7, but process 0 of 2" in said
        assert "ProcessesDiffer: process 1 of 2" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.rare
def test_a_callback_that_fails_ends_all_with_what_was_learnt(tmp_path):
    run_dir = tmp_path / "run"
    plan = {"run_dir": str(run_dir), "num_iterations": NUM_ITERATIONS, "fails": True}
    started = Job(tmp_path, 2, plan)
    assert started.wait() == [1, 1]
    assert "CallbackError: callback" in started.said(0)
    assert "FirstFailed: process 0 of 2" in started.said(1)
    assert "raised ValueError: nothing works" in started.said(1)
    _, position = newest_sound(run_dir)
    assert (position.iteration, position.saved_by) == (2, "error")
    assert load_run(run_dir).population


SLURM = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "0.0;tcp://127.0.0.1:1"}
JOINS = (
    "from jaxmarl_ppo import join_processes\n"
    "job = join_processes()\n"
    "print(job.gather('numbers', job.index), job.agree('count', lambda: job.count))\n"
)


@pytest.mark.parametrize(
    ("common", "index_name", "local_name"),
    [
        (SLURM, "SLURM_PROCID", "SLURM_LOCALID"),
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ],
    ids=["slurm", "open_mpi"],
)
def test_jobs_of_schedulers_are_found(tmp_path, common, index_name, local_name):
    port = job.free_port()

    def variables(index):
        own = {index_name: str(index), local_name: str(index)}
        # Else JAX listens to the whole network.
        bound = {"JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"}
        return {**common, **own, **bound, "JAX_COORDINATOR_PORT": str(port)}

    started = Job(tmp_path, 2, code=JOINS, variables=variables)
    assert started.wait() == [0, 0], started.said(0) + started.said(1)
    assert started.said(0).splitlines()[-1] == "[0, 1] 2"
    assert started.said(1).splitlines()[-1] == "[1] 2"


def test_without_a_job_there_is_nothing_to_join(tmp_path):
    started = Job(tmp_path, 1, code=JOINS)
    assert started.wait() == [1]
    assert "no job of several processes was found" in started.said(0)


def test_a_job_is_joined_before_jax_starts():
    jax.devices()
    with pytest.raises(ValueError, match="must be called before JAX starts"):
        join_processes("127.0.0.1:1", 2, 1)


@pytest.mark.slow
def test_four_processes_come_to_what_four_devices_come_to(tmp_path):
    # Sums of four are taken in other orders, so not to the bit.
    results = []
    for count in (1, 4):
        place = tmp_path / str(count)
        plan = {"run_dir": str(place / "run"), "num_iterations": NUM_ITERATIONS}
        started = Job(place, count, plan | {"num_devices": 4, "cores": 4 // count})
        assert started.wait() == [0] * count, started.said(0)
        results.append(load_run(place / "run").population.policy_groups)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5), *results)


def test_what_one_process_alone_can_train_is_refused(monkeypatch):
    env, params = jaxmarl_envs.make("tic_tac_toe")
    from jaxmarl_ppo.devices import joining
    from jaxmarl_ppo.devices.processes import Processes

    monkeypatch.setattr(joining, "_job", Processes(0, 2))
    with pytest.raises(ValueError, match="num_devices=1 leaves some of 2 processes without one"):
        Trainer(env, params, job.config(1, num_devices=1))
