"""The processes of a job: how they agree, and end together.

All processes run the same program on the devices of all. Results of compiled programs are the same
on all processes. Decisions of a host by its clock, files or user may differ, so the first process
decides for all (`Processes.agree`). A single process is a job too, and decides for itself.
"""

import atexit
import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import jax

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.devices.wire import Wire

T = TypeVar("T")

# Exit status of a process that ends because another one has died or failed.
ENDED_FOR_ANOTHER = 3
# Programs notice a death at the same time as the wire; this delay lets the wire go first.
GRACE_S = 10.0
_DECIDED, _STOP = "decided", "stop"


class FirstFailed(RuntimeError):  # noqa: N818
    """Reports an error of the first process, with which all end in step."""


class ProcessesDiffer(ValueError):  # noqa: N818
    """Reports a difference between the processes of a job."""


class Processes:
    """The processes of a job, including this one.

    Args:
        index: the number of this process.
        count: number of processes.
        names: descriptions for messages, by process number; only the first process knows all of
            them.
        wire: to the others; None for one that is alone.

    Attributes:
        where_saved: message on saved work, for a process that ends because of another.
    """

    def __init__(
        self, index: int = 0, count: int = 1, names: Mapping[int, str] | None = None
    ) -> None:
        self.index, self.count = index, count
        self.where_saved = ""
        self._names = dict(names or {})
        self._wire: Wire | None = None
        self._asked: str | None = None
        self._has_failed = False

    def connect(self, ends: Mapping[int, socket.socket]) -> None:
        """Take the connections to the others, and monitor them from now on."""
        self._wire = Wire(ends, self._on_trouble)
        # Called before JAX's own, which waits for all others.
        atexit.register(self._leave)

    @property
    def is_first(self) -> bool:
        """Return whether this process decides, displays and writes for all."""
        return self.index == 0

    def agree(self, label: str, decide: Callable[[], T]) -> T:
        """Return what `decide` returns on the first process; on others it is not called.

        Args:
            label: the subject of the decision, equal on all processes that are in step.
            decide: returns a JSON value.

        Raises:
            FirstFailed: With the message that the first process passed to `fail_in_step`.
            Departed: If the first process has ended.
        """
        if self._wire is None:
            return decide()
        if self.is_first:
            value = decide()
            self._send_all(label, value)
            return value
        told, value = self._wire.receive(0, _DECIDED)
        if told is None:
            raise FirstFailed(value)
        if told != label:
            raise RuntimeError(f"processes are out of step: {told!r} was decided, not {label!r}")
        return value

    def gather(self, label: str, value: T) -> list[T]:
        """Return every process's value on the first one, and this one's alone on others.

        Raises:
            Departed: If a process has ended.
        """
        if self._wire is None:
            return [value]
        if self.is_first:
            return [value, *(self._wire.receive(peer, label) for peer in range(1, self.count))]
        self._wire.send(0, label, value)
        return [value]

    def check_alike(self, facts: Mapping[str, Any]) -> None:
        """Reject a job whose processes would do different things.

        Args:
            facts: what must be the same on all, as JSON has it.

        Raises:
            ProcessesDiffer: If it is not; the first difference is named, on all processes.
        """
        if self._wire is None:
            return
        found = self.gather("facts", facts)

        def find() -> str | None:
            for index, other in enumerate(found):
                difference = first_difference(found[0], other)
                if difference is not None:
                    name, first, own = difference
                    return (
                        f"{self._name(index)} has {name}={show(own)}, but {self._name(0)} has "
                        f"{show(first)}; the processes of a job must be started alike"
                    )
            return None

        sentence = self.agree("alike", find)
        if sentence is not None:
            raise ProcessesDiffer(sentence)

    def asked_to_stop(self, own: str | None) -> str | None:
        """Return the reason to stop of this process or, on the first process, of any.

        Args:
            own: this process's reason to stop.
        """
        if self._wire is None:
            return own
        if self.is_first:
            asked = [own, *self._wire.received(_STOP)]
            self._asked = self._asked or next(filter(None, asked), None)
            return self._asked
        if own is not None and self._asked is None:
            self._wire.send(0, _STOP, own)
            self._asked = own
        return own

    def fail_in_step(self, error: Exception) -> None:
        """Make `agree` raise the error of this, the first process, on all others."""
        if self._wire is not None and self.is_first:
            self._send_all(None, f"{self._name(0)} has failed: {error}")

    @contextlib.contextmanager
    def ending_together(self, *in_step: type[BaseException]) -> Iterator[None]:
        """End the other processes if the body raises an error that they do not have.

        Args:
            *in_step: errors that all have at the same place.
        """
        try:
            yield
        except in_step:
            raise
        except BaseException as error:
            if self._wire is not None:
                if isinstance(error, jax.errors.JaxRuntimeError):
                    time.sleep(GRACE_S)
                self._has_failed = True
                sentence = self._words(self.index, f"{type(error).__name__}: {error}")
                for peer in self._others():
                    self._wire.tell_trouble(peer, self.index, sentence)
            raise

    def leave(self) -> None:
        """Disconnect from the others before this process ends, once all are done."""
        if self._wire is not None:
            atexit.unregister(self._leave)
            self._leave()

    def _others(self) -> Iterator[int]:
        return iter(range(1, self.count) if self.is_first else (0,))

    def _send_all(self, label: str | None, value: Any) -> None:
        assert self._wire is not None
        for peer in self._others():
            self._wire.send(peer, _DECIDED, [label, value])

    def _name(self, index: int) -> str:
        what = f" ({self._names[index]})" if index in self._names else ""
        return f"process {index} of {self.count}{what}"

    def _words(self, about: int, sentence: str | None) -> str:
        what = "has died" if sentence is None else f"has failed: {sentence}"
        return f"{self._name(about)} {what}"

    def _on_trouble(self, about: int, sentence: str | None) -> None:
        """End this process, and the others with it if it is the first.

        At once and from any thread, since the main thread may wait forever.
        """
        if self._has_failed:
            return  # the others have ended because of this one
        words = self._words(about, None) if sentence is None else sentence
        if self.is_first and self._wire is not None:
            for peer in self._others():
                if peer != about:
                    self._wire.tell_trouble(peer, about, words)
        _end(f"{words}; {self._name(self.index)} ends too{self.where_saved}")

    def _leave(self) -> None:
        """Announce that this process ends, in good order or not."""
        assert self._wire is not None
        if self._has_failed:
            # No process remains for JAX to wait for.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        # JAX waits for the others too, but for five minutes, after which it ends all.
        self._wire.part()


ALONE = Processes()


def first_difference(first: Any, other: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Find where two values of JSON differ: the place, and what is there; None where nowhere."""
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*first, *other]):
            place = f"{name}.{key}" if name else str(key)
            found = first_difference(first.get(key), other.get(key), place)
            if found is not None:
                return found
        return None
    # NaN differs from itself.
    same = first == other or repr(first) == repr(other)
    return None if same else (name, first, other)


def _end(sentence: str) -> NoReturn:
    """End this process at once, with a sentence."""
    # A display that is cut off has left the cursor hidden.
    shown = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{shown}error: {sentence}\n".encode())
    os._exit(ENDED_FOR_ANOTHER)
