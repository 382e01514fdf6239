"""Environments in plain Python that hang, die, fork, print or ask for input: what ends, and how."""

import io
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import rllib_envs
from host_envs import Eventful, ask_for_a_name, hang_on_seed_8

from jaxmarl_envs import make, stop_request
from jaxmarl_envs.adapters.incoming import host_patience
from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_envs.adapters.incoming.host_patience import HangingEnvironmentWarning
from jaxmarl_envs.adapters.incoming.host_steps import Steps
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_envs.user_code import HostEnvironmentError, UserCodeError

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)
QUIET = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host_patience.HangingEnvironmentWarning"
)
SEEDS = np.array([7, 8], np.uint32)


@pytest.fixture
def pool_of():
    """A function that makes a pool, which ends with the test."""
    pools = []

    def make_pool(on_step=None, on_reset=None, num_workers=1, **options):
        env = from_pettingzoo(
            lambda: Eventful(on_step, on_reset), num_workers=num_workers, **options
        )
        pools.append(env.pool)
        return env.pool

    yield make_pool
    for pool in pools:
        pool.close()


def play(pool, num_steps=3, seeds=SEEDS):
    """Play episodes; their past is zeros."""
    pool.reset(seeds)
    past = np.zeros((len(seeds), 1000, 2), np.int32)
    for time_step in range(num_steps):
        actions = np.zeros((len(seeds), 2), np.int32)
        pool.step(Steps(seeds, np.full(len(seeds), time_step), past, actions))


def is_gone(pid, patience_s=20.0):
    """Whether a process has ended, or is only waited for."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


# ---- Limits of time ------------------------------------------------------------------------------


def test_a_step_that_never_returns_is_warned_of_and_ended(pool_of):
    pool = pool_of(hang_on_seed_8, step_timeout=1.0)
    pool.reset(SEEDS)
    (pid,) = pool.pids
    where = (
        "environment 'eventful', number 1 of the batch, step 3 of the episode of seed 8 "
        r"\(acting: 'a', 'b'\) "
    )
    with (
        pytest.warns(HangingEnvironmentWarning, match=where + "has not returned for .* after 1 s"),
        pytest.raises(HostEnvironmentError, match=where + r"did not return within 1 s \(step_tim"),
    ):
        play(pool)
    assert pool.pids == ()
    assert is_gone(pid, patience_s=0.1)
    play(pool, num_steps=2)  # with a new process


@QUIET
def test_a_reset_that_never_returns_is_ended(pool_of):
    pool = pool_of(on_reset=hang_on_seed_8, step_timeout=0.5)
    with pytest.raises(HostEnvironmentError, match="number 1 of the batch, reset did not return"):
        play(pool)


@QUIET
def test_in_this_process_it_is_told_and_nothing_waits_for_it_again(pool_of):
    pool = pool_of(hang_on_seed_8, num_workers=0, step_timeout=0.5)
    with pytest.raises(HostEnvironmentError, match=r"did not return .* \(num_workers=0\)"):
        play(pool)
    began = time.monotonic()
    with pytest.raises(HostEnvironmentError, match="step 3 of the episode of seed 8"):
        pool.reset(SEEDS)
    assert time.monotonic() - began < 0.4  # not so long as the limit


@QUIET
@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_limit_is_of_one_game_and_not_of_a_batch(pool_of, num_workers):
    pool = pool_of(lambda env: time.sleep(0.5), num_workers=num_workers, step_timeout=2.0)
    play(pool, seeds=np.arange(6, dtype=np.uint32))


@QUIET
def test_starting_is_no_step(pool_of, monkeypatch):
    pool = pool_of(step_timeout=0.01)
    pool.reset(SEEDS)  # a process needs longer to start
    pool.close()
    monkeypatch.setattr(host_patience, "START_S", 0.01)
    with pytest.raises(HostEnvironmentError, match="process 0, which begins to play, did not ret"):
        pool.reset(SEEDS)


def hang(*args):
    time.sleep(300)


@QUIET
@pytest.mark.parametrize(
    ("enter", "method"),
    [
        (from_pettingzoo, "__init__"),
        (from_gymnasium, "__init__"),
        (from_rllib_env, "__init__"),
        (from_rllib_env, "reset"),
    ],
)
def test_what_hangs_before_there_are_workers_is_given_up(enter, method, monkeypatch):
    monkeypatch.setattr(host_patience, "START_S", 0.3)
    env_class = type("Env", (rllib_envs.Duel,), {method: hang})
    with pytest.raises(HostEnvironmentError, match=r"did not return within 0.3 s$"):
        enter(env_class, step_timeout=0.1)


@QUIET
def test_what_hangs_when_it_is_made_by_name_is_told_as_it_is(monkeypatch):
    monkeypatch.setattr(host_patience, "START_S", 0.3)
    monkeypatch.setattr(rllib_envs.Duel, "reset", hang)
    with pytest.raises(HostEnvironmentError, match=r"^environment 'Duel', tried out with"):
        make("rllib_envs:Duel", step_timeout=0.1)


def test_what_needs_the_main_thread_has_it():
    """As it has in a worker."""

    class Handling(rllib_envs.Duel):
        def __init__(self, config=None):
            super().__init__(config)
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)

    assert from_rllib_env(Handling).agents == from_rllib_env(rllib_envs.Duel).agents


@pytest.mark.parametrize("limit", [0, -1.0, math.inf, math.nan, "9", True])
@pytest.mark.parametrize("enter", [from_pettingzoo, from_gymnasium, from_rllib_env])
def test_what_is_no_limit_is_refused(enter, limit):
    with pytest.raises(ValueError, match=f"step_timeout={limit!r}: give seconds as a positive"):
        enter(Eventful, step_timeout=limit)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pettingzoo", {"env_id": "mpe2.simple_crypto_v3"}),
        ("gymnasium", {"env_id": "CartPole-v1"}),
        ("rllib", {"env_id": "rllib_envs:Duel"}),
    ],
)
@pytest.mark.parametrize("limit", [3.5, None])
def test_environments_by_name_take_a_limit(name, options, limit):
    env, _ = make(name, num_workers=0, step_timeout=limit, **options)
    assert env.pool.step_timeout == limit


# ---- Requests to stop ----------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_request_to_stop_ends_what_does_not_answer(pool_of, monkeypatch, num_workers, at_once):
    monkeypatch.setattr(stop_request, "GRACE_S", 300.0 if at_once else 0.3)
    pool = pool_of(hang_on_seed_8, num_workers=num_workers, step_timeout=None)
    pool.reset(SEEDS)
    try:
        stop_request.request(at_once=False)
        play(pool, num_steps=2)  # whoever answers plays on
        if at_once:
            stop_request.request(at_once=True)
        with pytest.raises(HostEnvironmentError, match=r"seed 8 .* and a stop was requested"):
            play(pool)
    finally:
        stop_request.withdraw()


# ---- Processes -----------------------------------------------------------------------------------


def test_input_is_at_its_end_and_the_line_is_told(pool_of):
    with pytest.raises(HostEnvironmentError, match=r"EOFError: .*host_envs.py, line \d+: input"):
        play(pool_of(ask_for_a_name))


class Asking:
    """An environment of RLlib's that asks for a line."""

    possible_agents = ("a",)

    def reset(self, *, seed=None, options=None):
        return {"a": int(input())}, {}

    def step(self, actions):
        raise NotImplementedError


