"""The processes of a job: how they find each other, agree, and end together.

All processes run the same program on the devices of all. What compiled programs exchange is the
same on every one of them; what a host decides by its clock, its files or its user is not, so the
first process decides it for all (`Processes.agree`). One process alone is a job too, and decides
for itself.
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

# The exit status of a process that ends because another one has died or failed.
ENDED_FOR_ANOTHER = 3
# Programs notice that one of them has died as soon as the wire does: so long the wire goes first.
GRACE_S = 10.0
_DECIDED, _STOP = "decided", "stop"


class FirstFailed(RuntimeError):  # noqa: N818
    """Reports what went wrong on the first process, where all end in step."""


class ProcessesDiffer(ValueError):  # noqa: N818
    """Reports in what the processes of a job differ."""


class Processes:
    """The processes of a job, of which this is one.

    Args:
        index: the number of this process.
        count: how many there are.
        names: what they are, for messages, by their numbers; of others than the first one only the
            first process knows.
        wire: to the others; None for one that is alone.

    Attributes:
        where_saved: what is said of the work that is done, where a process ends for another's sake.
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
        """Take the connections to the others, and watch over them from now on."""
        self._wire = Wire(ends, self._on_trouble)
        # Called before JAX's own, which waits for all others.
        atexit.register(self._leave)

    @property
    def is_first(self) -> bool:
        """Return whether this process decides, shows and writes what exists once for all."""
        return self.index == 0

    def agree(self, label: str, decide: Callable[[], T]) -> T:
        """Return what `decide` returns on the first process; on others it is not called.

        Args:
            label: what is decided, which is the same wherever all are in step.
            decide: returns what JSON has.

        Raises:
            FirstFailed: With the message that the first process passed to `fail_in_step`.
            Departed: If the first process has ended.
        """
        if self._wire is None:
            return decide()
        if self.is_first:
            value = decide()
            self._tell_all(label, value)
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
        """Reject a job whose processes are to do different things.

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
        """Return what asks for the end, on this process or, if it is the first, on any.

        Args:
            own: what asks this process for the end.
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
        """Have `agree` raise on all others what went wrong on this, the first process."""
        if self._wire is not None and self.is_first:
            self._tell_all(None, f"{self._name(0)} has failed: {error}")

    @contextlib.contextmanager
    def ending_together(self, *in_step: type[BaseException]) -> Iterator[None]:
        """End the other processes where the body ends by an error that they do not have.

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
        """Part from the others ahead of this process's end, once all have nothing left to do."""
        if self._wire is not None:
            atexit.unregister(self._leave)
            self._leave()

    def _others(self) -> Iterator[int]:
        return iter(range(1, self.count) if self.is_first else (0,))

    def _tell_all(self, label: str | None, value: Any) -> None:
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

        At once and from any thread, since the main one may wait for what will never come.
        """
        if self._has_failed:
            return  # the others have ended for this one's sake
        words = self._words(about, None) if sentence is None else sentence
        if self.is_first and self._wire is not None:
            for peer in self._others():
                if peer != about:
                    self._wire.tell_trouble(peer, about, words)
        _end(f"{words}; {self._name(self.index)} ends too{self.where_saved}")

    def _leave(self) -> None:
        """Say that this process ends, in good order or not."""
        assert self._wire is not None
        if self._has_failed:
            # Nobody is there any more for JAX to wait for.
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
    return None if repr(first) == repr(other) else (name, first, other)


def _end(sentence: str) -> NoReturn:
    """End this process at once, with a sentence."""
    # A display that is cut off has left the cursor hidden.
    shown = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{shown}error: {sentence}\n".encode())
    os._exit(ENDED_FOR_ANOTHER)
