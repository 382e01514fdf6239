"""A thread in which a pool plays games in its own process."""

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from jaxmarl_envs.adapters.incoming.host_channel import POLL_S

_Task = tuple[Callable[[], Any], "queue.SimpleQueue[tuple[bool, Any]]"]


class HostThread:
    """Calls functions one after the other in a thread of its own, which keeps no program alive.

    It begins where it is made, where numbers have their full range: threads that call back from a
    compiled program may take the smallest ones for zero.
    """

    def __init__(self) -> None:
        tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._tasks = tasks
        weakref.finalize(self, tasks.put, None)
        threading.Thread(target=_work, args=(tasks,), name="host-environment", daemon=True).start()

    def call(self, function: Callable[[], Any], on_wait: Callable[[], None]) -> Any:
        """Call a function, and return or raise what it does.

        Args:
            function: without arguments.
            on_wait: called again and again meanwhile; if it raises, the call is given up, and its
                thread with it.
        """
        answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._tasks.put((function, answers))
        while True:
            try:
                fine, answer = answers.get(timeout=POLL_S)
                break
            except queue.Empty:
                on_wait()
        if not fine:
            raise answer
        return answer


def _work(tasks: "queue.SimpleQueue[_Task | None]") -> None:
    while (task := tasks.get()) is not None:
        function, answers = task
        try:
            answers.put((True, function()))
        except BaseException as error:
            answers.put((False, error))
        del task, function, answers
