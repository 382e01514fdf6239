"""Messages between a pool and its worker processes, over a socket that only they have.

Arrays of answers do not pass through the socket. A worker writes them into memory that both share,
where the pool reads them. There are several such memories, which answers take in turn, so that one
is read while the next is written.
"""

import math
import mmap
import os
import pickle
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

POLL_S = 0.1  # between two calls of those who wait
_HEADER = 8  # bytes: the length of the message
_ALIGNED = 64  # bytes: arrays begin at multiples of it


class SharedMemory:
    """Memory of two processes, one of which writes and the other reads; it grows as needed.

    Args:
        file: such as `shared_file` makes.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._bytes = np.empty(0, np.uint8)
        self._used = 0  # bytes of the present message

    def close(self) -> None:
        """Close the file; arrays in the memory stay as they are."""
        self._file.close()

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Make an array in it, which is good until the present message is sent.

        Returns:
            One elsewhere if there is no room: after the next message, there will be.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        start = self._take(size)
        if start + size > self._bytes.size:
            return np.empty(shape, dtype)
        return self._bytes[start : start + size].view(dtype).reshape(shape)

    def write(self, buffers: Sequence[pickle.PickleBuffer]) -> list[tuple[int, int]]:
        """Copy what does not lie here already; return where each buffer begins, and its size."""
        held, base = self._bytes.size, _address(self._bytes)
        places = []
        for buffer in buffers:
            raw = buffer.raw()
            own = np.frombuffer(raw, np.uint8) if raw.nbytes else np.empty(0, np.uint8)
            start = _address(own) - base
            if not 0 <= start < held:
                start = self._take(own.size)
                self._grow_to(self._used)
                self._bytes[start : start + own.size] = own
            places.append((start, own.size))
        self._used = 0
        return places

    def read(self, places: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Return the bytes that lie at some places."""
        self._map_to(max((start + size for start, size in places), default=0))
        return [self._bytes[start : start + size] for start, size in places]

    def _take(self, size: int) -> int:
        start = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return start

    def _grow_to(self, needed: int) -> None:
        if needed > self._bytes.size:
            os.ftruncate(self._file.fileno(), 2 * needed)
            self._map_to(needed)

    def _map_to(self, needed: int) -> None:
        if needed > self._bytes.size:
            # Arrays in the former map keep it, and have the same bytes.
            self._bytes = np.frombuffer(mmap.mmap(self._file.fileno(), 0), np.uint8)


def shared_file(size: int = 0) -> Any:
    """Make a file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("jaxmarl-envs"), "wb+")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.truncate(size)
    return file


class Channel:
    """One end of a connection whose ends take turns, a message each.

    Args:
        connection: a socket, which the channel owns.
        is_watched: whether those who wait are called several times a second.
        outgoing: where arrays are written that are sent, in turn; none to send them with the rest.
        incoming: where arrays are read that the other end sends so, in the same order.
    """

    def __init__(
        self,
        connection: socket.socket,
        is_watched: bool = False,
        outgoing: Sequence[SharedMemory] = (),
        incoming: Sequence[SharedMemory] = (),
    ) -> None:
        self._connection = connection
        self._outgoing, self._incoming = deque(outgoing), deque(incoming)
        connection.settimeout(POLL_S if is_watched else None)

    def close(self) -> None:
        """Close the connection, which the other end notices, and the shared memory."""
        self._connection.close()
        for memory in (*self._outgoing, *self._incoming):
            memory.close()

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Make an array for the next message, where possible in the memory that it is read from."""
        return self._outgoing[0].empty(shape, dtype) if self._outgoing else np.empty(shape, dtype)

    def send(self, value: Any, on_wait: Callable[[], None] | None = None) -> None:
        """Send an object that can be pickled.

        Args:
            value: the object.
            on_wait: called again and again while the other end takes nothing.

        Raises:
            OSError: If the other end is closed.
        """
        buffers: list[pickle.PickleBuffer] = []
        apart = buffers.append if self._outgoing else None
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=apart)
        places = self._outgoing[0].write(buffers) if self._outgoing else []
        self._outgoing.rotate(-1)
        data = pickle.dumps((pickled, places), pickle.HIGHEST_PROTOCOL)
        left = [memoryview(len(data).to_bytes(_HEADER, "little")), memoryview(data)]
        while left:
            sent = self._when_ready(on_wait, self._connection.sendmsg, left)
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    def receive(self, on_wait: Callable[[], None] | None = None) -> Any:
        """Receive an object.

        Its arrays last until as many more are received as there are memories for them.

        Args:
            on_wait: called again and again while nothing comes.

        Raises:
            EOFError: If the other end is closed.
            OSError: As above.
        """
        header = self._receive_bytes(_HEADER, on_wait)
        data = self._receive_bytes(int.from_bytes(header, "little"), on_wait)
        pickled, places = pickle.loads(data)
        buffers = self._incoming[0].read(places) if self._incoming else []
        self._incoming.rotate(-1)
        return pickle.loads(pickled, buffers=buffers)

    def _receive_bytes(self, size: int, on_wait: Callable[[], None] | None) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            found = self._when_ready(on_wait, self._connection.recv_into, left)
            if not found:
                raise EOFError("the other end of the connection is closed")
            left = left[found:]
        return data

    def _when_ready(
        self, on_wait: Callable[[], None] | None, operation: Callable[[Any], Any], arg: Any
    ) -> Any:
        while True:
            try:
                return operation(arg)
            except TimeoutError:
                if on_wait is not None:
                    on_wait()


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