def test_what_asks_for_input_is_told_while_it_is_tried_out(monkeypatch):
    typed = io.StringIO("3\n")
    monkeypatch.setattr("sys.stdin", typed)
    with pytest.raises(UserCodeError, match=r"EOFError: EOF when reading a line .*int\(input"):
        from_rllib_env(Asking)
    assert sys.stdin is typed


def test_whatever_is_printed_arrives(pool_of, capfd):
    def write(env):
        print("x" * 300_000, end="")
        print("y" * 1000, file=sys.stderr, end="")
        os.write(1, b"z" * 1000)

    play(pool_of(write), seeds=SEEDS[:1])
    out, err = capfd.readouterr()
    assert out == ""
    assert [err.count(letter) for letter in "xyz"] == [300_000, 1000, 1000]


@QUIET
def test_half_a_line_of_an_environment_that_hangs_arrives(pool_of, capfd):
    def ask(env):
        print("continue? ", end="")
        time.sleep(300)

    with pytest.raises(HostEnvironmentError, match="did not return within 4 s"):
        play(pool_of(ask, step_timeout=4.0))
    assert capfd.readouterr().err == "continue? "


def test_a_worker_that_dies_is_told_while_what_it_forked_lives(pool_of, tmp_path):
    def fork_and_die(env):
        pid = os.fork()
        if pid == 0:
            time.sleep(300)
        (tmp_path / "pid").write_text(str(pid))
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(HostEnvironmentError, match="process 0 was killed by signal 9"):
        play(pool_of(fork_and_die))
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_signals_to_all_processes_are_the_masters(pool_of):
    """Schedulers send them so; what an environment forks hears them as ever."""

    def fork_and_terminate(env):
        pid = os.fork()
        if pid == 0:
            time.sleep(300)
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == signal.SIGTERM

    pool = pool_of(fork_and_terminate)
    pool.reset(SEEDS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        os.kill(pool.pids[0], number)
    play(pool)


PROGRAM = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from host_envs import Eventful, ask_for_a_name, hang_on_seed_8
from jaxmarl_envs.adapters.incoming.host_steps import Steps
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo

def fork_and_hang(env):
    if os.fork() == 0:
        time.sleep(300)
    print(os.getpid(), os.getpgrp(), flush=True)
    {hang}

env = from_pettingzoo(lambda: Eventful(on_reset=fork_and_hang), num_workers=1)
env.pool.reset(np.arange(1))
"""


@pytest.mark.parametrize("hang", ["time.sleep(300)", "sum(range(10**15))"])
def test_kill_of_the_program_ends_workers_that_hang_and_what_they_forked(hang):
    """The second one keeps hold of the interpreter, so that no thread of it can do anything."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(hang=hang)],
        stderr=subprocess.PIPE,
        # Python 3.12 warns of forks beside threads, such as the one that holds a worker's lifeline.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONWARNINGS": "ignore::DeprecationWarning",
        },
    )
    pid, group = map(int, program.stderr.readline().split())
    assert pid == group
    assert len(members_of(group)) == 2
    program.kill()
    program.communicate()
    assert all(is_gone(member) for member in [pid, *members_of(group)])


def members_of(group):
    found = subprocess.run(["ps", "-eo", "pid=,pgid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    return [pid for pid, own in pairs if own == group]
