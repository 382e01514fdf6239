"""Processes of a job agree, and end together: here they are threads, with a wire between them."""

import itertools
import json
import math
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import pytest

from jaxmarl_ppo.devices import processes as processes_lib
from jaxmarl_ppo.devices.joining import join_processes
from jaxmarl_ppo.devices.processes import (
    ALONE,
    FirstFailed,
    Processes,
    ProcessesDiffer,
    first_difference,
)
from jaxmarl_ppo.devices.wire import Departed, Door, connect

COUNT = 3


@pytest.fixture
def said(monkeypatch):
    """What processes said as they were ended for another's sake."""
    sentences = []
    monkeypatch.setattr(processes_lib, "_end", sentences.append)
    monkeypatch.setattr(processes_lib.atexit, "register", lambda function: None)
    return sentences


@pytest.fixture
def job(said):
    """Three processes; their sockets are closed at the end."""
    pairs = [socket.socketpair() for _ in range(COUNT - 1)]
    names = {index: f"number {index}" for index in range(COUNT)}
    first = Processes(0, COUNT, names)
    others = [Processes(index, COUNT, {0: names[0]}) for index in range(1, COUNT)]
    first.connect({index: pair[0] for index, pair in enumerate(pairs, 1)})
    for process, pair in zip(others, pairs, strict=True):
        process.connect({0: pair[1]})
    yield [first, *others]
    for process in (first, *others):
        process._has_failed = True  # what breaks from here on is nobody's trouble
    for end in itertools.chain(*pairs):
        end.shutdown(socket.SHUT_RDWR)
    wait_for_readers()
    for end in itertools.chain(*pairs):
        end.close()


def everywhere(job, function):
    """Call a function of a process for all of them at once; results, or what was raised."""

    def call(process):
        try:
            return function(process)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(job)) as pool:
        return list(pool.map(call, job))


def test_the_first_process_decides_for_all(job):
    asked = []

    def decide(process):
        asked.append(process.index)
        return {"count": 8, "why": None}

    found = everywhere(job, lambda p: [p.agree("slice", lambda: decide(p)) for _ in range(2)])
    assert found == [[{"count": 8, "why": None}] * 2] * COUNT
    assert asked == [0, 0]


def test_one_that_is_alone_decides_for_itself():
    assert ALONE.agree("slice", lambda: 3) == 3
    assert ALONE.gather("facts", 4) == [4]
    assert ALONE.asked_to_stop("SIGTERM") == "SIGTERM"
    ALONE.check_alike({"seed": 1})
    ALONE.fail_in_step(ValueError())


def test_values_come_to_the_first_process_in_the_order_of_their_numbers(job):
    found = everywhere(job, lambda p: p.gather("index", 10 * p.index))
    assert found == [[0, 10, 20], [10], [20]]


def test_processes_that_are_out_of_step_notice_it(job):
    labels = ("stop", "stop", "save")
    found = everywhere(job, lambda p: p.agree(labels[p.index], lambda: True))
    assert found[:2] == [True, True]
    with pytest.raises(RuntimeError, match="out of step: 'stop' was decided, not 'save'"):
        raise found[2]


def test_a_request_to_stop_reaches_the_first_process_once(job):
    first, second, third = job
    assert first.asked_to_stop(None) is None
    for _ in range(2):
        assert third.asked_to_stop("SIGTERM") == "SIGTERM"
    third._wire.send(0, "sent", None)
    first._wire.receive(2, "sent")  # so that the request has come too
    assert first._wire.received("stop") == ["SIGTERM"]
    second.asked_to_stop("SIGINT")
    second._wire.send(0, "sent", None)
    first._wire.receive(1, "sent")
    assert first.asked_to_stop(None) == "SIGINT"
    assert first.asked_to_stop(None) == "SIGINT"


def test_what_fails_on_the_first_process_is_raised_on_all_others(job):
    first, *others = job
    first.fail_in_step(ValueError("no callback"))
    for error in everywhere(others, lambda p: p.agree("stop", lambda: None)):
        with pytest.raises(FirstFailed, match=r"process 0 of 3 \(number 0\).*: no callback"):
            raise error


def test_a_difference_is_named_on_all_processes(job):
    facts = {"config": {"seed": 1, "lr": [1, 2]}, "nan": math.nan}
    assert everywhere(job, lambda p: p.check_alike(facts)) == [None] * COUNT
    other = {**facts, "config": {"seed": 1, "lr": [1, 3]}}
    found = everywhere(job, lambda p: p.check_alike(other if p.index == 1 else facts))
    for error in found:
        with pytest.raises(
            ProcessesDiffer, match=r"process 1 of 3 .* config\.lr=\[1, 3\].* has \[1, 2\]"
        ):
            raise error


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ("a.c", 2, 3)),
        ({"a": 1}, {}, ("a", 1, None)),
        ({}, {"a": 1}, ("a", None, 1)),
        ({"a": 1}, {"a": {"b": 1}}, ("a", 1, {"b": 1})),
    ],
)
def test_the_first_difference(first, other, expected):
    assert first_difference(first, other) == expected


