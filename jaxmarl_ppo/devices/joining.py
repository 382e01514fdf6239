"""Joining a job of several processes, detected by JAX or named by the user."""

import os
import socket
from typing import Any

import jax

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.devices.processes import ALONE, Processes
from jaxmarl_ppo.devices.wire import CONNECT_S, Door, connect

# A process that is stopped but not dead keeps its connections; JAX ends the job after this time.
HEARTBEAT_S = 30
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_job: Processes | None = None


def join_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> Processes:
    """Join a job of several processes that train one run; call this before anything in JAX.

    Every process of the job must call it, and then do the same as all others. Under SLURM, Open MPI
    and Kubernetes the arguments are found without being given.

    Args:
        coordinator: HOST:PORT of the first process, reachable by all; the port must be free.
        num_processes: how many processes there are.
        process_id: which of them this is, from 0.

    Raises:
        ValueError: If arguments are inconsistent, no job is found, or JAX has started already.
    """
    _check(coordinator, num_processes, process_id)
    if num_processes == 1:
        return ALONE
    # It handles SIGTERM itself.
    jax.config.update("jax_enable_preemption_service", False)
    given = None not in (coordinator, num_processes, process_id)
    is_local = coordinator is not None and coordinator.rpartition(":")[0] in LOOPBACK
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method="deactivate" if given else None,
            heartbeat_timeout_seconds=HEARTBEAT_S,
            # Otherwise it listens on all networks.
            coordinator_bind_address=coordinator if is_local else None,
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(_refusal(error)) from error
    return current()


def current() -> Processes:
    """Return the job of this process, possibly of itself alone."""
    global _job
    if _job is None and jax.distributed.is_initialized():
        _job = _connected()
    return ALONE if _job is None else _job


def _connected() -> Processes:
    """Connect the processes of JAX's job, which share a store of texts."""
    # No public API gives the store, or the number of processes before devices exist.
    from jax._src.distributed import global_state

    index, count = global_state.process_id, global_state.num_processes
    if count == 1:
        return ALONE
    store: Any = global_state.client
    host = str(global_state.coordinator_address).rpartition(":")[0]
    is_local, host = host in LOOPBACK, host.strip("[]")
    own = f"process id {os.getpid()} on {socket.gethostname()}"
    key = "jaxmarl_ppo/door"
    if index == 0:
        door = Door(host if is_local else "")
        store.key_value_set(key, f"{door.port} {door.token} {own}")
        ends, names = door.let_in(count - 1)
        names[0] = own
    else:
        found = store.blocking_key_value_get(key, int(1000 * CONNECT_S))
        port, token, first = found.split(" ", 2)
        ends = {0: connect(host, int(port), token, index, own)}
        names = {0: first, index: own}
    processes = Processes(index, count, names)
    processes.connect(ends)
    return processes


def _check(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Reject invalid arguments."""
    if coordinator is not None and not coordinator.rpartition(":")[2].isdecimal():
        raise ValueError(f"coordinator must be HOST:PORT, got {show(coordinator)}")
    if num_processes is not None and num_processes < 1:
        raise ValueError(f"num_processes must be at least 1, got {num_processes}")
    if process_id is not None:
        if num_processes is None:
            raise ValueError(f"process_id={process_id} needs num_processes")
        if not 0 <= process_id < num_processes:
            raise ValueError(
                f"process_id must be from 0 to {num_processes - 1} with "
                f"num_processes={num_processes}, got {process_id}"
            )


def _refusal(error: Exception) -> str:
    """Explain why a job could not be joined."""
    text = " ".join(str(error).split())
    if "should be defined" in text or "must be defined" in text:
        return (
            "no job of several processes was found: start under SLURM, Open MPI or Kubernetes, or "
            "say coordinator, num_processes and process_id"
        )
    if "must be called before" in text:
        return (
            "join_processes must be called before JAX starts, which the first array or "
            "environment makes it do; call it right after the imports"
        )
    return f"the job could not be joined: {text}"
