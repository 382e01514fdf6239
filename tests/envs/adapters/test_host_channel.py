"""Messages of worker processes: arrays pass through shared memory, whatever their sizes."""

import socket

import numpy as np
import pytest

from jaxmarl_envs.adapters.incoming.host_channel import Channel, SharedMemory, shared_file


@pytest.fixture
def pair():
    """Two ends, the first of which writes arrays into shared memory."""
    own, theirs = socket.socketpair()
    with shared_file() as file:
        writer = SharedMemory(file)
        ends = Channel(own, outgoing=[writer]), Channel(theirs, incoming=[SharedMemory(file)])
        yield *ends, writer
        for end in ends:
            end.close()


def test_arrays_of_all_sizes_arrive(pair):
    sender, receiver, _ = pair
    rng = np.random.default_rng(0)
    for size in (3, 0, 500, 20_000, 7):  # the memory grows, and what was in it is gone
        sent = {"a": rng.random((size, 2)), "b": [rng.random(size) < 0.5], "c": "text"}
        sender.send(sent)
        found = receiver.receive()
        np.testing.assert_array_equal(found["a"], sent["a"])
        np.testing.assert_array_equal(found["b"][0], sent["b"][0])
        assert found["c"] == "text"


def test_what_lies_in_the_memory_is_not_copied_and_does_not_pass_the_socket(pair):
    sender, receiver, memory = pair
    sender.send(np.zeros(100_000))  # from now on there is room
    receiver.receive()
    written = memory.empty((200, 300), np.float32)
    elsewhere = np.arange(5)
    written[:] = np.arange(60_000).reshape(200, 300)
    sender.send((written, elsewhere))
    first, second = receiver.receive()
    np.testing.assert_array_equal(first, written)
    np.testing.assert_array_equal(second, elsewhere)
    first[0, 0] = 7
    assert written[0, 0] == 7  # the same memory


def test_where_there_is_no_room_arrays_are_made_elsewhere_and_arrive_too(pair):
    sender, receiver, memory = pair
    for _ in range(3):
        written = memory.empty((1_000,), np.int64)
        written[:] = np.arange(1_000)
        sender.send(written)
        np.testing.assert_array_equal(receiver.receive(), np.arange(1_000))


def test_the_memory_grows_within_a_message(pair):
    """An array in the memory as it was arrives beside one that makes it grow."""
    sender, receiver, memory = pair
    sender.send(np.zeros(100))
    receiver.receive()
    small = memory.empty((50,), np.float64)
    small[:] = 3
    large = np.arange(50_000.0)
    sender.send((small, large))
    first, second = receiver.receive()
    np.testing.assert_array_equal(first, np.full(50, 3.0))
    np.testing.assert_array_equal(second, large)


def test_requests_are_sent_whole():
    own, theirs = socket.socketpair()
    sender, receiver = Channel(own), Channel(theirs)
    sent = np.arange(1_000)
    sender.send(sent)
    found = receiver.receive()
    np.testing.assert_array_equal(found, sent)
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()
