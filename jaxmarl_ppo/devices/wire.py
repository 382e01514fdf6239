"""Lines of JSON between the first process of a job and each of the others.

They carry the few values that hosts must agree on. They also break when a process dies: the system
closes its end at once, and the loss of a machine is noticed by its silence.
"""

import contextlib
import json
import secrets
import selectors
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

# Time limits, in seconds, for all processes to connect, and for one to identify itself.
CONNECT_S = 300.0
GREETING_S = 10.0
# A lost machine does not even acknowledge: time limit in seconds.
SILENCE_S = 20
_CHUNK = 1 << 16
# Topics of the wire's own.
_BYE, _TROUBLE = "bye", "trouble"

OnTrouble = Callable[[int, str | None], None]


class Departed(RuntimeError):  # noqa: N818
    """Reports that a process ended in good order while a value was awaited from it."""


class Wire:
    """Holds this process's ends of the connections.

    Args:
        ends: the connections, by the numbers of the processes at their other ends.
        on_trouble: called in a separate thread with the number of a process that died, or with a
            process's number and its message.
    """

    def __init__(self, ends: Mapping[int, socket.socket], on_trouble: OnTrouble) -> None:
        self._ends, self._on_trouble = dict(ends), on_trouble
        self._send_locks = {peer: threading.Lock() for peer in ends}
        self._received: dict[tuple[str, int], deque[Any]] = defaultdict(deque)
        self._departed: set[int] = set()
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="processes", daemon=True).start()

    def send(self, peer: int, topic: str, value: Any) -> None:
        """Send a JSON value; drop it if the connection is broken."""
        line = json.dumps([topic, value]).encode() + b"\n"
        # The reader of this connection will notice that it is broken.
        with self._send_locks[peer], contextlib.suppress(OSError):
            self._ends[peer].sendall(line)

    def receive(self, peer: int, topic: str) -> Any:
        """Wait for the next value of a topic from a process, however long it takes.

        Raises:
            Departed: If the process has ended without sending one.
        """
        with self._changed:
            values = self._received[topic, peer]
            self._changed.wait_for(lambda: values or peer in self._departed)
            if values:
                return values.popleft()
        raise Departed(f"process {peer} has left the job; see what it said")

    def received(self, topic: str) -> list[Any]:
        """Take the values of a topic received so far, from all processes."""
        with self._changed:
            found = [values for (name, _), values in self._received.items() if name == topic]
            return [values.popleft() for values in found for _ in range(len(values))]

    def tell_trouble(self, peer: int, about: int, sentence: str | None) -> None:
        """Call `on_trouble` at the other end."""
        self.send(peer, _TROUBLE, [about, sentence])

    def part(self) -> None:
        """Announce that this process ends in good order, and wait until the others do."""
        for peer in self._ends:
            self.send(peer, _BYE, None)
        with self._changed:
            self._changed.wait_for(lambda: self._departed >= self._ends.keys())

    def _read(self) -> None:
        selector = selectors.DefaultSelector()
        for peer, end in self._ends.items():
            selector.register(end, selectors.EVENT_READ, peer)
        rests: dict[int, bytes] = defaultdict(bytes)
        while selector.get_map():
            for key, _ in selector.select():
                peer = key.data
                try:
                    read = self._ends[peer].recv(_CHUNK)
                except OSError:  # it has broken, or no process answers
                    read = b""
                if not read:
                    selector.unregister(key.fileobj)
                    if peer not in self._departed:
                        self._on_trouble(peer, None)
                    continue
                *lines, rests[peer] = (rests[peer] + read).split(b"\n")
                for line in lines:
                    self._take(peer, *json.loads(line))

    def _take(self, peer: int, topic: str, value: Any) -> None:
        if topic == _TROUBLE:
            self._on_trouble(*value)
            return
        with self._changed:
            if topic == _BYE:
                self._departed.add(peer)
            else:
                self._received[topic, peer].append(value)
            self._changed.notify_all()


class Door:
    """Listening socket at which the first process waits for the others.

    Args:
        host: the address to listen at; empty for all of the machine.

    Attributes:
        port: at which it listens.
        token: secret that others must present, so that no other program can connect.
    """

    def __init__(self, host: str) -> None:
        self._listening = socket.create_server((host, 0))
        self._listening.settimeout(CONNECT_S)
        self.port: int = self._listening.getsockname()[1]
        self.token = secrets.token_hex(16)

    def let_in(self, count: int) -> tuple[dict[int, socket.socket], dict[int, str]]:
        """Wait for so many others.

        Returns:
            The connections, and how the processes describe themselves, both by their numbers.

        Raises:
            TimeoutError: If some did not arrive.
        """
        ends: dict[int, socket.socket] = {}
        described: dict[int, str] = {}
        with self._listening:
            while len(ends) < count:
                end, _ = self._listening.accept()
                end.settimeout(GREETING_S)
                try:
                    token, peer, words = json.loads(_read_line(end))
                except (OSError, ValueError):  # not a process of this job
                    end.close()
                    continue
                if not secrets.compare_digest(str(token), self.token):
                    end.close()
                    continue
                ends[peer], described[peer] = _lasting(end), words
        return ends, described


def connect(host: str, port: int, token: str, own: int, described: str) -> socket.socket:
    """Connect to the first process's door.

    Args:
        host: where it listens.
        port: where it listens.
        token: the secret to present.
        own: the number of this process.
        described: this process in words.

    Raises:
        OSError: If no process answers.
    """
    end = socket.create_connection((host, port), timeout=CONNECT_S)
    end.sendall(json.dumps([token, own, described]).encode() + b"\n")
    return _lasting(end)


def _read_line(end: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _CHUNK:
        byte = end.recv(1)
        if not byte:
            break
        line += byte
    return line


def _lasting(end: socket.socket) -> socket.socket:
    """Keep a connection as long as both machines exist, and no longer."""
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    quarter = SILENCE_S // 4
    # Not every system has all of them; without them only JAX notices silence, later.
    options = {
        "TCP_KEEPIDLE": quarter,
        "TCP_KEEPINTVL": quarter,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 1000 * SILENCE_S,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return end
