"""Signals are heard while the main thread computes, and two Ctrl-C end whatever it does."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jaxmarl_envs import stop_request
from jaxmarl_ppo.machine import interruption
from jaxmarl_ppo.machine.interruption import Interruption, Stopped, ending_on_interrupt

# Computes for hours without an instruction of Python, in which handlers would run, and says so from
# another thread once it does.
BUSY = """
import hashlib, signal, sys, threading
from jaxmarl_envs import stop_request
from jaxmarl_ppo.machine.interruption import Interruption, ending_on_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
with {context}:
    threading.Timer(0.5, print, ["computing"], dict(flush=True)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


@pytest.fixture
def busy():
    """A function that starts a program whose main thread computes."""
    programs = []

    def start(context):
        program = subprocess.Popen(
            [sys.executable, "-c", BUSY.format(context=context)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        programs.append(program)
        assert program.stdout.readline() == b"computing\n"
        return program

    yield start
    for program in programs:
        program.kill()
        program.communicate()


@pytest.fixture
def own_handler():
    """Ctrl-C as in a terminal, also where tests run in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_two_ctrl_c_end_a_process_that_computes(busy):
    program = busy("Interruption(lambda: None)")
    program.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):  # the first one waits for its end
        program.wait(3.0)
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=30)
    assert program.returncode == 130
    assert said == b"stopped at once; what was saved before stays\n"


def test_one_ctrl_c_ends_a_command_that_computes_and_saves_nothing(busy):
    program = busy("ending_on_interrupt()")
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=30)
    assert (program.returncode, said) == (130, b"stopped at once\n")


def test_environments_hear_of_a_request_until_its_end(own_handler):
    with Interruption(lambda: None) as request:
        assert not asked()
        signal.raise_signal(signal.SIGTERM)
        assert request.requested == signal.SIGTERM
        assert asked()
    assert not asked()


def test_environments_hear_of_it_while_the_main_thread_cannot(monkeypatch, own_handler):
    """The handler is not called here, as if the main thread computed."""
    heard = threading.Event()
    monkeypatch.setattr(stop_request, "request", lambda at_once: heard.set())
    with Interruption(lambda: None) as request:
        monkeypatch.setattr(request, "_handle", None)
        os.write(signal_pipe(), bytes([signal.SIGTERM]))
        assert heard.wait(30.0)
        assert request.requested is None


def signal_pipe():
    (fd,) = interruption._opened
    return fd


def asked():
    return stop_request.is_due(since=time.monotonic() - 1e6) or stop_request._requested_at


def test_two_ctrl_c_that_arrive_as_one_end_at_once(own_handler):
    with Interruption(lambda: None) as request:
        request._hear(signal.SIGINT)
        threading.Thread(target=request._hear, args=(signal.SIGINT,)).start()
        while not request._is_at_once:
            time.sleep(0.001)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGINT)
        assert request.requested is None
    assert not asked()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who handles a signal")
def test_a_handler_that_native_code_took_away_is_none(own_handler):
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with Interruption(lambda: None) as request:
            signal.raise_signal(signal.SIGTERM)
            assert request.requested is None
        libc = ctypes.CDLL(None)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGTERM, ctypes.c_void_p(signal.SIG_DFL))
        assert callable(signal.getsignal(signal.SIGTERM))  # as Python believes
        with Interruption(lambda: None) as request:
            os.kill(os.getpid(), signal.SIGTERM)
            assert request.requested == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_others_who_listened_to_signals_hear_them_meanwhile_and_afterwards(own_handler):
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end)
    try:
        with Interruption(lambda: None):
            signal.raise_signal(signal.SIGTERM)
            assert os.read(read_end, 1) == bytes([signal.SIGTERM])
        assert signal.set_wakeup_fd(-1) == write_end
    finally:
        signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's, where a test has started it
def test_what_is_sent_to_a_fork_is_not_heard_here(own_handler):
    with Interruption(lambda: None) as request:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        os.waitpid(pid, 0)
        signal.raise_signal(signal.SIGINT)  # which is heard after anything of the fork's
        while not request._is_heard:
            time.sleep(0.001)
        assert request.requested == signal.SIGINT
        assert not request._is_at_once


def test_ctrl_c_that_the_main_thread_answers_is_as_ever(own_handler):
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), ending_on_interrupt():
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not interruption._opened
