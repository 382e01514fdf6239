"""Messages between a pool and its worker processes, over a socket that only they have."""

import pickle
import socket
from collections.abc import Callable
from typing import Any

POLL_S = 0.1  # between two calls of those who wait
_HEADER = 8  # bytes: the length of the message


class Channel:
    """One end of a connection whose ends take turns, a message each.

    Args:
        connection: a socket, which the channel owns.
        is_watched: whether those who wait are called several times a second.
    """

    def __init__(self, connection: socket.socket, is_watched: bool = False) -> None:
        self._connection = connection
        connection.settimeout(POLL_S if is_watched else None)

    def close(self) -> None:
        """Close the connection, which the other end notices."""
        self._connection.close()

    def send(self, value: Any, on_wait: Callable[[], None] | None = None) -> None:
        """Send an object that can be pickled.

        Args:
            value: the object.
            on_wait: called again and again while the other end takes nothing.

        Raises:
            OSError: If the other end is closed.
        """
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        left = [memoryview(len(data).to_bytes(_HEADER, "little")), memoryview(data)]
        while left:
            sent = self._when_ready(on_wait, self._connection.sendmsg, left)
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    def receive(self, on_wait: Callable[[], None] | None = None) -> Any:
        """Receive an object.

        Args:
            on_wait: called again and again while nothing comes.

        Raises:
            EOFError: If the other end is closed.
            OSError: As above.
        """
        header = self._receive_bytes(_HEADER, on_wait)
        return pickle.loads(self._receive_bytes(int.from_bytes(header, "little"), on_wait))

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