def test_one_that_dies_ends_all_others_by_its_name(job, said):
    first, _, third = job
    first.where_saved = "; saved in runs/x"
    third._has_failed = True
    third._wire._ends[0].shutdown(socket.SHUT_RDWR)
    wait_until(lambda: len(said) == 2)
    died = "process 2 of 3 (number 2) has died"
    assert sorted(said) == [
        f"{died}; process 0 of 3 (number 0) ends too; saved in runs/x",
        f"{died}; process 1 of 3 ends too",
    ]


def test_the_death_of_the_first_process_is_noticed_by_all(job, said):
    first, *_ = job
    first._has_failed = True
    for end in first._wire._ends.values():
        end.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: len(said) == 2)
    assert sorted(said) == [
        f"process 0 of 3 (number 0) has died; process {index} of 3 ends too" for index in (1, 2)
    ]


def test_an_error_of_one_process_ends_all_others_with_what_it_says(job, said):
    with pytest.raises(MemoryError), job[2].ending_together(ValueError):
        raise MemoryError("no room")
    wait_until(lambda: len(said) == 2)
    assert all("process 2 of 3 has failed: MemoryError: no room" in words for words in said)


def test_an_error_that_all_have_ends_nobody_for_another(job, said):
    for process in job:
        with pytest.raises(ValueError, match="diverged"), process.ending_together(ValueError):
            raise ValueError("diverged")
        assert not process._has_failed
    assert everywhere(job, lambda p: p.agree("on", lambda: 1)) == [1] * COUNT
    assert said == []


def test_a_broken_collective_waits_for_the_name_of_the_dead(job, monkeypatch):
    slept = []
    monkeypatch.setattr(processes_lib.time, "sleep", slept.append)
    with pytest.raises(jax.errors.JaxRuntimeError), job[1].ending_together():
        raise jax.errors.JaxRuntimeError("Gloo all-reduce failed")
    assert slept == [processes_lib.GRACE_S]


def test_those_who_end_in_good_order_wait_for_each_other(job, said):
    first, second, third = job
    with ThreadPoolExecutor(COUNT) as pool:
        leaving = [pool.submit(process._leave) for process in (second, third)]
        with pytest.raises(Departed, match="process 2 has left"):
            first._wire.receive(2, "facts")
        assert not any(done.done() for done in leaving)
        pool.submit(first._leave).result(10.0)
        for done in leaving:
            done.result(10.0)
    for process in job:
        for end in process._wire._ends.values():
            end.shutdown(socket.SHUT_WR)
    wait_for_readers()
    assert said == []


def test_a_door_lets_in_only_those_who_know_the_token():
    door = Door("127.0.0.1")
    with ThreadPoolExecutor(1) as pool:
        let_in = pool.submit(door.let_in, 1)
        for wrong in (json.dumps(["0" * 32, 1, "a stranger"]).encode() + b"\n", b"\xff\n"):
            with socket.create_connection(("127.0.0.1", door.port)) as stranger:
                stranger.sendall(wrong)
                assert stranger.recv(1) == b""  # it is turned away
        with connect("127.0.0.1", door.port, door.token, 1, "one of us") as own:
            ends, described = let_in.result(10)
            assert described == {1: "one of us"}
            ends[1].sendall(b"welcome")
            assert own.recv(7) == b"welcome"
            ends[1].close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("node1", 2, 0), "coordinator must be HOST:PORT, got 'node1'"),
        (("node1:80", 0, 0), "num_processes must be at least 1, got 0"),
        (("node1:80", 2, 2), "process_id must be from 0 to 1 with num_processes=2, got 2"),
        (("node1:80", None, 1), "process_id=1 needs num_processes"),
    ],
)
def test_jobs_that_cannot_be_joined(arguments, message):
    with pytest.raises(ValueError, match=message):
        join_processes(*arguments)


def wait_for_readers():
    """Wait until all that was sent is read, and every connection found closed."""
    for thread in threading.enumerate():
        if thread.name == "processes":
            thread.join(10.0)


def wait_until(condition):
    """Wait for other threads, ten seconds at most."""
    deadline = threading.Event()
    for _ in range(1000):
        if condition():
            return
        deadline.wait(0.01)
    pytest.fail("it did not come about")
